// Ops that do the work of the plan's ops on the device and write known values into gradients and
// parameters; copies of what ops saw are kept for the comparison after the step.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/synthetic_ops.h"

#include "base/error.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/layout.h"
#include "exec/run.h"
#include "schedule/gradient.h"
#include "schedule/visit.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <utility>
#include <variant>

namespace dovetail::exec::cuda {
namespace {

std::vector<const schedule::Op*> ops_of(const schedule::ScheduledProgram& plan, Rank rank) {
  std::set<OpId> used;
  for (const schedule::Command& command : role_of(plan, rank).commands) {
    if (const std::optional<OpId> op = schedule::op_run_by(command)) used.insert(*op);
  }
  std::vector<const schedule::Op*> ops;
  for (const schedule::Op& op : plan.program.ops) {
    if (used.count(op.id) > 0) ops.push_back(&op);
  }
  return ops;
}

}  // namespace

SyntheticOps::SyntheticOps(const schedule::ScheduledProgram& plan, DeviceMemory& memory,
                           const Options& options)
    : plan_(plan),
      rank_(options.rank),
      checks_(options.checks),
      memory_(memory),
      expected_(values::expectations(plan, options.rank)),
      work_(ops_of(plan, options.rank), options.f32_math),
      device_step_(Bytes(4)),
      squares_(Bytes((kSquareBlocks + 1) * 8)),
      tables_([this](TensorId id) { return element_of(plan_.program.tensor(id).dtype); }) {
  plan_looks();
  for (const schedule::Op* op : ops_of(plan, options.rank)) touched_[op->id] = touched_by(*op);
}

void SyntheticOps::plan_looks() {
  if (checks_ == Checks::None) return;
  const Layout& layout = memory_.layout();
  std::int64_t used = 0;
  for (const values::Observation& what : expected_.observations) {
    if (!what.bucket && !layout.has(what.tensor)) continue;
    Look look = {.what = what, .from = {}, .first = 0, .offset = used};
    if (what.bucket) {
      const MemberRegion member = layout.shard_members(*what.bucket)[what.member];
      look.first = member.first;
      look.from = member.region;
    } else {
      look.from = layout.tensor(what.tensor);
    }
    used += (look.from.bytes() + kAlignment - 1) / kAlignment * kAlignment;
    looks_[what.op].push_back(std::move(look));
  }
  copies_ = DeviceBuffer(Bytes(used), "copies of what ops read, for the check");
}

Bytes SyntheticOps::touched_by(const schedule::Op& op) const {
  const Layout& layout = memory_.layout();
  std::int64_t bytes = 0;
  const auto looks = looks_.find(op.id);
  if (looks != looks_.end()) {
    for (const Look& look : looks->second) bytes += 2 * look.from.bytes();
  }
  const auto productions = expected_.productions.find(op.id);
  if (productions != expected_.productions.end()) {
    for (const values::Production& made : productions->second) {
      if (layout.has(made.tensor)) bytes += layout.tensor(made.tensor).bytes();
    }
  }
  const auto* update = std::get_if<schedule::ShardUpdate>(&op.effect);
  if (update != nullptr && layout.has(update->parameters)) {
    for (const MemberRegion& member : layout.shard_members(update->parameters)) {
      bytes += 2 * member.region.bytes();
    }
  }
  const bool reads_and_writes = std::holds_alternative<schedule::Accumulate>(op.effect);
  if (reads_and_writes || std::holds_alternative<schedule::ZeroFill>(op.effect)) {
    for (const TensorId id : op.writes) {
      if (layout.has(id)) bytes += (reads_and_writes ? 3 : 1) * layout.tensor(id).bytes();
    }
  }
  return Bytes(bytes);
}

Array SyntheticOps::kept(const Look& look) const {
  return {.data = copies_.at(Bytes(look.offset)),
          .count = look.from.count,
          .element = look.from.element};
}

void SyntheticOps::begin_step(std::int32_t step, cudaStream_t stream) {
  follows_previous_ = has_run_ && step == step_ + 1;
  has_run_ = true;
  step_ = step;
  check(set_step(static_cast<std::int32_t*>(device_step_.data()), step, stream), "kernel set_step");
  const auto zero = [&](const Region& region) {
    if (region.count == 0) return;
    check(cudaMemsetAsync(memory_.at(region).data, 0, static_cast<std::size_t>(region.bytes()),
                          stream),
          "cudaMemsetAsync");
  };
  for (const TensorId id : expected_.inputs) {
    if (memory_.layout().has(id)) fill({.tensor = id, .writes_left = values::kInput}, stream);
  }
  for (const Region& padding : memory_.layout().padding()) zero(padding);
  if (follows_previous_) return;
  for (const TensorId id : expected_.sums) {
    if (memory_.layout().has(id)) zero(memory_.layout().tensor(id));
  }
}

void SyntheticOps::fill(const values::Production& made, cudaStream_t stream) const {
  check(fill_known(memory_.tensor(made.tensor),
                   {.tensor = made.tensor.value,
                    .rank = rank_.value,
                    .writes_left = made.writes_left,
                    .micro_step = made.micro_step,
                    .factor = made.factor},
                   static_cast<const std::int32_t*>(device_step_.data()), stream),
        "kernel fill_known");
}

void SyntheticOps::run(const schedule::Op& op, cudaStream_t stream) {
  const auto looks = looks_.find(op.id);
  if (looks != looks_.end()) {
    for (const Look& look : looks->second) {
      check(copy_scaled(memory_.at(look.from), kept(look), look.what.factor, stream),
            "kernel copy_scaled");
    }
  }
  work_.run(op, touched_.at(op.id), stream);
  run_effect(op, stream);
  const auto productions = expected_.productions.find(op.id);
  if (productions == expected_.productions.end()) return;
  for (const values::Production& made : productions->second) {
    if (memory_.layout().has(made.tensor)) fill(made, stream);
  }
}

void SyntheticOps::run_effect(const schedule::Op& op, cudaStream_t stream) {
  schedule::visit(
      op.effect, [](const schedule::Opaque&) {}, [](const schedule::FillLossGradient&) {},
      [&](const schedule::Accumulate& sum) { add_up(op, sum, stream); },
      [&](const schedule::ZeroFill&) {
        for (const TensorId id : op.writes) {
          if (!memory_.layout().has(id)) continue;
          const Region region = memory_.layout().tensor(id);
          check(cudaMemsetAsync(memory_.at(region).data, 0,
                                static_cast<std::size_t>(region.bytes()), stream),
                "cudaMemsetAsync");
        }
      },
      [](const schedule::Update&) {},
      [&](const schedule::ShardUpdate& update) { update_shard(update, stream); },
      [&](const schedule::GlobalNorm& norm) { square(op, norm, stream); });
}

void SyntheticOps::add_up(const schedule::Op& op, const schedule::Accumulate& sum,
                          cudaStream_t stream) const {
  const TensorId target = op.writes.at(0);
  if (!memory_.layout().has(target)) return;
  const Array out = memory_.tensor(target);
  for (const TensorId id : op.reads) {
    if (id == target || !memory_.layout().has(id)) continue;
    const Array summand = memory_.tensor(id);
    DOVETAIL_CHECK(summand.count == out.count) << op.name;
    check(accumulate(summand, out, sum.factor.value(), sum.overwrite ? Onto::Nothing : Onto::Old,
                     stream),
          "kernel accumulate");
  }
}

// What this rank holds of a gradient: all, or its parts of the buckets that hold slices of it. A
// stand-in has no shards.
std::vector<Region> SyntheticOps::squared_parts(TensorId tensor,
                                                const schedule::GlobalNorm& norm) const {
  const Layout& layout = memory_.layout();
  std::vector<Region> parts;
  if (norm.shard) {
    for (const BucketId bucket : layout.bucket_ids()) {
      if (layout.shards(bucket) == 1) continue;
      for (const MemberRegion& member : layout.shard_members(bucket)) {
        if (member.tensor == tensor) parts.push_back(member.region);
      }
    }
  }
  if (parts.empty()) parts.push_back(layout.tensor(tensor));
  return parts;
}

void SyntheticOps::square(const schedule::Op& op, const schedule::GlobalNorm& norm,
                          cudaStream_t stream) const {
  if (op.writes.empty() || !memory_.layout().has(op.writes[0])) return;
  auto* partial = static_cast<double*>(squares_.data());
  double* total = partial + kSquareBlocks;
  check(cudaMemsetAsync(total, 0, sizeof(double), stream), "cudaMemsetAsync");
  for (const TensorId id : op.reads) {
    if (!memory_.layout().has(id) || !schedule::is_gradient(plan_.program.tensor(id).kind))
      continue;
    for (const Region& part : squared_parts(id, norm)) {
      check(add_squares(memory_.at(part), norm.rescale.value(), partial, total, stream),
            "kernel add_squares");
    }
  }
  check(store_number(total, memory_.tensor(op.writes[0]), stream), "kernel store_number");
}

// The parameters' shard becomes what the gradients' shard is, times the rescale factor.
void SyntheticOps::update_shard(const schedule::ShardUpdate& update, cudaStream_t stream) const {
  const std::vector<MemberRegion> from = memory_.layout().shard_members(update.gradients);
  const std::vector<MemberRegion> to = memory_.layout().shard_members(update.parameters);
  DOVETAIL_CHECK(from.size() == to.size()) << update.gradients;
  const double factor = update.rescale ? update.rescale->value() : 1.0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    DOVETAIL_CHECK(from[i].region.count == to[i].region.count) << update.gradients;
    check(copy_scaled(memory_.at(from[i].region), memory_.at(to[i].region), factor, stream),
          "kernel copy_scaled");
  }
}

}  // namespace dovetail::exec::cuda

// Ops that do the work of the plan's ops on the device and write known values into gradients and
// parameters; copies of what ops saw are kept for the comparison after the step.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/ops/synthetic_ops.h"

#include "base/error.h"
#include "exec/rank_work.h"
#include "schedule/visit.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace dovetail::exec {
namespace {

// Of a list in the order of ops, the part of one op.
template <class T, class OpOf>
std::span<const T> of_op(const std::vector<T>& all, OpId op, OpOf op_of) {
  return {std::ranges::lower_bound(all, op, {}, op_of),
          std::ranges::upper_bound(all, op, {}, op_of)};
}

}  // namespace

SyntheticOps::SyntheticOps(const schedule::ScheduledProgram& plan, Rank rank, DeviceMemory& memory,
                           Checks checks)
    : plan_(plan),
      rank_(rank),
      checks_(checks),
      memory_(memory),
      expected_(values::expectations(plan, rank)),
      effects_(plan.program, memory),
      device_step_(memory.device().allocate(Bytes(4), "the number of the step")),
      tables_([this](TensorId id) { return element_of(plan_.program.tensor(id).dtype); }) {
  plan_looks();
  plan_fillings();
  plan_ops();
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
    looks_.push_back(std::move(look));
  }
  std::ranges::stable_sort(looks_, {}, [](const Look& look) { return look.what.op; });
  copies_ = memory_.device().allocate(Bytes(used), "copies of what ops read, for the check",
                                      Room::Observed);
}

void SyntheticOps::plan_fillings() {
  for (const BucketId bucket : expected_.frozen) {
    for (const MemberRegion& member : memory_.layout().shard_members(bucket)) {
      frozen_.push_back(
          {.op = {},
           .data = memory_.at(member.region),
           .write = {
               .tensor = member.tensor.value, .rank = rank_.value, .writes_left = values::kInput}});
    }
  }
  for (const auto& [op, productions] : expected_.productions) {
    for (const values::Production& made : productions) {
      if (!memory_.layout().has(made.tensor)) continue;
      fillings_.push_back({.op = op,
                           .data = memory_.tensor(made.tensor),
                           .write = {.tensor = made.tensor.value,
                                     .rank = rank_.value,
                                     .writes_left = made.writes_left,
                                     .micro_step = made.micro_step,
                                     .factor = made.factor}});
    }
  }
}

void SyntheticOps::plan_ops() {
  const std::vector<const schedule::Op*> ops = work_of(plan_, rank_).ops;
  memory_.device().reserve(ops);
  for (const schedule::Op* op : ops) {
    OpPlan plan;
    plan.looks = of_op(looks_, op->id, [](const Look& look) { return look.what.op; });
    plan.fillings = of_op(fillings_, op->id, &Filling::op);
    plan.touched = touched_by(*op, plan);
    plans_[op->id] = plan;
  }
}

Bytes SyntheticOps::touched_by(const schedule::Op& op, const OpPlan& plan) const {
  const Layout& layout = memory_.layout();
  std::int64_t bytes = 0;
  for (const Look& look : plan.looks) bytes += 2 * look.from.bytes();
  for (const Filling& filling : plan.fillings) bytes += filling.data.bytes();
  const auto* update = std::get_if<schedule::ShardUpdate>(&op.effect);
  if (update != nullptr && layout.has(update->parameters)) {
    for (const BucketId bucket : {update->gradients, update->parameters}) {
      for (const MemberRegion& member : layout.shard_members(bucket)) {
        bytes += member.region.bytes();
      }
    }
  }
  const auto* sum = std::get_if<schedule::Accumulate>(&op.effect);
  if (sum != nullptr || std::holds_alternative<schedule::ZeroFill>(op.effect)) {
    for (const TensorId id : op.writes) {
      if (!layout.has(id)) continue;
      const bool shard = sum != nullptr && sum->shard;
      const std::int64_t held = shard ? effects_.shard_bytes(id) : layout.tensor(id).bytes();
      bytes += (sum != nullptr ? 3 : 1) * held;
    }
  }
  return Bytes(bytes);
}

Array SyntheticOps::kept(const Look& look) const {
  return {.data = copies_.at(Bytes(look.offset)),
          .count = look.from.count,
          .element = look.from.element};
}

void SyntheticOps::begin_step(std::int32_t step, DeviceStream stream) {
  follows_previous_ = has_run_ && step == step_ + 1;
  has_run_ = true;
  step_ = step;
  Device& device = memory_.device();
  device.set_step(device_step_.as<std::int32_t>(), step, stream);
  for (const TensorId id : expected_.inputs) {
    if (!memory_.layout().has(id)) continue;
    fill({.op = {},
          .data = memory_.tensor(id),
          .write = {.tensor = id.value, .rank = rank_.value, .writes_left = values::kInput}},
         stream);
  }
  for (const Filling& shard : frozen_) fill(shard, stream);
  for (const Region& padding : memory_.layout().padding()) device.zero(memory_.at(padding), stream);
  if (follows_previous_) return;
  for (const TensorId id : expected_.sums) {
    if (memory_.layout().has(id)) device.zero(memory_.tensor(id), stream);
  }
}

void SyntheticOps::fill(const Filling& filling, DeviceStream stream) const {
  memory_.device().fill_known(filling.data, filling.write, device_step_.as<std::int32_t>(), stream);
}

void SyntheticOps::run(const schedule::Op& op, DeviceStream stream) {
  const OpPlan& plan = plans_.at(op.id);
  for (const Look& look : plan.looks) {
    memory_.device().copy_scaled(memory_.at(look.from), kept(look), look.what.factor, stream);
  }
  run_work(op, plan.touched, stream);
  run_effect(op, stream);
  for (const Filling& filling : plan.fillings) fill(filling, stream);
}

// Its own work; known values have touched some of its bytes already.
void SyntheticOps::run_work(const schedule::Op& op, Bytes touched, DeviceStream stream) const {
  Device& device = memory_.device();
  DOVETAIL_CHECK(!std::holds_alternative<schedule::TimedWork>(op.work))
      << "timed work is refused before a run";
  for (const schedule::Kernel& kernel : schedule::kernels_of(op.work)) {
    schedule::visit(
        kernel,
        [&](const schedule::GemmWork& work) {
          device.run_product(work, element_of(op.dtype), stream);
        },
        [&](const schedule::MemoryWork& work) {
          const Bytes known = std::min(touched, work.bytes);
          touched -= known;
          device.run_pass(work.bytes - known, stream);
        });
  }
}

void SyntheticOps::run_effect(const schedule::Op& op, DeviceStream stream) {
  schedule::visit(
      op.effect, [](const schedule::Opaque&) {}, [](const schedule::FillLossGradient&) {},
      [&](const schedule::Accumulate& sum) { effects_.accumulate(op, sum, stream); },
      [&](const schedule::ZeroFill&) { effects_.zero_fill(op, stream); },
      [](const schedule::Update&) {},
      [&](const schedule::ShardUpdate& update) { update_shard(update, stream); },
      [&](const schedule::GlobalNorm& norm) { effects_.global_norm(op, norm, stream); });
}

// The parameters' shard becomes what the gradients' shard is, times the rescale factor.
void SyntheticOps::update_shard(const schedule::ShardUpdate& update, DeviceStream stream) const {
  const std::vector<MemberRegion> from = memory_.layout().shard_members(update.gradients);
  const std::vector<MemberRegion> to = memory_.layout().shard_members(update.parameters);
  DOVETAIL_CHECK(from.size() == to.size()) << update.gradients;
  const double factor = update.rescale ? update.rescale->value() : 1.0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    DOVETAIL_CHECK(from[i].region.count == to[i].region.count) << update.gradients;
    memory_.device().copy_scaled(memory_.at(from[i].region), memory_.at(to[i].region), factor,
                                 stream);
  }
}

}  // namespace dovetail::exec

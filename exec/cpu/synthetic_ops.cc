// Ops that do the work of the plan's ops and write known values into gradients and parameters.
// What ops and collectives made of the values is kept as the step runs and compared with the exact
// result after it, outside the timed region.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/synthetic_ops.h"

#include "base/error.h"
#include "exec/cpu/kernels.h"
#include "exec/values/known_values.h"
#include "schedule/gradient.h"
#include "schedule/visit.h"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <utility>

namespace dovetail::exec::cpu {
namespace {

using values::Combination;
using values::Content;
using values::Difference;
using values::kInput;
using values::Observation;
using values::Piece;
using values::Production;

Bytes bytes_of(std::size_t elements) { return Bytes(static_cast<std::int64_t>(elements) * 4); }

// One op's own traffic while known values account for `touched` of its bytes.
void compute(const schedule::Op& op, Bytes touched, Workspace& workspace) {
  schedule::visit(
      op.work, [&](const schedule::GemmWork& work) { run_gemm(work, workspace); },
      [&](const schedule::MemoryWork& work) { run_memory(work.bytes - touched, workspace); },
      [&](const schedule::TimedWork&) {
        DOVETAIL_CHECK(false) << "timed work is refused at construction";
      },
      [](const schedule::CollectiveWork&) {});
}

}  // namespace

SyntheticOps::SyntheticOps(const schedule::ScheduledProgram& plan, Rank rank, TensorMemory& memory,
                           std::shared_ptr<Workspace> workspace)
    : plan_(plan),
      rank_(rank),
      memory_(memory),
      workspace_(std::move(workspace)),
      expected_(values::expectations(plan, rank)) {
  reserve(plan.program.ops, *workspace_);
  plan_looks(expected_.observations);
  for (const schedule::Op& op : plan.program.ops) touched_[op.id] = touched_by(op);
}

void SyntheticOps::plan_looks(const std::vector<Observation>& observations) {
  std::size_t used = 0;
  for (const Observation& what : observations) {
    if (!what.bucket && !memory_.has(what.tensor)) continue;
    Look look = {.what = what, .offset = used};
    if (what.bucket) {
      const TensorRange range = memory_.shard_members(*what.bucket)[what.member];
      look.first = range.first;
      look.count = range.data.size();
    } else {
      look.count = memory_.tensor(what.tensor).size();
    }
    used += (look.count + kLineFloats - 1) / kLineFloats * kLineFloats;
    looks_[what.op].push_back(std::move(look));
  }
  workspace_->observed.reserve(used);
}

Bytes SyntheticOps::touched_by(const schedule::Op& op) const {
  std::size_t elements = 0;
  const auto looks = looks_.find(op.id);
  if (looks != looks_.end()) {
    for (const Look& look : looks->second) elements += 2 * look.count;
  }
  const auto productions = expected_.productions.find(op.id);
  if (productions != expected_.productions.end()) {
    for (const Production& made : productions->second) {
      if (memory_.has(made.tensor)) elements += memory_.tensor(made.tensor).size();
    }
  }
  const auto* update = std::get_if<schedule::ShardUpdate>(&op.effect);
  if (update != nullptr && memory_.has(update->parameters)) {
    for (const TensorRange& range : memory_.shard_members(update->parameters)) {
      elements += 2 * range.data.size();
    }
  }
  const bool reads_and_writes = std::holds_alternative<schedule::Accumulate>(op.effect);
  if (reads_and_writes || std::holds_alternative<schedule::ZeroFill>(op.effect)) {
    for (const TensorId id : op.writes) {
      if (memory_.has(id)) elements += (reads_and_writes ? 3 : 1) * memory_.tensor(id).size();
    }
  }
  return bytes_of(elements);
}

std::span<float> SyntheticOps::kept(const Look& look) const {
  return {workspace_->observed.data() + look.offset, look.count};
}

void SyntheticOps::begin_step(std::int32_t step) {
  follows_previous_ = has_run_ && step == step_ + 1;
  has_run_ = true;
  step_ = step;
  for (const TensorId id : expected_.inputs) {
    if (!memory_.has(id)) continue;
    values::fill({.tensor = id, .step = step, .rank = rank_, .writes_left = kInput},
                 memory_.tensor(id));
  }
  if (follows_previous_) return;
  for (const TensorId id : expected_.sums) {
    if (!memory_.has(id)) continue;
    const std::span<float> sum = memory_.tensor(id);
    std::fill(sum.begin(), sum.end(), 0.0F);
  }
}

void SyntheticOps::run(const schedule::Op& op) {
  const auto looks = looks_.find(op.id);
  if (looks != looks_.end()) {
    for (const Look& look : looks->second) observe(look);
  }
  compute(op, touched_.at(op.id), *workspace_);
  run_effect(op);
  const auto productions = expected_.productions.find(op.id);
  if (productions == expected_.productions.end()) return;
  for (const Production& made : productions->second) {
    if (!memory_.has(made.tensor)) continue;
    values::fill({.tensor = made.tensor,
                  .step = step_,
                  .rank = rank_,
                  .writes_left = made.writes_left,
                  .micro_step = made.micro_step,
                  .factor = static_cast<float>(made.factor)},
                 memory_.tensor(made.tensor));
  }
}

void SyntheticOps::observe(const Look& look) const {
  const std::span<const float> from =
      look.what.bucket ? memory_.shard_members(*look.what.bucket)[look.what.member].data
                       : memory_.tensor(look.what.tensor);
  const auto factor = static_cast<float>(look.what.factor);
  const std::span<float> to = kept(look);
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = from[i] * factor;
}

void SyntheticOps::run_effect(const schedule::Op& op) {
  schedule::visit(
      op.effect, [](const schedule::Opaque&) {}, [](const schedule::FillLossGradient&) {},
      [&](const schedule::Accumulate& sum) { accumulate(op, sum); },
      [&](const schedule::ZeroFill&) {
        for (const TensorId id : op.writes) {
          if (!memory_.has(id)) continue;
          const std::span<float> data = memory_.tensor(id);
          std::fill(data.begin(), data.end(), 0.0F);
        }
      },
      [](const schedule::Update&) {},
      [&](const schedule::ShardUpdate& update) { update_shard(op, update); },
      [&](const schedule::GlobalNorm& norm) { square(op, norm); });
}

void SyntheticOps::accumulate(const schedule::Op& op, const schedule::Accumulate& sum) const {
  const TensorId target = op.writes.at(0);
  if (!memory_.has(target)) return;
  const std::span<float> out = memory_.tensor(target);
  const auto factor = static_cast<float>(sum.factor.value());
  for (const TensorId id : op.reads) {
    if (id == target || !memory_.has(id)) continue;
    const std::span<const float> summand = memory_.tensor(id);
    DOVETAIL_CHECK(summand.size() == out.size()) << op.name;
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = ((sum.overwrite ? 0.0F : out[i]) + summand[i]) * factor;
    }
  }
}

// What this rank holds of a gradient: all, or its parts of the buckets that hold slices of it.
std::vector<std::span<const float>> SyntheticOps::squared_parts(TensorId tensor,
                                                                bool is_shard) const {
  if (!is_shard) return {memory_.tensor(tensor)};
  std::vector<std::span<const float>> parts;
  for (const schedule::BucketLayout& layout : plan_.buckets) {
    if (!memory_.has(layout.bucket) || memory_.shards(layout.bucket) == 1) continue;
    for (const TensorRange& range : memory_.shard_members(layout.bucket)) {
      if (range.tensor == tensor) parts.emplace_back(range.data);
    }
  }
  return parts;
}

void SyntheticOps::square(const schedule::Op& op, const schedule::GlobalNorm& norm) const {
  if (op.writes.empty() || !memory_.has(op.writes[0])) return;
  const double factor = norm.rescale.value();
  double sum = 0;
  for (const TensorId id : op.reads) {
    if (!memory_.has(id) || !schedule::is_gradient(plan_.program.tensor(id).kind)) continue;
    for (const std::span<const float> part : squared_parts(id, norm.shard)) {
      for (const float element : part) {
        const double value = static_cast<double>(element) * factor;
        sum += value * value;
      }
    }
  }
  memory_.tensor(op.writes[0])[0] = static_cast<float>(sum);
}

// The parameters' shard becomes what the gradients' shard is, times the rescale factor.
void SyntheticOps::update_shard(const schedule::Op&, const schedule::ShardUpdate& update) const {
  const std::vector<TensorRange> from = memory_.shard_members(update.gradients);
  const std::vector<TensorRange> to = memory_.shard_members(update.parameters);
  DOVETAIL_CHECK(from.size() == to.size()) << update.gradients;
  const auto factor = static_cast<float>(update.rescale ? update.rescale->value() : 1.0);
  for (std::size_t i = 0; i < from.size(); ++i) {
    DOVETAIL_CHECK(from[i].data.size() == to[i].data.size()) << update.gradients;
    for (std::size_t j = 0; j < to[i].data.size(); ++j) to[i].data[j] = from[i].data[j] * factor;
  }
}

CheckResult SyntheticOps::check_values() {
  CheckResult result;
  for (const auto& [id, content] : expected_.at_end) {
    if (!memory_.has(id)) continue;
    compare({.tensor = id, .data = memory_.tensor(id), .where = "", .step = step_}, content,
            result);
  }
  for (const auto& [op, looks] : looks_) {
    for (const Look& look : looks) compare(look, result);
  }
  return result;
}

void SyntheticOps::compare(const Look& look, CheckResult& result) const {
  if (!look.what.squares.empty()) {
    compare_norm(look, result);
    return;
  }
  if (look.what.is_of_previous_step && !follows_previous_) return;
  const schedule::Op& op = plan_.program.op(look.what.op);
  const bool is_optimizer = op.phase == schedule::Phase::Optimizer;
  compare({.tensor = look.what.tensor,
           .first = look.first,
           .data = kept(look),
           .where = " as " + (is_optimizer ? std::string("the optimizer") : op.name) + " read it",
           .step = look.what.is_of_previous_step ? step_ - 1 : step_},
          look.what.expected, result);
}

void SyntheticOps::compare(const Found& found, const Content& expected, CheckResult& result) const {
  for (const Piece& piece : values::part_of(expected, found.first, found.data.size())) {
    const Combination combination(piece.terms, found.step);
    const std::span<const float> data = found.data.subspan(piece.begin, piece.count);
    const Difference difference = combination.compare(data, piece.source);
    result.checked += static_cast<std::int64_t>(piece.count);
    result.wrong += difference.wrong;
    if (difference.wrong == 0 || !result.first_wrong.empty()) continue;
    std::ostringstream message;
    message << "rank " << rank_ << " step " << step_ << ' '
            << plan_.program.tensor(found.tensor).name << '['
            << found.first + piece.begin + difference.first << ']' << found.where << ": expected "
            << combination.at(piece.source + difference.first) << ", found "
            << data[difference.first];
    result.first_wrong = message.str();
  }
}

// Sums of many squares round: a part in ten thousand is allowed.
void SyntheticOps::compare_norm(const Look& look, CheckResult& result) const {
  double expected = 0;
  for (const Content& content : look.what.squares) {
    for (const Piece& piece : content) {
      expected += Combination(piece.terms, step_).sum_of_squares(piece.source, piece.count);
    }
  }
  const auto found = static_cast<double>(kept(look)[0]);
  ++result.checked;
  if (std::abs(found - expected) <= 1e-4 * expected) return;
  ++result.wrong;
  if (!result.first_wrong.empty()) return;
  std::ostringstream message;
  message << "rank " << rank_ << " step " << step_ << ' '
          << plan_.program.tensor(look.what.tensor).name << " as "
          << plan_.program.op(look.what.op).name << " read it: expected " << expected << ", found "
          << found;
  result.first_wrong = message.str();
}

}  // namespace dovetail::exec::cpu

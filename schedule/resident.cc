// Adds up a plan's tensors per pipeline stage. A tensor belongs to the stage of the first op that touches it.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/resident.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "schedule/id_table.h"
#include "schedule/sharding.h"

namespace dovetail::schedule {
namespace {

constexpr Bytes kAdam = Bytes(8);  // two moments of an element, in f32
using Stages = IdTable<TensorId, std::int32_t>;

class Adder {
 public:
  Adder(const Program& program, const Stages& stage, const Schedule& schedule)
      : program_(program),
        stage_(stage),
        schedule_(schedule),
        stages_(static_cast<std::size_t>(std::max(program.stages, 1))) {
    shards_.reserve(program.tensors.size());
    copied_.reserve(program.tensors.size());
    for (const Bucket& bucket : schedule.buckets) {
      for (const Slice& slice : bucket.gradients) {
        if (is_sharded(bucket)) shards_[slice.tensor] = size_of(bucket.group);
        if (bucket.mode == BucketMode::Copy) copied_[slice.tensor] = 1;
      }
    }
    for (const FrozenBlock& block : schedule.frozen) {
      for (const TensorId id : block.parameters) shards_[id] = size_of(block.group);
    }
  }

  Resident sum(const std::vector<ResidentTensors::Tensor>& tensors) {
    for (std::size_t i = 0; i < stages_.size(); ++i)
      stages_[i].stage = static_cast<std::int32_t>(i);
    for (const ResidentTensors::Tensor& tensor : tensors) add(tensor);
    Resident most = *std::ranges::max_element(stages_, {}, &Resident::total);
    if (divides_parameters()) {
      most.parameters += std::max(largest_of(most.stage, false), kept_whole(most.stage));
      most.copies += largest_of(most.stage, true);
    }
    return most;
  }

 private:
  bool divides_parameters() const { return schedule_.parameters == ParameterSync::EachUse; }

  std::int64_t size_of(GroupId id) const {
    const auto group = std::ranges::find(program_.groups, id, &ProcessGroup::id);
    return group == program_.groups.end() ? 1 : group->size();
  }

  // Of the stage's sharded buckets and frozen blocks; `copied`: of buckets in copy mode only.
  Bytes largest_of(std::int32_t stage, bool copied) const {
    Bytes largest;
    for (const Bucket& bucket : schedule_.buckets) {
      if (!is_sharded(bucket) || bucket.gradients.empty()) continue;
      if (copied && bucket.mode != BucketMode::Copy) continue;
      if (stage_.at(bucket.gradients.front().tensor) != stage) continue;
      largest = std::max(largest, payload(program_, bucket));
    }
    if (copied) return largest;
    for (const FrozenBlock& block : schedule_.frozen) {
      Bytes bytes;
      for (const TensorId id : block.parameters) {
        if (stage_.at(id) == stage) bytes += program_.tensor(id).bytes();
      }
      largest = std::max(largest, bytes);
    }
    return largest;
  }

  // Of the stage's buckets and frozen blocks those that stay gathered from forward to backward: all of them at once.
  Bytes kept_whole(std::int32_t stage) const {
    std::set<BucketId> kept;
    for (const ParameterGather& gather : schedule_.gathers) {
      if (gather.readers == GatherFor::ForwardAndBackward) kept.insert(gather.bucket);
    }
    Bytes all;
    const auto add = [&](TensorId id, Bytes bytes) {
      if (stage_.at(id) == stage) all += bytes;
    };
    for (const Bucket& bucket : schedule_.buckets) {
      if (bucket.gradients.empty() || !kept.contains(bucket.id)) continue;
      add(bucket.gradients.front().tensor, payload(program_, bucket));
    }
    for (const FrozenBlock& block : schedule_.frozen) {
      if (!kept.contains(block.id)) continue;
      for (const TensorId id : block.parameters) add(id, program_.tensor(id).bytes());
    }
    return all;
  }

  void add(const ResidentTensors::Tensor& tensor) {
    Resident& stage = stages_[static_cast<std::size_t>(tensor.stage)];
    const std::int64_t shards = shards_.at(tensor.divided_as);
    const Bytes whole = tensor.bytes;
    const Bytes part((whole.count() + shards - 1) / shards);
    switch (tensor.kind) {
      case TensorKind::Parameter:
        stage.parameters += divides_parameters() ? part : whole;
        return;
      case TensorKind::Gradient:
        stage.gradients += divides_parameters() ? part : whole;
        stage.moments += kAdam * ((tensor.numel + shards - 1) / shards);
        if (schedule_.merge.micro_steps > 1) {
          const std::int64_t of = schedule_.merge.sync == SyncPoint::EveryMicroStep ? shards : 1;
          stage.accumulated +=
              Bytes((tensor.numel + of - 1) / of * element_size(schedule_.merge.dtype).count());
        }
        if (copied_.at(tensor.id) != 0 && !divides_parameters()) stage.copies += whole;
        return;
      case TensorKind::OptimizerState:
        stage.optimizer += part;
        return;
      case TensorKind::MergedGradient:
      case TensorKind::Activation:
        return;
    }
  }

  const Program& program_;
  const Stages& stage_;
  const Schedule& schedule_;
  std::vector<Resident> stages_;
  IdTable<TensorId, std::int64_t> shards_{1};
  IdTable<TensorId, char> copied_;  // 1: it is
};

}  // namespace

// What an update reads belongs to its gradient.
ResidentTensors::ResidentTensors(const Program& program) : program_(program) {
  IdTable<TensorId, char> is_gradient;
  for (const schedule::Tensor& tensor : program.tensors) {
    if (tensor.kind == TensorKind::Gradient) is_gradient[tensor.id] = 1;
  }
  IdTable<TensorId, std::optional<TensorId>> gradient_of;
  for (const Op& op : program.ops) {
    std::optional<TensorId> gradient;
    for (const TensorId id : op.reads) {
      if (op.phase == Phase::Optimizer && is_gradient.at(id) != 0) gradient = id;
    }
    for (const auto* operands : {&op.reads, &op.writes}) {
      for (const TensorId id : *operands) {
        if (stage_.at(id) == kNowhere) stage_[id] = program.role_of(op);
        if (gradient) gradient_of[id] = *gradient;
      }
    }
  }
  for (const schedule::Tensor& tensor : program.tensors) {
    const bool is_kept = tensor.kind == TensorKind::Parameter ||
                         tensor.kind == TensorKind::Gradient ||
                         tensor.kind == TensorKind::OptimizerState;
    if (!is_kept || stage_.at(tensor.id) == kNowhere) continue;
    tensors_.push_back({.id = tensor.id,
                        .divided_as = gradient_of.at(tensor.id).value_or(tensor.id),
                        .kind = tensor.kind,
                        .stage = stage_.at(tensor.id),
                        .numel = tensor.numel(),
                        .bytes = tensor.bytes()});
  }
}

Resident ResidentTensors::of(const Schedule& schedule) const {
  return Adder(program_, stage_, schedule).sum(tensors_);
}

Resident resident(const Program& program, const Schedule& schedule) {
  return ResidentTensors(program).of(schedule);
}

}  // namespace dovetail::schedule

// What the builders of Programs in tests share: tensors, process groups and ops get their ids in order.
//
//   ProgramBuilder build("step", 4);
//   const GroupId dp = build.ranks("dp");
//   const TensorId w = build.tensor("w", TensorKind::Parameter, 256);
//   build.op("f", Phase::Forward, MemoryWork{Bytes(48), Flop(0)}, {w}, {});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "schedule/program.h"

namespace dovetail::testing {

struct ProgramBuilder {
  schedule::Program program;

  explicit ProgramBuilder(std::string name, std::int64_t world = 1, std::int32_t stages = 1) {
    program.name = std::move(name);
    program.world_size = world;
    program.stages = stages;
  }

  GroupId group(std::string name, std::vector<Rank> ranks, std::int64_t instance_size = 0) {
    const GroupId id{static_cast<std::int32_t>(program.groups.size())};
    program.groups.push_back({id, std::move(name), std::move(ranks), instance_size});
    return id;
  }
  // All ranks in order, in instances of this size; 0: one of all.
  GroupId ranks(std::string name, std::int64_t instance_size = 0) {
    std::vector<Rank> all;
    for (std::int32_t rank = 0; rank < program.world_size; ++rank) all.push_back(Rank{rank});
    return group(std::move(name), std::move(all), instance_size);
  }

  TensorId tensor(std::string name, schedule::TensorKind kind, std::int64_t elements,
                  schedule::DType dtype = schedule::DType::F32) {
    const TensorId id{static_cast<std::int32_t>(program.tensors.size())};
    program.tensors.push_back(
        {.id = id, .name = std::move(name), .kind = kind, .dtype = dtype, .shape = {elements}});
    return id;
  }

  OpId op(std::string name, schedule::Phase phase, schedule::Work work, std::vector<TensorId> reads,
          std::vector<TensorId> writes, schedule::Effect effect = schedule::Opaque{}) {
    const OpId id{static_cast<std::int32_t>(program.ops.size())};
    program.ops.push_back({.id = id,
                           .name = std::move(name),
                           .phase = phase,
                           .work = std::move(work),
                           .reads = std::move(reads),
                           .writes = std::move(writes),
                           .effect = effect});
    return id;
  }

  void owe(TensorId gradient, GroupId group,
           schedule::ReduceOp reduce = schedule::ReduceOp::Average) {
    program.reductions.push_back({gradient, group, reduce});
  }
};

// The same step with a frozen parameter: the op that updates it alone is gone, and its gradient is neither written nor
// reduced.
inline schedule::Program frozen(schedule::Program program, TensorId parameter) {
  const auto update = std::ranges::find_if(program.ops, [&](const schedule::Op& op) {
    return std::holds_alternative<schedule::Update>(op.effect) &&
           std::ranges::count(op.writes, parameter) > 0;
  });
  const TensorId gradient = update->reads.front();
  program.ops.erase(update);
  for (schedule::Op& op : program.ops) std::erase(op.writes, gradient);
  std::erase_if(program.reductions, [&](const schedule::Reduction& reduction) {
    return reduction.gradient == gradient;
  });
  return program;
}

}  // namespace dovetail::testing

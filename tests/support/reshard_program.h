// A Program with a tensor that two ops read, for conversions to be put into.
//
//   writer -> x    first: x -> y    second: x -> z    backward: y, z -> g    update: g -> w
//
// All tensors are 8x8 f32, ids 1 x, 2 y, 3 z, 4 g, 5 w; g owes an average over all 4 ranks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::testing {

inline constexpr TensorId kX{1};
inline constexpr TensorId kGradient{4};
inline constexpr OpId kWriter{1};
inline constexpr OpId kFirst{2};
inline constexpr OpId kSecond{3};
inline constexpr OpId kBackward{4};
inline constexpr OpId kUpdate{5};

inline schedule::Program two_readers() {
  using schedule::Phase;
  using schedule::TensorKind;
  schedule::Program program;
  program.name = "two readers";
  program.world_size = 4;
  const auto tensor = [&](std::int32_t id, const std::string& name, TensorKind kind) {
    program.tensors.push_back({.id = TensorId{id}, .name = name, .kind = kind, .shape = {8, 8}});
  };
  tensor(1, "x", TensorKind::Activation);
  tensor(2, "y", TensorKind::Activation);
  tensor(3, "z", TensorKind::Activation);
  tensor(4, "g", TensorKind::Gradient);
  tensor(5, "w", TensorKind::Parameter);
  const auto op = [&](OpId id, const std::string& name, Phase phase, std::vector<TensorId> reads,
                      std::int32_t writes) {
    schedule::Op made;
    made.id = id;
    made.name = name;
    made.phase = phase;
    made.work = schedule::TimedWork{{std::chrono::microseconds(10)}};
    made.reads = std::move(reads);
    made.writes = {TensorId{writes}};
    program.ops.push_back(std::move(made));
  };
  op(kWriter, "writer", Phase::Forward, {}, 1);
  op(kFirst, "first", Phase::Forward, {kX}, 2);
  op(kSecond, "second", Phase::Forward, {kX}, 3);
  op(kBackward, "backward", Phase::Backward, {TensorId{2}, TensorId{3}}, 4);
  op(kUpdate, "update", Phase::Optimizer, {kGradient}, 5);
  program.groups = {
      {.id = GroupId{0}, .name = "dp", .ranks = {Rank{0}, Rank{1}, Rank{2}, Rank{3}}}};
  program.reductions = {{.gradient = kGradient, .group = GroupId{0}}};
  return program;
}

}  // namespace dovetail::testing

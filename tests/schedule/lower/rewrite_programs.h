// A Program of two layers for the tests of the rewriting passes, with everything that they look at.
//
//   forward    a.forward   b.forward
//   backward   loss.fill   b.backward  a.backward      writes b.grad (4 floats), a.grad (8 floats)
//   optimizer  b.update    a.update                    momentum: rescale 1, 3 operands of the size
//   owes       b.grad, a.grad: average over dp (4 ranks)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/lower/editor.h"
#include "schedule/lower/rewrite/rewritten.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace dovetail::schedule::rewrite_test {

inline constexpr TensorId kA{0}, kB{1}, kAOut{2}, kBOut{3}, kLossGrad{4}, kAOutGrad{5};
inline constexpr TensorId kAGrad{6}, kBGrad{7}, kAState{8}, kBState{9};
inline constexpr OpId kAForward{0}, kBForward{1}, kFill{2}, kBBackward{3}, kABackward{4};
inline constexpr OpId kBUpdate{5}, kAUpdate{6};
inline constexpr GroupId kDp{0};

inline Tensor tensor_of(TensorId id, std::string name, TensorKind kind, std::int64_t elements) {
  return {.id = id, .name = std::move(name), .kind = kind, .shape = {elements}};
}

inline Op op_of(OpId id, std::string name, Phase phase, std::vector<TensorId> reads,
                std::vector<TensorId> writes, Effect effect = Opaque{}) {
  return {.id = id,
          .name = std::move(name),
          .phase = phase,
          .work = MemoryWork{.bytes = Bytes(160), .flop = Flop(40)},
          .reads = std::move(reads),
          .writes = std::move(writes),
          .effect = effect};
}

inline Program two_layers() {
  using enum TensorKind;
  Program program;
  program.name = "two layers";
  program.world_size = 4;
  program.groups.push_back({kDp, "dp", {Rank{0}, Rank{1}, Rank{2}, Rank{3}}});
  program.tensors = {tensor_of(kA, "a", Parameter, 8),
                     tensor_of(kB, "b", Parameter, 4),
                     tensor_of(kAOut, "a.out", Activation, 2),
                     tensor_of(kBOut, "b.out", Activation, 2),
                     tensor_of(kLossGrad, "loss.grad", Activation, 1),
                     tensor_of(kAOutGrad, "a.out.grad", Activation, 2),
                     tensor_of(kAGrad, "a.grad", Gradient, 8),
                     tensor_of(kBGrad, "b.grad", Gradient, 4),
                     tensor_of(kAState, "a.momentum", OptimizerState, 8),
                     tensor_of(kBState, "b.momentum", OptimizerState, 4)};
  const Update momentum{.elementwise = true, .rescale = Rational(1)};
  program.ops = {
      op_of(kAForward, "a.forward", Phase::Forward, {kA}, {kAOut}),
      op_of(kBForward, "b.forward", Phase::Forward, {kAOut, kB}, {kBOut}),
      op_of(kFill, "loss.fill", Phase::Backward, {kBOut}, {kLossGrad},
            FillLossGradient{Rational(1)}),
      op_of(kBBackward, "b.backward", Phase::Backward, {kLossGrad, kAOut}, {kBGrad, kAOutGrad}),
      op_of(kABackward, "a.backward", Phase::Backward, {kAOutGrad}, {kAGrad}),
      op_of(kBUpdate, "b.update", Phase::Optimizer, {kBGrad, kB, kBState}, {kB, kBState}, momentum),
      op_of(kAUpdate, "a.update", Phase::Optimizer, {kAGrad, kA, kAState}, {kA, kAState},
            momentum)};
  program.reductions = {{kBGrad, kDp, ReduceOp::Average}, {kAGrad, kDp, ReduceOp::Average}};
  return program;
}

// Both gradients in one bucket over dp.
inline Schedule one_bucket(Collective collective = Collective::AllReduce) {
  Schedule schedule;
  schedule.policy = "test";
  schedule.buckets.push_back({.id = BucketId{3},
                              .gradients = {Slice(kBGrad), Slice(kAGrad)},
                              .group = kDp,
                              .collective = collective});
  return schedule;
}

inline std::string names(const Program& program) {
  std::string list;
  for (const Op& op : program.ops) list += (list.empty() ? "" : " ") + op.name;
  return list;
}

inline const Op& op_called(const Program& program, const std::string& name) {
  for (const Op& op : program.ops) {
    if (op.name == name) return op;
  }
  ADD_FAILURE() << "no op " << name << " among: " << names(program);
  return program.ops.front();
}

inline const Tensor& tensor_called(const Program& program, const std::string& name) {
  for (const Tensor& tensor : program.tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << "no tensor " << name;
  return program.tensors.front();
}

// The result of a pass that is expected to go through, and sound.
template <class Result, class Outcome>
Result applied(Outcome outcome) {
  if (const auto* refusal = std::get_if<Refusal>(&outcome)) {
    ADD_FAILURE() << "refused: " << refusal->reason;
    return Result();
  }
  Result result = std::get<Result>(std::move(outcome));
  EXPECT_EQ(problems(result.program), std::vector<std::string>{});
  return result;
}

template <class Outcome>
std::string reason_of(const Outcome& outcome) {
  const auto* refusal = std::get_if<Refusal>(&outcome);
  return refusal == nullptr ? "not refused" : refusal->reason;
}

}  // namespace dovetail::schedule::rewrite_test

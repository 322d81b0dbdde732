// A step of tensor- and data-parallel training in Megatron's manner, for tests of collectives that the
// Program itself asks for.
//
// Rank r is in the tensor-parallel group of r / 2 and in the data-parallel group of r % 2. Each layer:
//   l.forward     w, previous y -> y      l.forward.sum    y summed over tp
//   l.backward    w, g -> previous g      l.weight         g, previous y -> w.grad
//   l.backward.sum   previous g summed over tp; it stands behind l.weight, which does not need it
//   l.update
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "tests/support/program_builder.h"

namespace dovetail::testing {

struct TensorParallelStep {
  std::int32_t layers = 2;
  std::int64_t width = 48;  // elements of activations and weights
  // Of each op that computes.
  schedule::Work work = schedule::TimedWork{{std::chrono::microseconds(10)}};
};

inline schedule::Program tensor_parallel(const TensorParallelStep& step = {}) {
  using enum schedule::TensorKind;
  using schedule::Phase;
  ProgramBuilder build("tensor parallel", 4);
  const GroupId tp = build.ranks("tp", 2);
  const GroupId dp = build.group("dp", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2);
  const auto compute = [&](const std::string& name, Phase phase, std::vector<TensorId> reads,
                           std::vector<TensorId> writes,
                           schedule::Effect effect = schedule::Opaque{}) {
    build.op(name, phase, step.work, std::move(reads), std::move(writes), effect);
  };
  const auto sum = [&](const std::string& name, Phase phase, TensorId of) {
    build.op(name, phase, schedule::CollectiveWork{.group = tp, .bytes = Bytes(4 * step.width)},
             {of}, {of});
  };
  std::vector<TensorId> weights, outputs{build.tensor("x", Activation, step.width)};
  compute("input", Phase::Forward, {}, outputs);
  for (std::int32_t i = 0; i < step.layers; ++i) {
    const std::string name = "l" + std::to_string(i);
    weights.push_back(build.tensor(name + ".w", Parameter, step.width));
    const TensorId out = build.tensor(name + ".y", Activation, step.width);
    compute(name + ".forward", Phase::Forward, {weights.back(), outputs.back()}, {out});
    sum(name + ".forward.sum", Phase::Forward, out);
    outputs.push_back(out);
  }
  TensorId arriving = build.tensor("loss.grad", Activation, step.width);
  compute("loss", Phase::Backward, {outputs.back()}, {arriving}, schedule::FillLossGradient{});
  std::vector<TensorId> gradients(weights.size());
  for (std::size_t i = weights.size(); i-- > 0;) {
    const std::string name = "l" + std::to_string(i);
    const TensorId before = build.tensor(name + ".x.grad", Activation, step.width);
    gradients[i] = build.tensor(name + ".w.grad", Gradient, step.width);
    compute(name + ".backward", Phase::Backward, {weights[i], arriving}, {before});
    compute(name + ".weight", Phase::Backward, {arriving, outputs[i]}, {gradients[i]});
    sum(name + ".backward.sum", Phase::Backward, before);
    build.owe(gradients[i], dp);
    arriving = before;
  }
  for (std::size_t i = weights.size(); i-- > 0;) {
    compute("l" + std::to_string(i) + ".update", Phase::Optimizer, {gradients[i], weights[i]},
            {weights[i]}, schedule::Update{.elementwise = true, .rescale = Rational(1)});
  }
  return build.program;
}

}  // namespace dovetail::testing

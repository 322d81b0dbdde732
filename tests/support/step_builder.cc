// Builds a Program op by op for tests of policies: backward ops with the gradients that they
// produce and the groups over which these are owed, then one update each.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/step_builder.h"

#include <algorithm>
#include <utility>

namespace dovetail::testing {

using schedule::Phase;
using schedule::TensorKind;

StepBuilder::StepBuilder(schedule::ReduceOp reduction, LossFill fill) : reduction_(reduction) {
  loss_ = build_.tensor("loss.grad", TensorKind::Activation, 1);
  schedule::Effect effect = schedule::Opaque{};
  if (fill == LossFill::Present) effect = schedule::FillLossGradient{Rational(1)};
  op("loss.backward", Phase::Backward, {}, {loss_}, effect);
}

GroupId StepBuilder::group(std::int64_t size) {
  build_.program.world_size = std::max(build_.program.world_size, size);
  std::vector<Rank> ranks;
  for (std::int32_t rank = 0; rank < size; ++rank) ranks.push_back(Rank{rank});
  return build_.group("dp" + std::to_string(build_.program.groups.size()), std::move(ranks));
}

void StepBuilder::op(const std::string& name, Phase phase, std::vector<TensorId> reads,
                     std::vector<TensorId> writes, schedule::Effect effect) {
  build_.op(name, phase, schedule::TimedWork{{Duration(1000)}}, std::move(reads), std::move(writes),
            effect);
}

std::vector<TensorId> StepBuilder::backward(const std::string& name,
                                            const std::vector<GradientOf>& gradients) {
  std::vector<TensorId> written;
  for (const GradientOf& gradient : gradients) {
    written.push_back(build_.tensor(name + "." + std::to_string(written.size()),
                                    TensorKind::Gradient, gradient.elements, gradient.dtype));
    gradients_.push_back(written.back());
    owe(written.back(), gradient.group);
  }
  op(name, Phase::Backward, {loss_}, written);
  return written;
}

void StepBuilder::reader(const std::string& name, TensorId gradient) {
  const TensorId out = build_.tensor(name + ".out", TensorKind::Activation, 1);
  op(name, Phase::Backward, {gradient}, {out});
}

void StepBuilder::tensor_parallel(TensorId gradient, GroupId group) {
  const schedule::Tensor& reduced = build_.program.tensor(gradient);
  build_.op(reduced.name + ".tp", Phase::Backward,
            schedule::CollectiveWork{.group = group, .bytes = reduced.bytes()}, {gradient},
            {gradient});
}

void StepBuilder::owe(TensorId gradient, GroupId group) { build_.owe(gradient, group, reduction_); }

schedule::Program StepBuilder::build(const schedule::Effect& update) {
  for (const TensorId gradient : gradients_) {
    const schedule::Tensor owner = build_.program.tensor(gradient);
    const TensorId parameter =
        build_.tensor(owner.name + ".parameter", TensorKind::Parameter, owner.numel(), owner.dtype);
    op(owner.name + ".update", Phase::Optimizer, {gradient, parameter}, {parameter}, update);
  }
  return std::move(build_.program);
}

}  // namespace dovetail::testing

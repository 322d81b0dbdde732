// Building steps.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/step_builder.h"

#include <algorithm>
#include <utility>

namespace dovetail::testing {

using schedule::DType;
using schedule::Op;
using schedule::Phase;
using schedule::TensorKind;

StepBuilder::StepBuilder(schedule::ReduceOp reduction, LossFill fill) : reduction_(reduction) {
  program_.name = "step";
  loss_ = tensor("loss.grad", TensorKind::Activation, 1, DType::F32);
  Op& first = op("loss.backward", Phase::Backward);
  first.writes = {loss_};
  if (fill == LossFill::Present) first.effect = schedule::FillLossGradient{Rational(1)};
}

GroupId StepBuilder::group(std::int64_t size) {
  const GroupId id{static_cast<std::int32_t>(program_.groups.size())};
  schedule::ProcessGroup group{id, "dp" + std::to_string(id.value), {}, 0};
  for (std::int32_t rank = 0; rank < size; ++rank) group.ranks.push_back(Rank{rank});
  program_.groups.push_back(std::move(group));
  program_.world_size = std::max(program_.world_size, size);
  return id;
}

TensorId StepBuilder::tensor(const std::string& name, TensorKind kind, std::int64_t elements,
                             DType dtype) {
  const TensorId id{static_cast<std::int32_t>(program_.tensors.size())};
  program_.tensors.push_back({id, name, kind, dtype, {elements}});
  return id;
}

Op& StepBuilder::op(const std::string& name, Phase phase) {
  Op op;
  op.id = OpId{static_cast<std::int32_t>(program_.ops.size())};
  op.name = name;
  op.phase = phase;
  op.work = schedule::TimedWork{{Duration(1000)}};
  program_.ops.push_back(std::move(op));
  return program_.ops.back();
}

std::vector<TensorId> StepBuilder::backward(const std::string& name,
                                            const std::vector<GradientOf>& gradients) {
  std::vector<TensorId> written;
  for (const GradientOf& gradient : gradients) {
    written.push_back(tensor(name + "." + std::to_string(written.size()), TensorKind::Gradient,
                             gradient.elements, gradient.dtype));
    gradients_.push_back(written.back());
    owe(written.back(), gradient.group);
  }
  Op& producer = op(name, Phase::Backward);
  producer.reads = {loss_};
  producer.writes = written;
  return written;
}

void StepBuilder::reader(const std::string& name, TensorId gradient) {
  const TensorId out = tensor(name + ".out", TensorKind::Activation, 1, DType::F32);
  Op& reader = op(name, Phase::Backward);
  reader.reads = {gradient};
  reader.writes = {out};
}

void StepBuilder::tensor_parallel(TensorId gradient, GroupId group) {
  const Bytes bytes = program_.tensor(gradient).bytes();
  Op& reduce = op(program_.tensor(gradient).name + ".tp", Phase::Backward);
  reduce.work = schedule::CollectiveWork{.group = group, .bytes = bytes};
  reduce.reads = {gradient};
  reduce.writes = {gradient};
}

void StepBuilder::owe(TensorId gradient, GroupId group) {
  program_.reductions.push_back({gradient, group, reduction_});
}

schedule::Program StepBuilder::build(const schedule::Effect& update) {
  for (const TensorId gradient : gradients_) {
    const schedule::Tensor owner = program_.tensor(gradient);
    const TensorId parameter =
        tensor(owner.name + ".parameter", TensorKind::Parameter, owner.numel(), owner.dtype);
    Op& op_of = op(owner.name + ".update", Phase::Optimizer);
    op_of.effect = update;
    op_of.reads = {gradient, parameter};
    op_of.writes = {parameter};
  }
  return std::move(program_);
}

}  // namespace dovetail::testing

// The tape behind the zoo: forward ops as layers arrive, backward and optimizer ops at the end.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo_builder.h"

#include "base/error.h"

#include <algorithm>
#include <utility>

namespace dovetail::models::zoo {

using schedule::GemmWork;
using schedule::MemoryWork;
using schedule::Phase;
using schedule::TensorKind;

namespace {

constexpr GroupId kDataParallel{0};
// Of one parameter: elements that are moved, and FLOP. SGD: m = mu m + g; p = p - lr m.
struct UpdateCost {
  std::int64_t elements = 5;
  double flop = 4;
};
UpdateCost update_cost(jobs::Optimizer optimizer) {
  return optimizer == jobs::Optimizer::Adam ? UpdateCost{.elements = 7, .flop = 12} : UpdateCost{};
}

}  // namespace

std::int64_t numel(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

Builder::Builder(std::string name, const ZooOptions& options) : options_(options) {
  program_.name = std::move(name);
  program_.world_size = options.world_size;
  schedule::ProcessGroup group{.id = kDataParallel, .name = "dp", .ranks = {}};
  for (std::int64_t rank = 0; rank < options.world_size; ++rank) {
    group.ranks.push_back(Rank{static_cast<std::int32_t>(rank)});
  }
  program_.groups.push_back(std::move(group));
}

schedule::DType Builder::computed() const {
  switch (options_.autocast) {
    case jobs::Autocast::Bf16:
      return schedule::DType::BF16;
    case jobs::Autocast::F16:
      return schedule::DType::F16;
    case jobs::Autocast::No:
      break;
  }
  return options_.dtype;
}

Bytes Builder::bytes(std::int64_t elements) const {
  return schedule::element_size(computed()) * elements;
}

std::optional<MemoryWork> Builder::cast(std::int64_t elements, bool back) const {
  if (options_.autocast == jobs::Autocast::No) return std::nullopt;
  return MemoryWork{.bytes = bytes(elements) + schedule::element_size(options_.dtype) * elements,
                    .flop = Flop(0),
                    .access = back ? schedule::Access::Widened : schedule::Access::Plain};
}

TensorId Builder::parameter(const std::string& name, Shape shape) {
  return add_tensor(name, TensorKind::Parameter, std::move(shape));
}

Value Builder::activation(const std::string& name, Shape shape) {
  const TensorId id = add_tensor(name, TensorKind::Activation, shape);
  return {.tensor = id, .shape = std::move(shape)};
}

Value Builder::add(Layer layer) {
  Operands operands;
  for (const Value& input : layer.inputs) {
    if (input.tensor) operands.reads.push_back(*input.tensor);
  }
  // A product of two views of one tensor (GPT-2's packed q, k, v) reads that tensor once.
  operands.reads.erase(std::unique(operands.reads.begin(), operands.reads.end()),
                       operands.reads.end());
  operands.reads.insert(operands.reads.end(), layer.parameters.begin(), layer.parameters.end());
  for (const Value& output : layer.outputs) operands.writes.push_back(*output.tensor);
  add_op(layer.name + ".forward", Phase::Forward, layer.forward, std::move(operands));
  tape_.push_back(std::move(layer));
  return tape_.back().outputs.front();
}

schedule::Program Builder::finish(const Value& result) {
  // Two passes over the result, as log-softmax and the mean over samples need.
  add({.name = "loss",
       .forward = Traffic{.read_passes = 2, .flop_per_element = 4},
       .inputs = {result},
       .outputs = {activation("loss.out", {})},
       .backward = {{.suffix = "backward",
                     .work = Traffic{.read_passes = 1, .flop_per_element = 2},
                     .reads = {result.tensor},
                     .inputs = {result},
                     .effect = schedule::FillLossGradient{Rational(1)}}}});
  for (auto layer = tape_.rbegin(); layer != tape_.rend(); ++layer) undo(*layer);
  update_parameters();
  return std::move(program_);
}

TensorId Builder::add_tensor(std::string name, TensorKind kind, Shape shape) {
  const TensorId id{static_cast<std::int32_t>(program_.tensors.size())};
  program_.tensors.push_back({.id = id,
                              .name = std::move(name),
                              .kind = kind,
                              .dtype = kind == TensorKind::Activation ? computed() : options_.dtype,
                              .shape = std::move(shape)});
  return id;
}

void Builder::add_op(std::string name, Phase phase, const Recipe& work, Operands operands) {
  const OpId id{static_cast<std::int32_t>(program_.ops.size())};
  program_.ops.push_back({.id = id,
                          .name = std::move(name),
                          .phase = phase,
                          .dtype = phase == Phase::Optimizer ? options_.dtype : computed(),
                          .work = price(work, operands),
                          .reads = std::move(operands.reads),
                          .writes = std::move(operands.writes)});
}

GemmWork Builder::product_of(GemmWork gemm) const {
  if (computed() == schedule::DType::F32) gemm.operands = schedule::Operands::Tf32;
  return gemm;
}

schedule::Work Builder::price(const Recipe& work, const Operands& operands) const {
  schedule::Work alone = price_alone(work, operands);
  if (operands.accumulated == Bytes(0)) return alone;
  schedule::KernelsWork all{schedule::kernels_of(alone)};
  all.kernels.edit().emplace_back(MemoryWork{
      .bytes = operands.accumulated * 3, .flop = Flop(0), .access = schedule::Access::Plain});
  return all;
}

schedule::Work Builder::price_alone(const Recipe& work, const Operands& operands) const {
  if (const auto* gemm = std::get_if<GemmWork>(&work)) return product_of(*gemm);
  if (const auto* memory = std::get_if<MemoryWork>(&work)) return *memory;
  if (const auto* several = std::get_if<schedule::KernelsWork>(&work)) {
    schedule::KernelsWork all = *several;
    for (schedule::Kernel& kernel : all.kernels.edit()) {
      if (auto* gemm = std::get_if<GemmWork>(&kernel)) *gemm = product_of(*gemm);
    }
    return all;
  }
  const Traffic& traffic = std::get<Traffic>(work);
  Bytes read;
  Bytes written;
  for (const TensorId id : operands.reads) read += program_.tensor(id).bytes();
  for (const TensorId id : operands.writes) written += program_.tensor(id).bytes();
  const Bytes own = read - operands.accumulated;
  return MemoryWork{.bytes = own * traffic.read_passes + written,
                    .flop = element_flop(traffic.flop_per_element, operands),
                    .access = traffic.access,
                    .columns = traffic.columns};
}

Flop Builder::element_flop(double per_element, const Operands& operands) const {
  std::int64_t largest = 0;
  for (const auto* list : {&operands.reads, &operands.writes}) {
    for (const TensorId id : *list) largest = std::max(largest, program_.tensor(id).numel());
  }
  return Flop(per_element * static_cast<double>(largest));
}

void Builder::undo(const Layer& layer) {
  if (layer.backward.empty()) return share_gradient(layer);
  for (const BackwardOp& op : layer.backward) {
    Operands operands;
    for (const Value& output : layer.outputs) {
      const auto gradient = gradients_.find(*output.tensor);
      if (gradient != gradients_.end()) operands.reads.push_back(gradient->second);
    }
    for (const std::optional<TensorId>& saved : op.reads) {
      if (saved) operands.reads.push_back(*saved);
    }
    for (auto parameter = op.parameters.rbegin(); parameter != op.parameters.rend(); ++parameter) {
      write_gradient(*parameter, operands);
      std::erase(ready_, *parameter);
      ready_.push_back(*parameter);
    }
    for (const Value& input : op.inputs) {
      if (input.tensor) write_gradient(*input.tensor, operands);
    }
    // The first layer has no input that needs a gradient, so this op of it does not exist.
    if (operands.writes.empty()) continue;
    add_op(layer.name + "." + op.suffix, Phase::Backward, op.work, std::move(operands));
    program_.ops.back().effect = op.effect;
  }
}

void Builder::share_gradient(const Layer& layer) {
  const auto gradient = gradients_.find(*layer.outputs.front().tensor);
  DOVETAIL_CHECK(gradient != gradients_.end()) << layer.name << " has no consumer";
  const TensorId shared = gradient->second;
  for (const Value& input : layer.inputs) {
    const bool first = gradients_.emplace(*input.tensor, shared).second;
    DOVETAIL_CHECK(first) << layer.name << " is not the last consumer of its inputs";
  }
}

void Builder::write_gradient(TensorId of, Operands& operands) {
  const auto known = gradients_.find(of);
  if (known != gradients_.end()) {
    operands.reads.push_back(known->second);
    operands.writes.push_back(known->second);
    operands.accumulated += program_.tensor(known->second).bytes();
    return;
  }
  const schedule::Tensor& tensor = program_.tensor(of);
  const bool parameter = tensor.kind == TensorKind::Parameter;
  const TensorId gradient =
      add_tensor(tensor.name + ".grad", parameter ? TensorKind::Gradient : TensorKind::Activation,
                 Shape(tensor.shape));
  gradients_.emplace(of, gradient);
  operands.writes.push_back(gradient);
}

void Builder::update_parameters() {
  const UpdateCost cost = update_cost(options_.optimizer);
  for (const TensorId parameter : ready_) {
    const TensorId gradient = gradients_.at(parameter);
    const std::int64_t count = program_.tensor(parameter).numel();
    add_op(program_.tensor(parameter).name + ".update", Phase::Optimizer,
           MemoryWork{.bytes = schedule::element_size(options_.dtype) * (cost.elements * count),
                      .flop = Flop(cost.flop * static_cast<double>(count)),
                      .access = schedule::Access::Updated},
           {.reads = {gradient, parameter}, .writes = {parameter}, .accumulated = Bytes(0)});
    program_.ops.back().effect = schedule::Update{.elementwise = true, .rescale = Rational(1)};
    program_.reductions.push_back(
        {.gradient = gradient, .group = kDataParallel, .op = schedule::ReduceOp::Average});
  }
}

}  // namespace dovetail::models::zoo

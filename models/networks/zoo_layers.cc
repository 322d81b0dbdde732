// Layers of the zoo: each puts one forward op on the tape and says how to undo it.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo_layers.h"

#include "base/error.h"

#include <utility>

namespace dovetail::models::zoo {

using schedule::GemmWork;
using schedule::MemoryWork;

namespace {

// About what a norm does to an element: mean, variance, scale and shift; and the chain rule back.
constexpr double kNormForwardFlop = 6;
constexpr double kNormBackwardFlop = 10;

// The product of activations with weights, m x k by k x n; parameters[0] is the weight.
struct Weighted {
  std::string name;
  Value in;
  std::vector<TensorId> parameters;
  Shape out;
  GemmWork work;
  bool sums_bias = false;
};
Value weighted_product(Builder& builder, Weighted layer) {
  const GemmWork& y = layer.work;
  const GemmWork of_weight{.m = y.n, .n = y.k, .k = y.m, .count = y.count, .operands = y.operands};
  Recipe weight_work = of_weight;
  if (layer.sums_bias) {
    weight_work =
        schedule::KernelsWork{{of_weight, MemoryWork{.bytes = builder.bytes(y.m * y.n),
                                                     .flop = Flop(0),
                                                     .access = schedule::Access::SumColumns}}};
  }
  const Value out = builder.activation(layer.name + ".out", std::move(layer.out));
  const TensorId weight = layer.parameters.front();
  return builder.add(
      {.name = std::move(layer.name),
       .forward = layer.work,
       .inputs = {layer.in},
       .parameters = layer.parameters,
       .outputs = {out},
       .backward = {
           {.suffix = "backward.weight",
            .work = std::move(weight_work),
            .reads = {layer.in.tensor},
            .parameters = layer.parameters},
           {.suffix = "backward.input",
            .work =
                GemmWork{.m = y.m, .n = y.k, .k = y.n, .count = y.count, .operands = y.operands},
            .reads = {weight},
            .inputs = {layer.in}}}});
}

Weighted linear_product(std::string name, const LinearShape& shape, const Value& in) {
  DOVETAIL_CHECK(in.shape.back() == shape.in) << name << " takes " << shape.in << " features";
  Shape out = in.shape;
  out.back() = shape.out;
  const std::int64_t rows = numel(in.shape) / shape.in;
  return {.name = std::move(name),
          .in = in,
          .parameters = {},
          .out = std::move(out),
          .work = {.m = rows, .n = shape.out, .k = shape.in}};
}

std::int64_t window_count(std::int64_t extent, std::int64_t size, const Kernel& kernel,
                          Rounding rounding = Rounding::Down) {
  const std::int64_t pad = kernel.pad == Kernel::Pad::Same ? size / 2 : 0;
  const std::int64_t room = extent + 2 * pad - size;
  DOVETAIL_CHECK(room >= 0) << "a window of " << size << " does not fit into " << extent;
  const std::int64_t up = rounding == Rounding::Up ? kernel.stride - 1 : 0;
  return (room + up) / kernel.stride + 1;
}

}  // namespace

Value linear(Builder& builder, const std::string& name, const LinearShape& shape, const Value& in) {
  Weighted work = linear_product(name, shape, in);
  work.parameters.push_back(builder.parameter(name + ".weight", {shape.out, shape.in}));
  if (shape.bias == Bias::Yes) {
    work.parameters.push_back(builder.parameter(name + ".bias", {shape.out}));
  }
  work.sums_bias = shape.sums_bias;
  return weighted_product(builder, std::move(work));
}

Value norm(Builder& builder, const std::string& name, NormKind kind, const Value& in) {
  const bool is_batch = kind == NormKind::Batch;
  const std::int64_t width = is_batch ? in.shape[1] : in.shape.back();
  const std::vector<TensorId> parameters = {builder.parameter(name + ".weight", {width}),
                                            builder.parameter(name + ".bias", {width})};
  const Value out = builder.activation(name + ".out", in.shape);
  using schedule::Access;
  const int passes = is_batch ? 2 : 1;
  return builder.add(
      {.name = name,
       .forward = Traffic{.read_passes = passes,
                          .flop_per_element = kNormForwardFlop,
                          .access = is_batch ? Access::Any : Access::LayerNorm,
                          .columns = is_batch ? 0 : width},
       .inputs = {in},
       .parameters = parameters,
       .outputs = {out},
       .backward = {{.suffix = "backward",
                     .work = Traffic{.read_passes = passes,
                                     .flop_per_element = kNormBackwardFlop,
                                     .access = is_batch ? Access::Any : Access::LayerNormBackward,
                                     .columns = is_batch ? 0 : width},
                     .reads = {in.tensor, parameters.front()},
                     .parameters = parameters,
                     .inputs = {in}}}});
}

Value embedding(Builder& builder, const std::string& name, const EmbeddingShape& shape,
                std::int64_t rows) {
  using schedule::Access;
  const TensorId table = builder.parameter(name + ".weight", {shape.entries, shape.width});
  const std::int64_t picked = rows * shape.width;
  const auto pass = [&](std::int64_t elements, Access access) {
    return MemoryWork{.bytes = builder.bytes(elements), .flop = Flop(0), .access = access};
  };
  // Clear the table, then read the output's gradient, read and write the rows it belongs to.
  const schedule::KernelsWork scatter{
      {pass(shape.entries * shape.width, Access::Filled), pass(3 * picked, Access::Scattered)}};
  Value out = builder.activation(name + ".out", {rows, shape.width});
  builder.add(
      {.name = name,
       .forward = pass(2 * picked, Access::Gathered),
       .parameters = {table},
       .outputs = {out},
       .backward = {{.suffix = "backward.weight", .work = scatter, .parameters = {table}}}});
  return out;
}

Value pointwise(Builder& builder, const std::string& name, Pointwise layer) {
  const Value out = builder.activation(name + ".out", std::move(layer.out));
  const Traffic work{
      .read_passes = 1, .flop_per_element = layer.flop_per_element, .access = layer.access};
  std::vector<std::optional<TensorId>> saved;
  if (layer.saved == Saved::Output) saved.push_back(out.tensor);
  if (layer.saved == Saved::Input) {
    for (const Value& input : layer.inputs) saved.push_back(input.tensor);
  }
  return builder.add({.name = name,
                      .forward = work,
                      .inputs = layer.inputs,
                      .outputs = {out},
                      .backward = {{.suffix = "backward",
                                    .work = work,
                                    .reads = std::move(saved),
                                    .inputs = layer.inputs}}});
}

Value relu(Builder& builder, const std::string& name, const Value& in) {
  return pointwise(builder, name, {.inputs = {in}, .out = in.shape, .saved = Saved::Output});
}

Value sum(Builder& builder, const std::string& name, std::vector<Value> inputs) {
  const Value out = builder.activation(name + ".out", inputs.front().shape);
  return builder.add(
      {.name = name, .forward = Traffic{}, .inputs = std::move(inputs), .outputs = {out}});
}

Value attention(Builder& builder, const std::string& name, const Attention& layer) {
  constexpr double kBackward = 2.5;
  const std::int64_t width = layer.query.shape.back();
  const std::int64_t elements = builder.tokens() * width;
  const double flop = 4 * static_cast<double>(elements) * static_cast<double>(builder.sequence());
  const auto kernel = [&](bool is_backward) {
    return MemoryWork{.bytes = builder.bytes(4 * elements * (is_backward ? 2 : 1)),
                      .flop = Flop(is_backward ? kBackward * flop : flop),
                      .attention = schedule::Attention{.tokens = builder.sequence(),
                                                       .head_dim = width / layer.heads,
                                                       .backward = is_backward}};
  };
  const std::vector<Value> inputs = {layer.query, layer.key, layer.value};
  const Value out = builder.activation(name + ".out", layer.query.shape);
  return builder.add({.name = name,
                      .forward = kernel(false),
                      .inputs = inputs,
                      .outputs = {out},
                      .backward = {{.suffix = "backward",
                                    .work = kernel(true),
                                    .reads = {layer.query.tensor, layer.key.tensor,
                                              layer.value.tensor, out.tensor},
                                    .inputs = inputs}}});
}

Value image_batch(const Builder& builder, std::int64_t channels, std::int64_t side) {
  return {.tensor = std::nullopt, .shape = {builder.batch(), channels, side, side}};
}

Value conv(Builder& builder, const std::string& name, const Value& in, std::int64_t channels,
           const Kernel& kernel, Bias bias) {
  const std::int64_t in_channels = in.shape[1];
  const std::int64_t height = window_count(in.shape[2], kernel.height, kernel);
  const std::int64_t width = window_count(in.shape[3], kernel.width, kernel);
  std::vector<TensorId> parameters{
      builder.parameter(name + ".weight", {channels, in_channels, kernel.height, kernel.width})};
  if (bias == Bias::Yes) parameters.push_back(builder.parameter(name + ".bias", {channels}));
  return weighted_product(builder, {.name = name,
                                    .in = in,
                                    .parameters = std::move(parameters),
                                    .out = {in.shape[0], channels, height, width},
                                    .work = {.m = in.shape[0] * height * width,
                                             .n = channels,
                                             .k = in_channels * kernel.height * kernel.width}});
}

Value pool(Builder& builder, const std::string& name, const Value& in, const Pool& shape) {
  const Kernel& kernel = shape.kernel;
  const double window = static_cast<double>(kernel.height * kernel.width);
  const double overlap = window / static_cast<double>(kernel.stride * kernel.stride);
  return pointwise(builder, name,
                   {.inputs = {in},
                    .out = {in.shape[0], in.shape[1],
                            window_count(in.shape[2], kernel.height, kernel, shape.rounding),
                            window_count(in.shape[3], kernel.width, kernel, shape.rounding)},
                    // Max reads back where the maximum was.
                    .saved = shape.kind == PoolKind::Max ? Saved::Output : Saved::Nothing,
                    .flop_per_element = overlap});
}

Value global_pool(Builder& builder, const std::string& name, const Value& in) {
  return pointwise(builder, name, {.inputs = {in}, .out = {in.shape[0], in.shape[1]}});
}

Value concat(Builder& builder, const std::string& name, std::vector<Value> inputs) {
  Shape out = inputs.front().shape;
  out[1] = 0;
  for (const Value& input : inputs) out[1] += input.shape[1];
  return pointwise(builder, name,
                   {.inputs = std::move(inputs), .out = std::move(out), .flop_per_element = 0});
}

Value flatten(const Value& in) {
  return {.tensor = in.tensor, .shape = {in.shape[0], numel(in.shape) / in.shape[0]}};
}

}  // namespace dovetail::models::zoo

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
// Subtract the maximum, exponential, sum, divide.
constexpr double kSoftmaxFlop = 5;

// The product of activations with weights, m x k by k x n; parameters[0] is the weight.
struct Weighted {
  std::string name;
  Value in;
  std::vector<TensorId> parameters;
  Shape out;
  GemmWork work;
};
Value weighted_product(Builder& builder, Weighted layer) {
  const GemmWork& y = layer.work;
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
            .work =
                GemmWork{.m = y.n, .n = y.k, .k = y.m, .count = y.count, .operands = y.operands},
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
  return weighted_product(builder, std::move(work));
}

Value norm(Builder& builder, const std::string& name, NormKind kind, const Value& in) {
  const int passes = kind == NormKind::Batch ? 2 : 1;
  const std::int64_t width = kind == NormKind::Batch ? in.shape[1] : in.shape.back();
  const std::vector<TensorId> parameters = {builder.parameter(name + ".weight", {width}),
                                            builder.parameter(name + ".bias", {width})};
  const Value out = builder.activation(name + ".out", in.shape);
  return builder.add(
      {.name = name,
       .forward = Traffic{.read_passes = passes, .flop_per_element = kNormForwardFlop},
       .inputs = {in},
       .parameters = parameters,
       .outputs = {out},
       .backward = {{.suffix = "backward",
                     .work = Traffic{.read_passes = 2, .flop_per_element = kNormBackwardFlop},
                     .reads = {in.tensor, parameters.front()},
                     .parameters = parameters,
                     .inputs = {in}}}});
}

Value embedding(Builder& builder, const std::string& name, const EmbeddingShape& shape,
                std::int64_t rows) {
  const TensorId table = builder.parameter(name + ".weight", {shape.entries, shape.width});
  const std::int64_t picked = rows * shape.width;
  const Bytes lookup = builder.bytes(2 * picked);
  // Clear the table, then read the output's gradient, read and write the rows it belongs to.
  const Bytes scatter = builder.bytes(shape.entries * shape.width + 3 * picked);
  const Value out = builder.activation(name + ".out", {rows, shape.width});
  builder.add({.name = name,
               .forward = MemoryWork{.bytes = lookup, .flop = Flop(0)},
               .parameters = {table},
               .outputs = {out},
               .backward = {
                   {.suffix = "backward.weight",
                    .work = MemoryWork{.bytes = scatter, .flop = Flop(static_cast<double>(picked))},
                    .parameters = {table}}}});
  return out;
}

Value pointwise(Builder& builder, const std::string& name, Pointwise layer) {
  const Value out = builder.activation(name + ".out", std::move(layer.out));
  const Traffic work{.read_passes = 1, .flop_per_element = layer.flop_per_element};
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

Value softmax(Builder& builder, const std::string& name, const Value& in) {
  return pointwise(
      builder, name,
      {.inputs = {in}, .out = in.shape, .saved = Saved::Output, .flop_per_element = kSoftmaxFlop});
}

Value sum(Builder& builder, const std::string& name, std::vector<Value> inputs) {
  const Value out = builder.activation(name + ".out", inputs.front().shape);
  return builder.add(
      {.name = name, .forward = Traffic{}, .inputs = std::move(inputs), .outputs = {out}});
}

Value product(Builder& builder, const std::string& name, const Product& layer) {
  const GemmWork& y = layer.work;
  const Value out = builder.activation(name + ".out", layer.out);
  return builder.add(
      {.name = name,
       .forward = layer.work,
       .inputs = {layer.left, layer.right},
       .outputs = {out},
       .backward = {
           {.suffix = "backward.left",
            .work =
                GemmWork{.m = y.m, .n = y.k, .k = y.n, .count = y.count, .operands = y.operands},
            .reads = {layer.right.tensor},
            .inputs = {layer.left}},
           {.suffix = "backward.right",
            .work =
                GemmWork{.m = y.k, .n = y.n, .k = y.m, .count = y.count, .operands = y.operands},
            .reads = {layer.left.tensor},
            .inputs = {layer.right}}}});
}

Value attention(Builder& builder, const std::string& name, const Attention& layer) {
  const std::int64_t tokens = builder.sequence();
  const std::int64_t head_width = layer.query.shape.back() / layer.heads;
  const std::int64_t count = builder.batch() * layer.heads;
  const Value scores = product(builder, name + ".scores",
                               {.left = layer.query,
                                .right = layer.key,
                                .work = {.m = tokens, .n = tokens, .k = head_width, .count = count},
                                .out = {builder.batch(), layer.heads, tokens, tokens}});
  const Value probabilities = softmax(builder, name + ".softmax", scores);
  return product(builder, name + ".context",
                 {.left = probabilities,
                  .right = layer.value,
                  .work = {.m = tokens, .n = head_width, .k = tokens, .count = count},
                  .out = layer.query.shape});
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

// Layers of the zoo: each puts one forward op on the tape and says how to undo it.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo_layers.h"

#include "base/error.h"

#include <algorithm>
#include <utility>

namespace dovetail::models::zoo {

using schedule::ConvolutionPass;
using schedule::GemmWork;
using schedule::MemoryWork;

namespace {

// About what a norm does to an element: mean, variance, scale and shift; and the chain rule back.
constexpr double kNormForwardFlop = 6;
constexpr double kNormBackwardFlop = 10;

// Elements of image, weight and result: all of the image, or those that a window touches.
struct Moved {
  std::int64_t whole = 0, touched = 0;
  std::int64_t channels = 0;
  bool strided = false;
};

// The product of activations with weights, m x k by k x n; parameters[0] is the weight.
struct Weighted {
  std::string name;
  Value in;
  std::vector<TensorId> parameters;
  Shape out;
  GemmWork work;
  // Of a convolution: elements of the weight and of what forward moves, and of the whole image.
  std::optional<Moved> moved = {};
};

GemmWork of_pass(GemmWork product, const std::optional<Moved>& moved, ConvolutionPass pass) {
  if (!moved) return product;
  const bool is_input = pass == ConvolutionPass::Input;
  product.convolution = schedule::Convolution{.pass = pass,
                                              .moved = is_input ? moved->whole : moved->touched,
                                              .channels = moved->channels,
                                              .strided = moved->strided};
  return product;
}

// One product is no list.
Recipe as_recipe(schedule::KernelsWork work) {
  if (work.kernels.size() > 1) return work;
  return std::get<GemmWork>(work.kernels.front());
}

Value weighted_product(Builder& builder, Weighted layer) {
  const GemmWork& y = layer.work;
  const GemmWork of_weight =
      of_pass({.m = y.n, .n = y.k, .k = y.m, .count = y.count, .operands = y.operands}, layer.moved,
              ConvolutionPass::Weight);
  const GemmWork of_input =
      of_pass({.m = y.m, .n = y.k, .k = y.n, .count = y.count, .operands = y.operands}, layer.moved,
              ConvolutionPass::Input);
  schedule::KernelsWork weight_work{{of_weight}};
  if (layer.parameters.size() > 1)  // the gradient of the bias
    weight_work.kernels.edit().emplace_back(MemoryWork{.bytes = builder.bytes(y.m * y.n),
                                                       .flop = Flop(0),
                                                       .access = schedule::Access::SumColumns});
  schedule::KernelsWork forward{{of_pass(layer.work, layer.moved, ConvolutionPass::Forward)}};
  const auto weights = y.n * y.k;
  if (const auto cast = builder.cast(weights, false))
    forward.kernels.edit().insert(forward.kernels.edit().begin(), *cast);
  if (const auto cast = builder.cast(weights, true)) weight_work.kernels.edit().emplace_back(*cast);
  if (const auto cast = builder.cast(numel(layer.in.shape), false); cast && !layer.in.tensor)
    forward.kernels.edit().insert(forward.kernels.edit().begin(), *cast);
  const Value out = builder.activation(layer.name + ".out", std::move(layer.out));
  const TensorId weight = layer.parameters.front();
  return builder.add({.name = std::move(layer.name),
                      .forward = as_recipe(std::move(forward)),
                      .inputs = {layer.in},
                      .parameters = layer.parameters,
                      .outputs = {out},
                      .backward = {{.suffix = "backward.weight",
                                    .work = as_recipe(std::move(weight_work)),
                                    .reads = {layer.in.tensor},
                                    .parameters = layer.parameters},
                                   {.suffix = "backward.input",
                                    .work = of_input,
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
  const bool is_batch = kind == NormKind::Batch;
  const std::int64_t width = is_batch ? in.shape[1] : in.shape.back();
  const std::vector<TensorId> parameters = {builder.parameter(name + ".weight", {width}),
                                            builder.parameter(name + ".bias", {width})};
  const Value out = builder.activation(name + ".out", in.shape);
  using schedule::Access;
  return builder.add({.name = name,
                      .forward = Traffic{.flop_per_element = kNormForwardFlop,
                                         .access = is_batch ? Access::BatchNorm : Access::LayerNorm,
                                         .columns = width},
                      .inputs = {in},
                      .parameters = parameters,
                      .outputs = {out},
                      .backward = {{.suffix = "backward",
                                    .work = Traffic{.flop_per_element = kNormBackwardFlop,
                                                    .access = is_batch ? Access::BatchNormBackward
                                                                       : Access::LayerNormBackward,
                                                    .columns = width},
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
  return pointwise(
      builder, name,
      {.inputs = {in}, .out = in.shape, .saved = Saved::Output, .access = schedule::Access::Plain});
}

Value sum(Builder& builder, const std::string& name, std::vector<Value> inputs) {
  const Value out = builder.activation(name + ".out", inputs.front().shape);
  return builder.add({.name = name,
                      .forward = Traffic{.access = schedule::Access::Plain},
                      .inputs = std::move(inputs),
                      .outputs = {out}});
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
                                                       .backward = is_backward,
                                                       .causal = false}};
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
  const std::int64_t window = kernel.height * kernel.width;
  const std::int64_t pixels = in.shape[0] * height * width;
  const std::int64_t others = channels * (in_channels * window + pixels);
  const Moved moved{.whole = numel(in.shape) + others,
                    .touched = std::min(numel(in.shape), in_channels * window * pixels) + others,
                    .channels = std::min(in_channels, channels),
                    .strided = kernel.stride > 1};
  return weighted_product(builder, {.name = name,
                                    .in = in,
                                    .parameters = std::move(parameters),
                                    .out = {in.shape[0], channels, height, width},
                                    .work = {.m = pixels, .n = channels, .k = in_channels * window},
                                    .moved = moved});
}

namespace {

// Forward keeps where the largest ones were, eight bytes each, and backward reads it.
Value max_pool(Builder& builder, const std::string& name, const Value& in, Shape shape) {
  constexpr std::int64_t kIndexBytes = 8;
  const std::int64_t pooled = numel(shape);
  const auto kernel = [&](schedule::Access access) {
    return MemoryWork{
        .bytes = builder.bytes(numel(in.shape) + pooled) + Bytes(kIndexBytes * pooled),
        .flop = Flop(0),
        .access = access};
  };
  const Value out = builder.activation(name + ".out", std::move(shape));
  return builder.add({.name = name,
                      .forward = kernel(schedule::Access::MaxPool),
                      .inputs = {in},
                      .outputs = {out},
                      .backward = {{.suffix = "backward",
                                    .work = kernel(schedule::Access::MaxPoolBackward),
                                    .reads = {out.tensor},
                                    .inputs = {in}}}});
}

}  // namespace

Value pool(Builder& builder, const std::string& name, const Value& in, const Pool& shape) {
  const Kernel& kernel = shape.kernel;
  const Shape pooled = {in.shape[0], in.shape[1],
                        window_count(in.shape[2], kernel.height, kernel, shape.rounding),
                        window_count(in.shape[3], kernel.width, kernel, shape.rounding)};
  if (shape.kind == PoolKind::Max) return max_pool(builder, name, in, pooled);
  const double window = static_cast<double>(kernel.height * kernel.width);
  const double overlap = window / static_cast<double>(kernel.stride * kernel.stride);
  return pointwise(builder, name, {.inputs = {in}, .out = pooled, .flop_per_element = overlap});
}

Value global_pool(Builder& builder, const std::string& name, const Value& in) {
  return pointwise(builder, name, {.inputs = {in}, .out = {in.shape[0], in.shape[1]}});
}

Value concat(Builder& builder, const std::string& name, std::vector<Value> inputs) {
  Shape out = inputs.front().shape;
  out[1] = 0;
  for (const Value& input : inputs) out[1] += input.shape[1];
  return pointwise(builder, name,
                   {.inputs = std::move(inputs),
                    .out = std::move(out),
                    .flop_per_element = 0,
                    .access = schedule::Access::Plain});
}

Value flatten(const Value& in) {
  return {.tensor = in.tensor, .shape = {in.shape[0], numel(in.shape) / in.shape[0]}};
}

}  // namespace dovetail::models::zoo

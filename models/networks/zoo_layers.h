// The layers that the models of the zoo are made of, with what each costs forward and backward.
//
// Names follow PyTorch: a layer `fc` owns `fc.weight` and `fc.bias` and writes `fc.out`.
//
//   matrix product  m x k by k x n    forward m n k; backward.weight n k m, reads the input, writes
//   (linear, conv)                    bias and weight gradients; then backward.input m k n
//   batch norm      forward reads its input twice (statistics, then scale) and writes once;
//                   backward reads input and output gradient twice, writes weight and input
//                   gradients
//   pointwise       every operand once; backward reads what it saved (nothing, input or output)
//   embedding       forward reads and writes the looked-up rows; backward clears the table's
//                   gradient, then adds the rows
//   attention       forward 4 T S d FLOP of T tokens in samples of S and of width d, 2.5 times that backward
//                   (scores are computed again: Dao, arXiv 2205.14135); each operand once, twice backward
//   max pool        forward writes what is largest and where it was, eight bytes each; backward reads where
// The gradient of a bias is the column sum of the output's, a kernel of its own.
//
// A convolution is the GEMM that it implies, with what it really moves. Left out: layout changes (images
// lie channels last), cuDNN's choice among convolution algorithms.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "models/networks/zoo_builder.h"
#include "schedule/program.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::models::zoo {

// A picture of ImageNet, the number of its classes.
inline constexpr std::int64_t kImageNetSide = 224;
inline constexpr std::int64_t kImageNetClasses = 1000;

enum class Bias { No, Yes };

// ---- layers with weights ---------------------------------------------------------------------

struct LinearShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
  Bias bias = Bias::Yes;
};
// x W^T + b over the rows of `in`, whose last extent is shape.in.
Value linear(Builder& builder, const std::string& name, const LinearShape& shape, const Value& in);

enum class NormKind { Batch, Layer };
Value norm(Builder& builder, const std::string& name, NormKind kind, const Value& in);

struct EmbeddingShape {
  std::int64_t entries = 0;
  std::int64_t width = 0;
};
// Looks up `rows` rows of a table of entries x width.
Value embedding(Builder& builder, const std::string& name, const EmbeddingShape& shape,
                std::int64_t rows);

// ---- layers without weights ------------------------------------------------------------------

enum class Saved { Nothing, Input, Output };  // what backward reads beside the output's gradient
struct Pointwise {
  std::vector<Value> inputs;
  Shape out;
  Saved saved = Saved::Nothing;
  double flop_per_element = 1;
  schedule::Access access = schedule::Access::Any;
};
Value pointwise(Builder& builder, const std::string& name, Pointwise layer);
Value relu(Builder& builder, const std::string& name, const Value& in);
// a + b + ...: the gradient passes through untouched. See zoo_builder.h for what that requires.
Value sum(Builder& builder, const std::string& name, std::vector<Value> inputs);

// ---- text, shape tokens x width --------------------------------------------------------------

// Scaled dot-product attention over whole samples in one fused kernel each way, which keeps no scores.
struct Attention {
  Value query;
  Value key;
  Value value;
  std::int64_t heads = 1;
};
Value attention(Builder& builder, const std::string& name, const Attention& layer);

// ---- images, shape N x C x H x W -------------------------------------------------------------

struct Kernel {
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t stride = 1;
  enum class Pad { Same, Valid } pad = Pad::Same;  // Same pads by half the kernel, rounded down
  friend bool operator==(const Kernel&, const Kernel&) = default;
};
Value image_batch(const Builder& builder, std::int64_t channels, std::int64_t side);
Value conv(Builder& builder, const std::string& name, const Value& in, std::int64_t channels,
           const Kernel& kernel, Bias bias = Bias::No);

enum class PoolKind { Max, Average };
enum class Rounding { Down, Up };  // of the output's extent
struct Pool {
  PoolKind kind = PoolKind::Max;
  Kernel kernel;
  Rounding rounding = Rounding::Down;
};
Value pool(Builder& builder, const std::string& name, const Value& in, const Pool& shape);
// Mean over the pixels: N x C.
Value global_pool(Builder& builder, const std::string& name, const Value& in);
// All channels one after another. Backward splits the gradient.
Value concat(Builder& builder, const std::string& name, std::vector<Value> inputs);
// A view N x (C H W).
Value flatten(const Value& in);

}  // namespace dovetail::models::zoo

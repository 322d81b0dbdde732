// A Program: what one training step computes, and which gradients owe a reduction. Nothing about
// time or place.
//
// It has no streams, no buckets and no waits; those are decisions of a Schedule (schedule.h). Ops
// stand in program order, which is one valid serial execution: an op reads only what earlier ops
// wrote, or what exists before the step (parameters, optimizer state, the data batch). Every rank
// of the job runs the same Program on its own data.
//
//   program mlp  world 2
//     forward    fc1.forward          gemm 64x256x784  reads fc1.weight       writes fc1.out
//     backward   fc1.backward.weight  gemm 784x256x64  reads fc1.out          writes fc1.weight.grad
//     optimizer  fc1.weight.update    memory 2.3 MiB   reads fc1.weight.grad  writes fc1.weight
//   owes fc1.weight.grad: average over dp
//
// Loaders: models/workload.h. Text: print.h. JSON: program_json.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dovetail::schedule {

enum class DType { F32, F16, BF16, F64 };
enum class TensorKind { Parameter, Gradient, Activation, OptimizerState };
enum class Phase { Forward, Backward, Optimizer };
enum class ReduceOp { Sum, Average };  // Average divides the sum by the group's size

Bytes element_size(DType dtype);
std::string_view to_string(DType dtype);
std::string_view to_string(TensorKind kind);
std::string_view to_string(Phase phase);
std::string_view to_string(ReduceOp op);

struct Tensor {
  TensorId id;
  std::string name;
  TensorKind kind = TensorKind::Activation;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;  // empty: a scalar

  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] Bytes bytes() const;

  friend bool operator==(const Tensor&, const Tensor&) = default;
};

// `count` products of an m x k with a k x n matrix. A convolution is the GEMM it implies (m =
// output pixels, k = input channels x window).
struct GemmWork {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t count = 1;
  friend bool operator==(const GemmWork&, const GemmWork&) = default;
};

// Memory-bound work that moves `bytes` in all, reads plus writes, with `flop` operations on the
// way.
struct MemoryWork {
  Bytes bytes;
  Flop flop;
  friend bool operator==(const MemoryWork&, const MemoryWork&) = default;
};

// Work known only by how long it took when somebody measured it. One entry: the same on every rank;
// otherwise one per rank.
struct TimedWork {
  std::vector<Duration> by_rank;
  friend bool operator==(const TimedWork&, const TimedWork&) = default;
};

using Work = std::variant<GemmWork, MemoryWork, TimedWork>;

struct Op {
  OpId id;
  std::string name;
  Phase phase = Phase::Forward;
  DType dtype = DType::F32;  // of the work's operands
  Work work;
  std::vector<TensorId> reads;
  std::vector<TensorId> writes;

  // 2·m·n·k per GEMM; unknown (0) for timed work.
  [[nodiscard]] Flop flop() const;
  // Least traffic to memory: every operand once. 0 for timed work.
  [[nodiscard]] Bytes bytes() const;

  friend bool operator==(const Op&, const Op&) = default;
};

struct ProcessGroup {
  GroupId id;
  std::string name;         // "dp"
  std::vector<Rank> ranks;  // sorted

  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(ranks.size()); }
  friend bool operator==(const ProcessGroup&, const ProcessGroup&) = default;
};

// A debt of the Program: this gradient must be combined over this group once per step, after its
// last write.
struct Reduction {
  TensorId gradient;
  GroupId group;
  ReduceOp op = ReduceOp::Average;
  friend bool operator==(const Reduction&, const Reduction&) = default;
};

struct Program {
  std::string name;
  std::int64_t world_size = 1;
  std::vector<Tensor> tensors;
  std::vector<Op> ops;  // program order
  std::vector<ProcessGroup> groups;
  std::vector<Reduction> reductions;  // in gradient-ready order, i.e. of the last writes

  // By id. REQUIRES: the id exists.
  [[nodiscard]] const Tensor& tensor(TensorId id) const;
  [[nodiscard]] const Op& op(OpId id) const;
  [[nodiscard]] const ProcessGroup& group(GroupId id) const;

  friend bool operator==(const Program&, const Program&) = default;
};

// Everything that makes a Program meaningless, one line each: duplicate or unknown ids and names, a
// tensor read before any op wrote it (or a cycle, which is named), a gradient owed but never
// written, a group without ranks or with ranks outside the world, an op with neither reads nor
// writes of an unknown size, negative sizes. Empty: the Program is sound.
std::vector<std::string> problems(const Program& program);

// A gradient as policies see it: when its producer ends in program order, and how large it is.
struct OwedGradient {
  TensorId tensor;
  GroupId group;
  ReduceOp op = ReduceOp::Average;
  DType dtype = DType::F32;
  Bytes bytes;
  std::int64_t numel = 0;
  OpId producer;                   // its last writer before the optimizer
  std::size_t producer_index = 0;  // position of that op in program.ops
};

// The owed reductions in gradient-ready order (by producer position, then as listed in
// program.reductions).
std::vector<OwedGradient> owed_gradients(const Program& program);

}  // namespace dovetail::schedule

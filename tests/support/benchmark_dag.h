// The benchmark step: one data-parallel training step as a plain list of ops, and what every exact
// simulator must say about it.
//
// N compute ops: N/2 layers forward, then backward; one gradient a layer; greedy buckets of `cap`
// bytes in backward order; one all-reduce a bucket (20 us + bytes / 100 GB/s) after all its
// gradients; one optimizer op after the last. Compute ops follow each other on one stream,
// all-reduces on another, both in order. All durations are whole microseconds and all sizes
// multiples of 100 kB, so every exact simulator gives the same integer makespan.
//
// With more than one rank each compute and optimizer op of each rank takes -4 .. +4 us more, by a
// hash of rank and op; a collective is one op, shared by all ranks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dovetail::support {

struct BenchmarkOp {
  // The letters of the text form.
  enum class Kind : char { Forward = 'F', Backward = 'B', Collective = 'C', Optimizer = 'O' };

  Kind kind = Kind::Forward;
  std::chrono::microseconds duration{};  // of a collective: once its last rank is ready
  Bytes bytes;                           // of the gradient or of the bucket
  std::vector<std::int32_t> after;       // earlier ops on the other stream, as positions in ops

  [[nodiscard]] bool is_collective() const { return kind == Kind::Collective; }
};

struct BenchmarkDag {
  Bytes cap;
  std::vector<BenchmarkOp> ops;  // program order
};

struct BenchmarkShape {
  std::int32_t compute_ops = 100;
  Bytes cap{25'000'000};
  std::uint32_t seed = 1;
};

// The same DAG for the same shape, on every machine with a faithful libm.
BenchmarkDag make_benchmark_dag(const BenchmarkShape& shape);

// A header of two lines, then one op a line:
//   id kind stream duration_us bytes count id..      ids of the ops in `after`
std::string to_text(const BenchmarkDag& dag);

// The duration of one op on one rank of a job. REQUIRES: 0 <= rank < ranks.
std::chrono::microseconds duration_on_rank(const BenchmarkDag& dag, std::size_t op,
                                           std::int32_t rank, std::int32_t ranks);

// Makespans for cap 25 MB and seed 1 that independent simulators agreed on: three event loops and
// two recurrences of ours, SimGrid in four modes, and for one rank also ASTRA-sim and dPRO.
struct Conformance {
  std::int32_t compute_ops = 0;
  std::int32_t ranks = 0;
  std::chrono::microseconds makespan{};
};
std::span<const Conformance> conformance_makespans();
std::optional<std::chrono::microseconds> conformance_makespan(std::int32_t compute_ops,
                                                              std::int32_t ranks);

}  // namespace dovetail::support

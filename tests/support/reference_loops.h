// How fast one step can be simulated at all: four minimal loops over the benchmark step.
//
// They know nothing of schedules, traces or units; they only find the makespan. Our simulator is
// timed beside them, and its cost is given as a ratio, which machines and their load change little.
//
//   play_binary_heap     event loop, std::priority_queue, dependency counts: the reference, 1.0
//   play_four_ary_heap   the same with a 4-ary heap whose top is replaced in place
//   play_program_order   one pass over ops in program order, no heap: exact because both streams
//                        are in order
//   play_packed          the same, specialised for this step: durations [op][rank], buckets as
//                        ranges, one vector operation for all ranks
//
// CPU time per rank-op (one op of one rank), N = 10,000, on one core of a Zen 4 server:
//   ranks   binary heap   4-ary heap   program order   packed
//       1           9.1          7.0             3.1     0.16 ns
//       8            19           14             2.1     0.07
//      64            37           32             2.0     0.04
//
// Ranks advance together, so the graph numbers them side by side: op by op, and the ranks of one op
// next to each other. Rank by rank costs three times as much.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/support/benchmark_dag.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::bench {

// Lists of node ids, one list a node, laid end to end.
struct NodeLists {
  std::vector<std::int32_t> first;  // where the list of each node begins; one more for the end
  std::vector<std::int32_t> nodes;

  [[nodiscard]] std::span<const std::int32_t> operator[](std::size_t node) const {
    const auto begin = static_cast<std::size_t>(first[node]);
    return {nodes.data() + begin, static_cast<std::size_t>(first[node + 1]) - begin};
  }
};

// The step of all ranks: a node for each compute op and rank, and one for each collective, numbered
// in program order. Edges are dependencies and stream order alike.
struct ExpandedGraph {
  std::vector<std::int32_t> duration_us;
  NodeLists predecessors;
  NodeLists successors;
  std::int64_t rank_ops = 0;  // ops of the step times ranks: what a speed is counted in

  [[nodiscard]] std::size_t size() const { return duration_us.size(); }
};
ExpandedGraph expand(const support::BenchmarkDag& dag, std::int32_t ranks);

// The step as play_packed wants it.
struct PackedStep {
  std::int32_t ranks = 1;
  std::size_t lanes = 1;                  // 1, or ranks rounded up to a multiple of 8
  std::vector<std::int32_t> duration_us;  // [compute op][lane], unused lanes 0; the optimizer last
  std::vector<std::int32_t> compute_end;  // of each bucket: compute ops before its collective
  std::vector<std::int32_t> collective_us;
};
// REQUIRES: ranks is 1, at most 8, or from 57 to 64: the lane counts that play_packed has.
PackedStep pack(const support::BenchmarkDag& dag, std::int32_t ranks);

// Memory that the loops reuse, so that they are not timed allocating it.
struct Event {
  std::int64_t time_us;
  std::int32_t node;
};
struct Scratch {
  std::vector<std::int32_t> waiting_for;  // predecessors that have not ended
  std::vector<Event> heap;
  std::vector<std::int64_t> end_us;
};

// Each returns the makespan: when the last node ends.
std::chrono::microseconds play_binary_heap(const ExpandedGraph& graph, Scratch& scratch);
std::chrono::microseconds play_four_ary_heap(const ExpandedGraph& graph, Scratch& scratch);
std::chrono::microseconds play_program_order(const ExpandedGraph& graph, Scratch& scratch);
std::chrono::microseconds play_packed(const PackedStep& step);

}  // namespace dovetail::bench

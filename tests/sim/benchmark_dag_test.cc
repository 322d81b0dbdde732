// Tests of the benchmark step: the very inputs of the published figures, and their makespans by
// four independent loops.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/benchmark_dag.h"

#include "tests/support/python_random.h"
#include "tests/support/reference_loops.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace dovetail::support {
namespace {

using std::chrono::microseconds;

TEST(PythonRandomTest, DrawsTheNumbersOfCPython) {
  // python3.11: r = random.Random(1); r.random(), r.random(), r.gauss(0, 1), r.gauss(3, 0.1)
  PythonRandom random(1);
  EXPECT_EQ(random.random(), 0.13436424411240122);
  EXPECT_EQ(random.random(), 0.8474337369372327);
  EXPECT_EQ(random.gauss(0, 1), 0.06633580893826191);
  EXPECT_EQ(random.gauss(3, 0.1), 2.923545634902837);  // the second of the pair
}

TEST(PythonRandomTest, GoesOnAfterItsStateIsUsedUp) {
  // python3.11: r = random.Random(4294967295); [r.random() for _ in range(1000)][-1]
  PythonRandom random(4'294'967'295U);
  for (int i = 0; i < 999; ++i) random.random();
  EXPECT_EQ(random.random(), 0.3214643568909129);
}

TEST(PythonRandomTest, RoundsHalvesToEven) {
  EXPECT_EQ(round_half_even(2.5), 2);
  EXPECT_EQ(round_half_even(3.5), 4);
  EXPECT_EQ(round_half_even(2.500001), 3);
}

// FNV-1a, 64 bits.
std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14'695'981'039'346'656'037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1'099'511'628'211U;
  return hash;
}

TEST(BenchmarkDagTest, IsTheInputOfThePublishedFigures) {
  // The hashes are those of the files that the Python generator wrote.
  EXPECT_EQ(hash_of(to_text(make_benchmark_dag({.compute_ops = 100}))), 7975311029449161952U);
  EXPECT_EQ(hash_of(to_text(make_benchmark_dag({.compute_ops = 1000}))), 3565937400922066482U);
}

TEST(BenchmarkDagTest, PrintsOneOpALine) {
  // Two layers, cap 1 byte: each gradient is a bucket. A collective takes 20 us and 1 us per 100
  // kB.
  const BenchmarkDag dag = make_benchmark_dag({.compute_ops = 4, .cap = Bytes(1)});
  EXPECT_EQ(to_text(dag), R"(# dovetail perf dag v1
# compute=4 buckets=2 ops=7 cap=1
0 F 0 34 0 0
1 F 0 18 0 0
2 B 0 36 1100000 0
3 C 1 31 1100000 1 2
4 B 0 68 9800000 0
5 C 1 118 9800000 1 4
6 O 0 100 0 2 3 5
)");
}

TEST(BenchmarkDagTest, GivesEachRankItsOwnDurationsWithinFourMicroseconds) {
  const BenchmarkDag dag = make_benchmark_dag({.compute_ops = 100});
  bool differs = false;
  for (std::size_t op = 0; op < dag.ops.size(); ++op) {
    const microseconds plain = dag.ops[op].duration;
    EXPECT_EQ(duration_on_rank(dag, op, 0, 1), plain);
    for (std::int32_t rank = 0; rank < 8; ++rank) {
      const microseconds jittered = duration_on_rank(dag, op, rank, 8);
      if (dag.ops[op].is_collective()) {
        EXPECT_EQ(jittered, plain);
      }
      EXPECT_LE(std::chrono::abs(jittered - plain), microseconds(4));
      differs = differs || jittered != plain;
    }
  }
  EXPECT_TRUE(differs);
}

TEST(ReferenceLoopsTest, ExpandRanksSideBySideAroundOneCollective) {
  // Two layers, two ranks: F0 F0' F1 F1' B1 B1' C B0 B0' C' O O', nodes 0 .. 11.
  const BenchmarkDag dag = make_benchmark_dag({.compute_ops = 4, .cap = Bytes(1)});
  const bench::ExpandedGraph graph = bench::expand(dag, 2);
  EXPECT_EQ(graph.size(), 12U);
  EXPECT_EQ(graph.rank_ops, 14);  // seven ops on two ranks
  const auto list = [](std::span<const std::int32_t> nodes) {
    return std::vector<std::int32_t>(nodes.begin(), nodes.end());
  };
  EXPECT_EQ(list(graph.predecessors[6]), (std::vector<std::int32_t>{4, 5}));
  EXPECT_EQ(list(graph.predecessors[9]), (std::vector<std::int32_t>{6, 7, 8}));
  EXPECT_EQ(list(graph.predecessors[11]), (std::vector<std::int32_t>{8, 6, 9}));
  EXPECT_EQ(list(graph.successors[6]), (std::vector<std::int32_t>{9, 10, 11}));
}

TEST(ReferenceLoopsTest, AllGiveThePublishedMakespans) {
  // The largest case takes seconds to build; the benchmark checks that one.
  bench::Scratch scratch;
  for (const Conformance& known : conformance_makespans()) {
    if (known.compute_ops > 10'000) continue;
    SCOPED_TRACE(std::to_string(known.compute_ops) + " ops, " + std::to_string(known.ranks));
    const BenchmarkDag dag = make_benchmark_dag({.compute_ops = known.compute_ops});
    const bench::ExpandedGraph graph = bench::expand(dag, known.ranks);
    EXPECT_EQ(bench::play_binary_heap(graph, scratch), known.makespan);
    EXPECT_EQ(bench::play_four_ary_heap(graph, scratch), known.makespan);
    EXPECT_EQ(bench::play_program_order(graph, scratch), known.makespan);
    EXPECT_EQ(bench::play_packed(bench::pack(dag, known.ranks)), known.makespan);
  }
}

}  // namespace
}  // namespace dovetail::support

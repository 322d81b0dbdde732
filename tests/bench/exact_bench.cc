// Times the exact optimum of search/exact.h.
//
//   pieces1/balanced/10000
//
// Read: 10000 gradients and a curve of one piece, on a link that keeps up with backward (in "late" problems
// gradients are eight times as large, so the link is the bottleneck); CPU time a call. Every answer is
// checked once: it must be the finish of its own grouping and not beat the bound.
//
// Target, CPU time: 16 pieces 10,000 in 5 ms.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/exact.h"
#include "tests/support/benchmark_dag.h"
#include "tests/support/partition_judges.h"

#include <benchmark/benchmark.h>

#include <cmath>
#include <string>
#include <vector>

namespace dovetail::bench {
namespace {

using search::LinearPiece;
using search::Partition;
using search::PartitionProblem;

// 20 us and 100 GB/s, as the collectives of the benchmark step.
constexpr double kBaseNs = 20'000;
constexpr double kNsPerByte = 0.01;

// The gradients of the benchmark step with this many layers, their sizes scaled.
PartitionProblem gradients(std::int32_t layers, std::int64_t scale) {
  using Kind = support::BenchmarkOp::Kind;
  PartitionProblem problem;
  Duration now{};
  for (const auto& op : support::make_benchmark_dag({.compute_ops = 2 * layers}).ops) {
    if (op.kind != Kind::Forward && op.kind != Kind::Backward) continue;
    now += op.duration;
    if (op.kind == Kind::Forward) continue;
    problem.ready.push_back(now);
    problem.size.push_back(op.bytes * scale);
  }
  return problem;
}

// A continuous curve: the knots rise as powers up to all bytes together, and bytes get cheaper from
// three times to little more than that rate.
std::vector<LinearPiece> curve(const PartitionProblem& problem, int count) {
  double total = 0;
  for (const Bytes size : problem.size) total += static_cast<double>(size.count());
  std::vector<LinearPiece> pieces;
  double reached = kBaseNs;
  double from = 0;
  for (int k = 0; k < count; ++k) {
    const double slope = kNsPerByte * (1 + 2.0 / (1 + k));
    pieces.push_back({Bytes(std::llround(from)), reached - slope * from, slope});
    const double next = std::round(std::pow(total, static_cast<double>(k + 1) / count));
    reached += slope * (next - from);
    from = next;
  }
  return pieces;
}

void time_exact(benchmark::State& state, const PartitionProblem& problem,
                const std::vector<LinearPiece>& cost) {
  const Partition found = exact_partition(problem, cost);
  const bool sound = testing::ends_of(problem, found.ends, cost).back() == found.finish &&
                     testing::suffix_bound(problem, cost) <= found.finish;
  if (!sound) {
    state.SkipWithError("the finish is not that of the grouping, or beats the bound");
    return;
  }
  for (auto _ : state) benchmark::DoNotOptimize(exact_partition(problem, cost));
  state.counters["buckets"] = static_cast<double>(found.ends.size());
  state.counters["finish_us"] = to_us(found.finish);
}

// A problem is drawn when its benchmark runs.
void register_all() {
  for (const bool late : {false, true}) {
    const std::int64_t scale = late ? 8 : 1;
    const std::string regime = late ? "late/" : "balanced/";
    for (const int pieces : {1, 16}) {
      for (const std::int32_t n : {161, 3'000, 10'000, 100'000}) {
        const std::string name =
            "pieces" + std::to_string(pieces) + "/" + regime + std::to_string(n);
        const auto run = [n, scale, pieces](benchmark::State& state) {
          const PartitionProblem problem = gradients(n, scale);
          time_exact(state, problem, curve(problem, pieces));
        };
        benchmark::RegisterBenchmark(name.c_str(), run)->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

}  // namespace
}  // namespace dovetail::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  dovetail::bench::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

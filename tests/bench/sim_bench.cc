// Times our simulator beside the minimal loops of reference_loops.h on the benchmark step, in one
// run.
//
//   sim_bench --benchmark_filter='/10000/64$' --benchmark_enable_random_interleaving=true
//
//   ours_program_order  play_in_order, start and end of every node recorded   against program_order
//   ours_contended      play_with_rates with contention switched off          against binary_heap
//
// Read binary_heap/10000/64: the loop, the compute ops, the ranks; ns_per_rank_op is CPU time per
// op of one rank. A loop whose makespan is not the published one is an error, not a figure. On a
// machine that others use, interleave and take ratios (scripts/campaigns/bench.sh).
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/compile.h"
#include "sim/player.h"
#include "tests/support/benchmark_dag.h"
#include "tests/support/dag_program.h"
#include "tests/support/reference_loops.h"

#include <benchmark/benchmark.h>

#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::bench {
namespace {

using std::chrono::microseconds;

// One step in the form of every loop; built when first needed, as the largest takes a second.
class Case {
 public:
  Case(std::int32_t compute_ops, std::int32_t ranks) : compute_ops_(compute_ops), ranks_(ranks) {}

  const ExpandedGraph& graph() {
    if (!graph_) graph_ = expand(dag(), ranks_);
    return *graph_;
  }
  const PackedStep& packed() {
    if (!packed_) packed_ = pack(dag(), ranks_);
    return *packed_;
  }
  Scratch& scratch() { return scratch_; }

  // Our own form of the step.
  const step::StepGraph& our_graph() {
    if (!our_graph_) {
      const support::BenchmarkDag step = dag();
      const support::DagPlan plan = support::plan_of(step, ranks_);
      our_graph_ = sim::compile(plan.program, plan.costs, 1).graph;
    }
    return *our_graph_;
  }
  sim::Workspace& workspace() { return workspace_; }

  [[nodiscard]] std::string name() const {
    return std::to_string(compute_ops_) + '/' + std::to_string(ranks_);
  }
  [[nodiscard]] std::optional<microseconds> expected() const {
    return support::conformance_makespan(compute_ops_, ranks_);
  }

 private:
  [[nodiscard]] support::BenchmarkDag dag() const {
    return support::make_benchmark_dag({.compute_ops = compute_ops_});
  }

  std::int32_t compute_ops_;
  std::int32_t ranks_;
  std::optional<ExpandedGraph> graph_;
  std::optional<PackedStep> packed_;
  std::optional<step::StepGraph> our_graph_;
  sim::Workspace workspace_;
  Scratch scratch_;
};

using Loop = std::function<microseconds(Case&)>;

void time_loop(benchmark::State& state, Case& step, const Loop& loop) {
  const microseconds makespan = loop(step);
  if (makespan != step.expected()) {
    const std::string message = "makespan " + std::to_string(makespan.count()) + " us is wrong";
    state.SkipWithError(message.c_str());
    return;
  }
  std::int64_t played = 0;
  const std::clock_t begin = std::clock();  // of the processor, as the figures we compare with
  for (auto _ : state) {
    benchmark::DoNotOptimize(loop(step));
    played += step.graph().rank_ops;
  }
  const double cpu_ns = 1e9 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  state.counters["makespan_us"] = static_cast<double>(makespan.count());
  state.counters["ns_per_rank_op"] = cpu_ns / static_cast<double>(played);
}

struct NamedLoop {
  std::string name;
  Loop loop;
};

// Whole microseconds, or -1, which is no makespan.
microseconds whole_us(std::int64_t ns) { return microseconds(ns % 1000 == 0 ? ns / 1000 : -1); }

std::vector<NamedLoop> loops() {
  return {
      {"binary_heap", [](Case& step) { return play_binary_heap(step.graph(), step.scratch()); }},
      {"four_ary_heap",
       [](Case& step) { return play_four_ary_heap(step.graph(), step.scratch()); }},
      {"program_order",
       [](Case& step) { return play_program_order(step.graph(), step.scratch()); }},
      {"ours_program_order",
       [](Case& step) { return whole_us(sim::play_in_order(step.our_graph(), step.workspace())); }},
      {"ours_contended",
       [](Case& step) {
         return whole_us(sim::play_with_rates(step.our_graph(), step.workspace()));
       }},
      {"packed", [](Case& step) { return play_packed(step.packed()); }},
  };
}

void register_all() {
  for (const std::int32_t compute_ops : {100, 1'000, 10'000, 100'000}) {
    for (const std::int32_t ranks : {1, 8, 64}) {
      // Shared by the loops of one case, and kept while Google Benchmark keeps them.
      const auto step = std::make_shared<Case>(compute_ops, ranks);
      for (const NamedLoop& named : loops()) {
        const std::string name = named.name + '/' + step->name();
        const auto run = [step, loop = named.loop](benchmark::State& state) {
          time_loop(state, *step, loop);
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

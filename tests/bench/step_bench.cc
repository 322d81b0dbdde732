// Candidates a second, for each kind of plan: one border between two buckets moved, the steady step found.
//
//   plain/300          nothing contends
//   contended/300      compute and collectives slow each other down as on the shipped cluster a100x8
//   copies/300         ... with packs and unpacks
//   streams/300        ... on two streams in turn, which share the links
//   processors/300     a machine of processors: collectives take processor time, waits wake threads
//   host_bound/300     a host that limits: steps are written until they repeat
//   unlike/300         two unlike ranks, likewise
//   accumulated/300    two micro-steps, merged before the collectives
//   every/300          two micro-steps, each reduced
//   own/300            with a collective of the Program's own behind each layer
//   zero/300           sharded updates, whole gradients, gathered in the next forward
//   sharded/300        ... in buckets of one size, which cut gradients, gathered after the update
//   fsdp/300           ... gathered before each use
//   pipeline/300       four stages with four micro-batches, buckets within each stage
//   async/300          with collectives of the Program's own on streams of their own
//
// The step: 300 (3,000) layers of the benchmark step's durations and sizes with an update per gradient, in buckets
// of about 8 gradients. One item is one candidate (search/step_model.h).
//
// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "models/clusters/cluster.h"
#include "schedule/lower/pipeline/assign.h"
#include "schedule/policies/policies.h"
#include "search/step_model.h"
#include "tests/support/benchmark_dag.h"
#include "tests/support/placements.h"
#include "tests/support/programs.h"

namespace dovetail::bench {
namespace {

using schedule::BucketMode;
using schedule::WaitPoint;
using search::Choices;
using search::StepModel;

struct Step {
  schedule::Program program;
  models::Costs costs;
};

// On the shipped cluster a100x8, or on as many of these as there are stages.
Step step_of(std::int32_t layers, const schedule::Policy& policy = {}) {
  std::vector<testing::Layer> list;
  const auto dag = support::make_benchmark_dag({.compute_ops = 2 * layers}).ops;
  for (std::size_t i = 0; i < static_cast<std::size_t>(layers); ++i) {
    // Forward and backward of one layer stand mirrored.
    list.push_back({dag[i].duration, Duration{}, Bytes(0), std::chrono::microseconds(3)});
  }
  std::size_t layer = list.size();
  for (const auto& op : dag) {
    if (op.kind != support::BenchmarkOp::Kind::Backward) continue;
    list[--layer].backward = op.duration;
    list[layer].bytes = op.bytes;
  }
  const models::Cluster cluster =
      models::load_cluster("a100x8", std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters");
  const schedule::StageSplit split = schedule::split_of(policy);
  Step step{.program = testing::chain(list, cluster.ranks), .costs = {}};
  for (schedule::Op& op : step.program.ops) {
    std::get<schedule::TimedWork>(op.work).by_rank.resize(1);
  }
  if (split.stages > 1) {
    schedule::Rewrite stages = schedule::assign_stages(std::move(step.program), split);
    step.program = std::get<schedule::Rewritten>(std::move(stages)).program;
  }
  step.costs = models::costs_for(cluster, step.program);
  return step;
}

void calm(Step& step) { step.costs.contention_by_class.clear(); }

void on_processors(Step& step) {
  step.costs.host = {.kind = models::HostModel::Kind::Inline,
                     .collective = std::chrono::microseconds(2),
                     .event = std::chrono::microseconds(1),
                     .copy = std::chrono::microseconds(1)};
  step.costs.contention_by_class = {{.compute_slowdown = 1.15,
                                     .collective_slowdown = 1.2,
                                     .collective_cpu = std::chrono::microseconds(30)}};
}

void slow_host(Step& step) { step.costs.host.run_op = std::chrono::microseconds(150); }

void unlike(Step& step) {
  calm(step);
  step.costs.distinct_ranks = 2;
  for (schedule::Op& op : step.program.ops) {
    auto& times = std::get<schedule::TimedWork>(op.work).by_rank;
    times = {times.front(), times.front() + times.front() / 10};
  }
  step.costs = models::costs_for(
      models::load_cluster("a100x8", std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters"),
      step.program);
  calm(step);
}

// A small message behind every layer's forward.
void own_collectives(Step& step) {
  const std::vector<schedule::Op> ops = std::exchange(step.program.ops, {});
  std::int32_t next = 0;
  for (const schedule::Op& op : ops) next = std::max(next, op.id.value + 1);
  for (const schedule::Op& op : ops) {
    step.program.ops.push_back(op);
    if (op.phase != schedule::Phase::Forward || op.writes.empty()) continue;
    step.program.ops.push_back(
        {.id = OpId{next++},
         .name = op.name + ".sum",
         .phase = op.phase,
         .dtype = op.dtype,
         .work =
             schedule::CollectiveWork{.group = step.program.groups.front().id, .bytes = kib(64)},
         .reads = {op.writes.front()},
         .writes = {op.writes.front()}});
  }
}

// About 8 gradients a bucket.
std::vector<std::size_t> usual_ends(std::int32_t gradients) {
  Random random(5);
  std::vector<std::size_t> ends;
  for (std::int32_t i = 1; i <= gradients; ++i) {
    if (i == gradients || random.between(0, 7) == 0) ends.push_back(static_cast<std::size_t>(i));
  }
  return ends;
}

// The candidates with one border moved by one, all in turn.
std::vector<Choices> moved(const Choices& base) {
  std::vector<Choices> all;
  for (std::size_t b = 0; b + 1 < base.size(); ++b) {
    if (base[b].end + 1 >= base[b + 1].end) continue;
    all.push_back(base);
    if (base[b].end > base[b + 1].begin) {  // within a gradient
      ++all.back()[b].take;
      ++all.back()[b + 1].skip;
    } else {
      all.back()[b].end = ++all.back()[b + 1].begin;
    }
  }
  return all;
}

struct Kind {
  std::string name;
  std::function<void(Step&)> change = [](Step&) {};
  std::string frame = "per-tensor";
  BucketMode mode = BucketMode::View;
  std::int32_t streams = 1;
  bool as_frame = false;  // buckets are those of the frame
};

void time_model(benchmark::State& state, const Kind& kind, std::int32_t layers) {
  const schedule::Policy policy = schedule::parse_policy(kind.frame);
  Step step = step_of(layers, policy);
  kind.change(step);
  const schedule::Schedule frame = schedule::make_schedule(step.program, policy);
  const StepModel::Made made = StepModel::make(step.program, step.costs, frame);
  if (!made.model) return state.SkipWithError(made.refusal.c_str());
  search::StepWorkspace memory = made.model->workspace();
  Choices base = testing::choices_with_ends(usual_ends(made.model->gradients()), kind.mode,
                                            WaitPoint::FirstUse);
  for (std::size_t b = 0; b < base.size(); ++b) {
    base[b].stream = static_cast<std::int32_t>(b) % kind.streams;
  }
  if (kind.as_frame) base = made.model->choices_of(frame).value();
  const std::vector<Choices> candidates = moved(base);
  std::size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(made.model->evaluate(candidates[next], memory));
    next = (next + 1) % candidates.size();
  }
  state.SetLabel(std::to_string(base.size()) + " buckets");
  state.SetItemsProcessed(state.iterations());
}

void register_all() {
  const std::vector<Kind> kinds = {
      {.name = "plain", .change = calm},
      {.name = "contended"},
      {.name = "copies", .mode = BucketMode::Copy},
      {.name = "streams", .streams = 2},
      {.name = "processors", .change = on_processors},
      {.name = "host_bound", .change = slow_host},
      {.name = "unlike", .change = unlike},
      {.name = "accumulated", .frame = "gradient-merge:k=2"},
      {.name = "every", .frame = "gradient-merge:k=2,sync=every"},
      {.name = "own", .change = own_collectives},
      {.name = "async", .change = own_collectives, .frame = "per-tensor:collectives=async"},
      {.name = "zero", .frame = "sharded:gather=next-forward"},
      {.name = "sharded", .frame = "sharded:cap=30MB", .as_frame = true},
      {.name = "pipeline", .frame = "pipeline:stages=4", .as_frame = true},
      {.name = "fsdp", .frame = "fsdp:cap=30MB", .as_frame = true},
  };
  for (const std::int32_t layers : {300, 3'000}) {
    const std::string size = "/" + std::to_string(layers);
    for (const Kind& kind : kinds) {
      benchmark::RegisterBenchmark(
          (kind.name + size).c_str(),
          [kind, layers](benchmark::State& state) { time_model(state, kind, layers); });
    }
  }
}

}  // namespace
}  // namespace dovetail::bench

int main(int argc, char** argv) {
  dovetail::bench::register_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

// Times the evaluator of candidates (search/step_model.h) beside a minimal candidate loop, in one run.
//
//   step_bench                         the table
//   step_bench --check=10000           holds as many random placements of models, every second one a change of
//                                      the one before, against the simulator; a line per model and machine
//                                      says how far it is
//   step_bench --check=10000 --part=2/6   of those models and machines every sixth, from the second on
//
//   reference_walk/300   the loop below: the two streams of backward with contention, from nothing
//   border/300           one border moved, a whole StepSummary, walked from the first changed bucket
//   merge/300, split/300 likewise
//   nothing/300          the same candidates without a prefix
//   copy_border/300      with packs and unpacks
//   two_streams_border/300, two_streams_nothing/300
//                        buckets on two streams in turn, which share the links
//   cpu_border/300, cpu_nothing/300
//                        on a machine whose collectives take processor time and are slowed down by compute
//   host_bound/300       on a machine whose host limits: step after step, from nothing
//   simulator/300        lower, compile and play the same candidates
//
// The step: 300 (3,000) layers of the benchmark step's durations and sizes, an update per gradient, the
// collectives, host and contention of the shipped cluster a100x8; buckets of about 8 gradients. One
// item is one candidate, evaluated to its steady state; `rejoined` is the share of those that ended where
// the settled candidate went on alike (search/full_walk.h).
//
// SPDX-License-Identifier: Apache-2.0
#include "search/step_model.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lower/lower.h"
#include "models/cluster.h"
#include "models/zoo.h"
#include "policies/policies.h"
#include "sim/steady.h"
#include "tests/support/benchmark_dag.h"
#include "tests/support/placements.h"
#include "tests/support/programs.h"

namespace dovetail::bench {
namespace {

using schedule::BucketMode;
using schedule::WaitPoint;
using search::Choices;
using search::StepModel;
using search::StepWorkspace;

// The least that a candidate with contention costs: compute ops of backward and buckets on one stream,
// each slowing down the other by factors of the op.
class ReferenceWalk {
 public:
  explicit ReferenceWalk(std::int32_t layers) {
    Random random(1);
    for (const auto& op : support::make_benchmark_dag({.compute_ops = 2 * layers}).ops) {
      if (op.kind != support::BenchmarkOp::Kind::Backward) continue;
      work_.push_back(static_cast<double>(op.duration.count()));
      size_.push_back(static_cast<double>(op.bytes.count()));
      slow_compute_.push_back(1 + 0.4 * random.uniform());
      slow_transfer_.push_back(1 + 0.3 * random.uniform());
    }
    size_sum_.push_back(0);
    for (const double size : size_) size_sum_.push_back(size_sum_.back() + size);
  }

  // The end of the last of these buckets, given by their exclusive ends.
  [[nodiscard]] double operator()(const std::vector<std::size_t>& ends) const {
    double now = 0;
    double left = 0;
    std::size_t next = 0;
    bool in_flight = false;
    for (std::size_t op = 0; op < work_.size(); ++op) {
      double work = work_[op];
      for (;;) {
        if (!in_flight && next < ends.size() && ends[next] <= op) {
          in_flight = true;
          left = transfer(ends, next++);
        }
        if (!in_flight) {
          now += work;
          break;
        }
        const double compute = work * slow_compute_[op];
        const double transfer = left * slow_transfer_[op];
        if (compute < transfer) {
          now += compute;
          left -= compute / slow_transfer_[op];
          break;
        }
        now += transfer;
        work -= transfer / slow_compute_[op];
        in_flight = false;
      }
    }
    if (in_flight) now += left;
    for (; next < ends.size(); ++next) now += transfer(ends, next);
    return now;
  }

 private:
  // 20 us and 100 GB/s.
  [[nodiscard]] double transfer(const std::vector<std::size_t>& ends, std::size_t bucket) const {
    return 20 + (size_sum_[ends[bucket]] - size_sum_[bucket > 0 ? ends[bucket - 1] : 0]) * 1e-5;
  }
  std::vector<double> work_, size_, size_sum_, slow_compute_, slow_transfer_;
};

models::Cluster cluster_of(const std::string& name) {
  return models::load_cluster(name, std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters");
}

enum class Machine { Shipped, Cpu, SlowHost };

void change(models::Costs& costs, Machine machine) {
  if (machine == Machine::Cpu) {
    costs.host = {.kind = models::HostModel::Kind::Inline,
                  .collective = std::chrono::microseconds(2),
                  .event = std::chrono::microseconds(1),
                  .copy = std::chrono::microseconds(1)};
    costs.contention_by_class = {{.compute_slowdown = 1.15,
                                  .collective_slowdown = 1.2,
                                  .collective_cpu = std::chrono::microseconds(30)}};
  } else if (machine == Machine::SlowHost) {
    costs.host.run_op = std::chrono::microseconds(150);
  }
}

// Built when its first benchmark runs.
struct Step {
  Step(std::int32_t layers, Machine machine) : reference(layers) {
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
    const models::Cluster cluster = cluster_of("a100x8");
    program = testing::chain(list, cluster.ranks);
    for (schedule::Op& op : program.ops) {
      std::get<schedule::TimedWork>(op.work).by_rank.resize(1);
    }
    costs = models::costs_for(cluster, program);
    change(costs, machine);
    StepModel::Made made = StepModel::make(
        program, costs, schedule::make_schedule(program, schedule::parse_policy("per-tensor")));
    if (!made.model) throw InputError(made.refusal);
    model = std::move(made.model);
    memory = model->workspace();
    Random random(5);
    for (std::int32_t i = 1; i <= model->gradients(); ++i) {
      if (i == model->gradients() || random.between(0, 7) == 0) {
        ends.push_back(static_cast<std::size_t>(i));
      }
    }
    choices = testing::choices_with_ends(ends, BucketMode::View, WaitPoint::FirstUse);
  }

  schedule::Program program;
  models::Costs costs;
  std::optional<StepModel> model;
  StepWorkspace memory;
  std::vector<std::size_t> ends;
  Choices choices;
  ReferenceWalk reference;
};

enum class Move { Border, Merge, Split };

struct Change {
  std::size_t bucket = 0;
  std::int32_t border = 0;
};

// Moves that the base allows, drawn once.
std::vector<Change> changes_of(const Choices& base, Move move) {
  std::vector<Change> changes;
  Random random(7);
  while (changes.size() < 512) {
    const auto b =
        static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(base.size()) - 2));
    const std::int32_t low = base[b].begin + 1;
    const std::int32_t high = move == Move::Split ? base[b].end - 1 : base[b + 1].end - 1;
    if (low > high || (move == Move::Border && low == high)) continue;
    changes.push_back({b, static_cast<std::int32_t>(random.between(low, high))});
  }
  return changes;
}

// Changes the candidate and gives the way back.
void apply(Choices& choices, const Change& change, Move move, Choices& saved) {
  const auto at = choices.begin() + static_cast<std::ptrdiff_t>(change.bucket);
  saved.assign(at, std::min(at + 2, choices.end()));
  if (move == Move::Border) {
    at[0].end = at[1].begin = change.border;
  } else if (move == Move::Merge) {
    at[0].end = at[1].end;
    choices.erase(at + 1);
  } else {
    search::BucketChoice second = at[0];
    at[0].end = second.begin = change.border;
    choices.insert(at + 1, second);
  }
}

void undo(Choices& choices, const Change& change, Move move, const Choices& saved) {
  const auto at = choices.begin() + static_cast<std::ptrdiff_t>(change.bucket);
  at[0] = saved[0];
  if (move == Move::Border) at[1] = saved[1];
  if (move == Move::Merge) choices.insert(at + 1, saved[1]);
  if (move == Move::Split) choices.erase(at + 1);
}

enum class From { Prefix, Nothing };

void time_moves(benchmark::State& state, Step& step, Choices choices, Move move, From from) {
  const std::vector<Change> changes = changes_of(choices, move);
  const StepModel& model = *step.model;
  Choices saved;
  StepWorkspace fresh = model.workspace();
  static_cast<void>(model.settle(choices, step.memory));
  const auto evaluate = [&](const Change& change) {
    apply(choices, change, move, saved);
    const auto found = from == From::Prefix
                           ? model.evaluate_change(choices, change.bucket, step.memory)
                           : model.evaluate(choices, step.memory);
    return found;
  };
  for (const Change& change : changes) {  // once against a walk from nothing
    const auto found = evaluate(change);
    const auto expected = model.evaluate(choices, fresh);
    undo(choices, change, move, saved);
    if (found && expected && found->step_ns == expected->step_ns) continue;
    state.SkipWithError("a change is not as from nothing");
    return;
  }
  const StepModel::Counts before = StepModel::counts(step.memory);
  std::int64_t best = INT64_MAX;
  for (auto _ : state) {
    for (const Change& change : changes) {
      best = std::min(best, evaluate(change)->step_ns);
      undo(choices, change, move, saved);
    }
  }
  benchmark::DoNotOptimize(best);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(changes.size()));
  state.counters["buckets"] = static_cast<double>(choices.size());
  const auto rejoined =
      static_cast<double>(StepModel::counts(step.memory).rejoined - before.rejoined);
  state.counters["rejoined"] =
      rejoined / static_cast<double>(state.iterations()) / static_cast<double>(changes.size());
}

void time_reference(benchmark::State& state, Step& step) {
  double sum = 0;
  for (auto _ : state) benchmark::DoNotOptimize(sum += step.reference(step.ends));
  state.SetItemsProcessed(state.iterations());
}

void time_simulator(benchmark::State& state, Step& step) {
  sim::CompiledProgram compiled;
  sim::Workspace workspace;
  const schedule::Schedule schedule = step.model->schedule_of(step.choices);
  for (auto _ : state) {
    const schedule::Lowered lowered = schedule::lower(step.program, schedule);
    benchmark::DoNotOptimize(
        sim::find_steady_state(lowered.program, step.costs, compiled, workspace).summary);
  }
  state.SetItemsProcessed(state.iterations());
}

// A step that is built once, when first asked for.
using LazyStep = std::shared_ptr<std::optional<Step>>;

void add(const std::string& name, const LazyStep& step, std::int32_t layers, Machine machine,
         const std::function<void(benchmark::State&, Step&)>& run) {
  const auto timed = [step, layers, machine, run](benchmark::State& state) {
    if (!*step) step->emplace(layers, machine);
    run(state, **step);
  };
  benchmark::RegisterBenchmark((name + "/" + std::to_string(layers)).c_str(), timed);
}

enum class Streams { One, Two };

void add_moves(const std::string& name, const LazyStep& step, std::int32_t layers, Machine machine,
               Streams streams, BucketMode mode, Move move, From from) {
  add(name, step, layers, machine, [=](benchmark::State& state, Step& of) {
    Choices base = of.choices;
    for (std::size_t b = 0; b < base.size(); ++b) {
      base[b].mode = mode;
      if (streams == Streams::Two) base[b].stream = b % 2 == 0 ? 0 : 1;
    }
    time_moves(state, of, std::move(base), move, from);
  });
}

void register_all() {
  for (const std::int32_t layers : {300, 3'000}) {
    const auto step = std::make_shared<std::optional<Step>>();
    add("reference_walk", step, layers, Machine::Shipped, time_reference);
    const auto moves = [&](const char* name, Move move, From from, BucketMode mode) {
      add_moves(name, step, layers, Machine::Shipped, Streams::One, mode, move, from);
    };
    moves("border", Move::Border, From::Prefix, BucketMode::View);
    moves("merge", Move::Merge, From::Prefix, BucketMode::View);
    moves("split", Move::Split, From::Prefix, BucketMode::View);
    moves("nothing", Move::Border, From::Nothing, BucketMode::View);
    moves("copy_border", Move::Border, From::Prefix, BucketMode::Copy);
    add("per_tensor_border", step, layers, Machine::Shipped, [](benchmark::State& state, Step& of) {
      std::vector<std::size_t> ends;
      for (std::size_t i = 2; i <= of.ends.back(); i += 2) ends.push_back(i);
      if (ends.back() != of.ends.back()) ends.push_back(of.ends.back());
      time_moves(state, of, testing::choices_with_ends(ends, BucketMode::View, WaitPoint::FirstUse),
                 Move::Border, From::Prefix);
    });
    const auto others = [&](const std::string& name, const LazyStep& of, Machine machine,
                            Streams streams) {
      add_moves(name + "_border", of, layers, machine, streams, BucketMode::View, Move::Border,
                From::Prefix);
      add_moves(name + "_nothing", of, layers, machine, streams, BucketMode::View, Move::Border,
                From::Nothing);
    };
    others("two_streams", step, Machine::Shipped, Streams::Two);
    others("cpu", std::make_shared<std::optional<Step>>(), Machine::Cpu, Streams::One);
    add_moves("host_bound", std::make_shared<std::optional<Step>>(), layers, Machine::SlowHost,
              Streams::One, BucketMode::View, Move::Border, From::Nothing);
    add("simulator", step, layers, Machine::Shipped, time_simulator);
  }
}

struct Tally {
  std::int64_t compared = 0, differ = 0, quick = 0, full = 0, steps = 0, none = 0, rejoined = 0;
};

// Random placements of one model on one machine, quick and full, against the simulator.
void check_pair(const std::string& name, const std::string& machine, Machine kind,
                std::int64_t each, std::uint64_t seed, Tally& tally) {
  const models::Cluster cluster = cluster_of(machine);
  const schedule::Program program = models::zoo_program(name, {.world_size = cluster.ranks});
  models::Costs costs = models::costs_for(cluster, program);
  change(costs, kind);
  const StepModel::Made made = StepModel::make(
      program, costs, schedule::make_schedule(program, schedule::parse_policy("per-tensor")));
  if (!made.model) throw InputError(name + " on " + machine + ": " + made.refusal);
  StepWorkspace memory = made.model->workspace();
  sim::CompiledProgram compiled;
  sim::Workspace workspace;
  const auto compare = [&](std::int64_t i, const char* what, const Choices& choices,
                           const std::optional<sim::StepSummary>& found) {
    ++tally.compared;
    if (!found) return;
    const schedule::Lowered lowered = schedule::lower(program, made.model->schedule_of(choices));
    const sim::StepSummary expected =
        sim::find_steady_state(lowered.program, costs, compiled, workspace).summary;
    const bool equal = found->step_ns == expected.step_ns &&
                       found->exposed_ns == expected.exposed_ns &&
                       found->communication_ns == expected.communication_ns &&
                       found->compute_ns == expected.compute_ns;
    if (equal) return;
    ++tally.differ;
    std::printf("%s on %s, %s %lld: step %lld, simulated %lld\n", name.c_str(), machine.c_str(),
                what, static_cast<long long>(i), static_cast<long long>(found->step_ns),
                static_cast<long long>(expected.step_ns));
  };
  Random random(seed);
  for (std::int64_t i = 0; i < each; i += 2) {
    Choices choices = testing::random_choices(random, *made.model, random.between(1, 40));
    compare(i, "placement", choices, made.model->settle(choices, memory));
    const std::size_t first =
        std::min(testing::random_change(random, *made.model, choices), choices.size() - 1);
    compare(i, "change of placement", choices, made.model->evaluate_change(choices, first, memory));
  }
  const StepModel::Counts& counts = StepModel::counts(memory);
  tally.quick += counts.quick;
  tally.full += counts.full;
  tally.steps += counts.steps;
  tally.none += counts.none;
  tally.rejoined += counts.rejoined;
}

struct Part {
  std::int64_t first = 1, of = 1;
};

// Gives how many differ.
int check(std::int64_t wanted, const Part& part) {
  struct Place {
    std::string cluster;
    Machine machine = Machine::Shipped;
  };
  const std::vector<Place> clusters = {{"a100x8"},
                                       {"a100x4_pcie"},
                                       {"a100x16_ib"},
                                       {"b200x8"},
                                       {"h100x16_tcpxo"},
                                       {"a100x4_pcie", Machine::Cpu},
                                       {"a100x8", Machine::SlowHost}};
  const std::vector<std::string> names = {"resnet18",  "resnet50", "googlenet", "vgg16",
                                          "bert_base", "gpt2",     "mlp"};
  const std::int64_t each = 1 + wanted / static_cast<std::int64_t>(names.size() * clusters.size());
  Tally all;
  std::int64_t number = 0;
  for (const std::string& name : names) {
    for (const auto& [machine, kind] : clusters) {
      const std::int64_t seed = number++ * each;
      if (number % part.of != part.first % part.of) continue;
      const auto begin = std::chrono::steady_clock::now();
      check_pair(name, machine, kind, each, static_cast<std::uint64_t>(seed), all);
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      std::printf("%s on %s%s: %lld placements so far, %lld differ (%.1f s)\n", name.c_str(),
                  machine.c_str(),
                  kind == Machine::Cpu        ? " by processors"
                  : kind == Machine::SlowHost ? " with a slow host"
                                              : "",
                  static_cast<long long>(all.compared), static_cast<long long>(all.differ),
                  took.count());
      std::fflush(stdout);
    }
  }
  std::printf(
      "%lld placements, %lld differ; %lld walked quickly, %lld fully (%lld rejoined), %lld step "
      "after step, %lld left to the simulator\n",
      static_cast<long long>(all.compared), static_cast<long long>(all.differ),
      static_cast<long long>(all.quick), static_cast<long long>(all.full),
      static_cast<long long>(all.rejoined), static_cast<long long>(all.steps),
      static_cast<long long>(all.none));
  return all.differ == 0 ? 0 : 1;
}

}  // namespace
}  // namespace dovetail::bench

int main(int argc, char** argv) {
  long long wanted = 0, first = 1, of = 1;
  if (argc > 1 && std::sscanf(argv[1], "--check=%lld", &wanted) == 1) {
    const bool parts = argc == 3 && std::sscanf(argv[2], "--part=%lld/%lld", &first, &of) == 2;
    if ((argc > 2 && !parts) || first < 1 || of < first) {
      std::fprintf(stderr, "expected --check=COUNT [--part=I/N]\n");
      return 2;
    }
    return dovetail::bench::check(wanted, {first, of});
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  dovetail::bench::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

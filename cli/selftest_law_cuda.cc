// Trains a small job on GPUs under several schedules and compares the weights, which must not
// depend on the schedule.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/selftest_law_cuda.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "exec/run.h"
#include "exec/training/program.h"
#include "lower/lower.h"
#include "policies/policies.h"

namespace dovetail::cli {
namespace {

using exec::selftest::Outcome;
using exec::selftest::Row;
using exec::selftest::row_of;

constexpr std::int32_t kSteps = 4;
// Another order of summation is allowed, nothing more.
constexpr double kRelative = 1e-5;
constexpr double kAbsolute = 1e-8;

// By parameter and first element: shards of a parameter are entries of their own.
using Weights = std::map<std::pair<TensorId, std::int64_t>, std::vector<float>>;

Weights train(const exec::cuda::Module& module, const exec::cuda::BackendOptions& on_gpu,
              const schedule::ScheduledProgram& plan) {
  exec::cuda::BackendOptions options = on_gpu;
  options.content = exec::cuda::Content::TrainingJob;
  const auto backend = module.make_backend(plan, options);
  exec::run(plan, options.exchange.rank, *backend, {.warmup = 0, .steps = kSteps});
  Weights weights;
  for (exec::cuda::TrainedRange& range : module.trained(*backend).weights) {
    weights[{range.parameter, range.first}] = std::move(range.values);
  }
  return weights;
}

// Weights that were compared, and that differ or are missing.
std::array<std::int64_t, 2> compare(const Weights& expected, const Weights& found) {
  std::array<std::int64_t, 2> counts{};
  for (const auto& [key, values] : expected) {
    const auto other = found.find(key);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ++counts[0];
      const double want = values[i];
      const bool is_there = other != found.end() && i < other->second.size();
      // Not greater, so that NaN is wrong too.
      const bool is_equal =
          is_there && std::abs(other->second[i] - want) <= kAbsolute + kRelative * std::abs(want);
      counts[1] += is_equal ? 0 : 1;
    }
  }
  return counts;
}

Outcome outcome_of(const exec::Exchange& exchange, const std::array<std::int64_t, 2>& mine) {
  std::array<std::int64_t, 2> sums{};
  for (const std::vector<std::int64_t>& of_rank : share(exchange, mine)) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += of_rank.at(i);
  }
  const std::string words = std::to_string(kSteps) + " steps, " + std::to_string(sums[0]) +
                            " weights, " + std::to_string(sums[1]) +
                            " differ from the naive schedule's";
  return sums[0] > 0 && sums[1] == 0 ? exec::selftest::pass(words) : exec::selftest::fail(words);
}

}  // namespace

std::vector<Row> cuda_law_rows(const exec::cuda::Module& module,
                               const exec::cuda::BackendOptions& on_gpu) {
  const std::int64_t ranks = on_gpu.exchange.world_size;
  const schedule::Program program = exec::training::training_program({.world_size = ranks});
  const auto plan_of = [&](const std::string& policy) {
    return schedule::lower(program,
                           schedule::make_schedule(program, schedule::parse_policy(policy)))
        .program;
  };
  std::vector<Row> rows;
  const std::string over = ", " + std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks");
  rows.push_back(row_of({"cuda", "training job" + over}, [&]() -> Outcome {
    const Weights naive = train(module, on_gpu, plan_of("naive"));
    for (const char* policy : {"threshold:threshold=4KiB", "torch-ddp:cap=8KiB,first=1KiB"}) {
      for (const exec::cuda::Issue issue : {exec::cuda::Issue::Eager, exec::cuda::Issue::Graph}) {
        exec::cuda::BackendOptions options = on_gpu;
        options.issue = issue;
        const Weights found = train(module, options, plan_of(policy));
        const bool graph = issue == exec::cuda::Issue::Graph;
        rows.push_back(row_of({"cuda", std::string(graph ? "graph, " : "eager, ") + policy + over},
                              [&] { return outcome_of(on_gpu.exchange, compare(naive, found)); }));
      }
    }
    return exec::selftest::pass("trained under the naive schedule and four others");
  }));
  return rows;
}

}  // namespace dovetail::cli

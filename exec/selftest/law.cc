// Compares the weights that a small training job learns under several schedules with those of the naive one.
//
// tests/exec/law_test.cc holds many more against each other; this shows that the law holds with
// this build on this machine.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/selftest/law.h"

#include "exec/training/program.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "schedule/verify/verify.h"

#include <cmath>
#include <map>
#include <utility>

namespace dovetail::exec::selftest {
namespace {

// The tolerance of upstream's acceptance test: another order of summation is allowed, nothing more.
constexpr double kRelative = 1e-5;
constexpr double kAbsolute = 1e-8;

// By parameter and first element: shards of a parameter are entries of their own.
using Weights = std::map<std::pair<TensorId, std::int64_t>, std::vector<float>>;

Weights weights_of(training::Trained trained) {
  Weights weights;
  for (training::TrainedRange& range : trained.weights) {
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

Outcome outcome_of(const LawJob& job, const std::array<std::int64_t, 2>& mine) {
  const std::array<std::int64_t, 2> all = job.sum ? job.sum(mine) : mine;
  const std::string words = std::to_string(kLawSteps) + " steps, " + std::to_string(all[0]) +
                            " weights, " + std::to_string(all[1]) +
                            " differ from the naive schedule's";
  return all[0] > 0 && all[1] == 0 ? pass(words) : fail(words);
}

}  // namespace

std::vector<Row> law_rows(const LawJob& job) {
  const schedule::Program program = training::training_program({.world_size = job.ranks});
  const auto plan_of = [&](const std::string& policy) {
    return schedule::lower(program,
                           schedule::make_schedule(program, schedule::parse_policy(policy)))
        .program;
  };
  Weights naive;
  std::vector<Row> rows = {row_of({job.backend, "same weights: naive" + job.suffix}, [&] {
    naive = weights_of(job.train_naive(plan_of("naive")));
    return pass("the reference");
  })};
  if (rows.front().verdict != Verdict::Pass) return rows;
  for (const LawCase& one : job.cases) {
    rows.push_back(row_of({job.backend, "same weights: " + one.name + job.suffix}, [&] {
      const schedule::ScheduledProgram plan = plan_of(one.policy);
      const std::vector<schedule::Problem> problems = schedule::verify(program, plan);
      if (!problems.empty()) return fail(problems.front().message);
      return outcome_of(job, compare(naive, weights_of(one.train(plan))));
    }));
  }
  return rows;
}

}  // namespace dovetail::exec::selftest

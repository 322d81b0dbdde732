// A legal Schedule changes time, never results: a few schedules of a small training job on two
// ranks.
//
// tests/exec/law_test.cc holds many more against each other; this shows that the law holds with
// this build on this machine.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/training_ops.h"
#include "exec/launch/local_ranks.h"
#include "exec/run.h"
#include "exec/selftest/cpu.h"
#include "exec/training/program.h"
#include "lower/lower.h"
#include "policies/policies.h"
#include "verify/verify.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>

namespace dovetail::exec::selftest {
namespace {

constexpr std::int32_t kLawSteps = 4;
constexpr std::int32_t kRanks = 2;
// The tolerance of upstream's acceptance test: another order of summation is allowed, nothing more.
constexpr double kRelative = 1e-5;
constexpr double kAbsolute = 1e-8;

// By parameter and first element: shards of a parameter are entries of their own.
using Weights = std::map<std::pair<std::int32_t, std::int64_t>, std::vector<float>>;

schedule::ScheduledProgram plan_of(const schedule::Program& program, const std::string& policy) {
  return schedule::lower(program, schedule::make_schedule(program, schedule::parse_policy(policy)))
      .program;
}

// The weights after some steps, as rank 0 holds them.
Weights train(const schedule::ScheduledProgram& plan) {
  Weights result;
  std::mutex mutex;
  launch::run_local_ranks({.ranks = kRanks}, [&](launch::Session& session) {
    cpu::Ports ports = cpu::ports_of(session, cpu::TransportKind::Ring);
    const cpu::TrainingOps* ops = nullptr;
    ports.tensors = cpu::TensorScope::All;
    ports.make_ops = [&](const schedule::ScheduledProgram& scheduled, Rank rank,
                         cpu::TensorMemory& memory) {
      auto made =
          std::make_unique<cpu::TrainingOps>(scheduled, rank, memory, training::Hyperparameters{});
      ops = made.get();
      return made;
    };
    cpu::CpuBackend backend(plan, ports);
    run(plan, session.rank(), backend, {.warmup = 0, .steps = kLawSteps});
    const std::lock_guard lock(mutex);
    if (session.rank() != Rank{0}) return;
    for (cpu::OwnedWeights& owned : ops->weights()) {
      result[{owned.parameter.value, owned.first}] = std::move(owned.values);
    }
  });
  return result;
}

Outcome compare(const Weights& expected, const Weights& found) {
  std::int64_t checked = 0;
  std::int64_t wrong = 0;
  for (const auto& [key, values] : expected) {
    const auto other = found.find(key);
    if (other == found.end() || other->second.size() != values.size()) {
      return fail("parameter " + std::to_string(key.first) + " is missing");
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double want = values[i];
      const double distance = std::abs(other->second[i] - want);
      // Not greater, so that NaN is wrong too.
      wrong += distance <= kAbsolute + kRelative * std::abs(want) ? 0 : 1;
      ++checked;
    }
  }
  const std::string words = std::to_string(kLawSteps) + " steps on " + std::to_string(kRanks) +
                            " ranks, " + std::to_string(checked) + " weights, " +
                            std::to_string(wrong) + " differ from the naive program's";
  return checked > 0 && wrong == 0 ? pass(words) : fail(words);
}

}  // namespace

std::vector<Row> law_rows() {
  const schedule::Program program = training::training_program({});
  Weights naive;
  std::vector<Row> rows;
  rows.push_back(row_of({"cpu", "same weights: naive"}, [&] {
    naive = train(plan_of(program, "naive"));
    return naive.empty() ? fail("no weights") : pass("the reference");
  }));
  if (rows.front().verdict != Verdict::Pass) return rows;
  for (const char* policy :
       {"per-tensor", "one-bucket", "threshold:threshold=4KiB", "torch-ddp:cap=8KiB,first=1KiB"}) {
    rows.push_back(row_of({"cpu", std::string("same weights: ") + policy}, [&] {
      const schedule::ScheduledProgram plan = plan_of(program, policy);
      const std::vector<schedule::Problem> problems = schedule::verify(program, plan);
      if (!problems.empty()) return fail(problems.front().message);
      return compare(naive, train(plan));
    }));
  }
  return rows;
}

}  // namespace dovetail::exec::selftest

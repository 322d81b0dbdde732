// The law of legality, on schedules drawn from the whole language: what lower accepts, verify
// accepts; what lower cannot express, it refuses in words; and whatever breaks a legal plan, verify
// rejects for the right reason.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/random_language.h"
#include "base/error.h"
#include "exec/training/program.h"
#include "schedule/lower/lower.h"
#include "schedule/verify/verify.h"
#include "tests/support/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::schedule {
namespace {

using exec::training::Embedding;
using exec::training::Optimizer;
using exec::training::SecondOrder;
using exec::training::training_program;

// Training jobs that differ in what is hard for a scheduler: a weight used twice, as one gradient
// and as two; optimizers with and without a rescale factor; clipping; a gradient that backward reads
// reduced; two stages of a pipeline.
std::vector<Program> programs() {
  std::vector<Program> all;
  for (const Embedding embedding : {Embedding::OneTensor, Embedding::TwoParts, Embedding::Untied}) {
    for (const Optimizer optimizer : {Optimizer::Momentum, Optimizer::Adam}) {
      for (const double norm : {0.0, 0.5}) {
        all.push_back(
            training_program({.embedding = embedding, .optimizer = optimizer, .max_norm = norm}));
      }
    }
  }
  all.push_back(training_program({.second_order = SecondOrder::Penalised}));
  all.push_back(training_program({.world_size = 4, .stages = 2, .embedding = Embedding::Untied}));
  return all;
}

// The plan, or why there is none.
std::pair<std::optional<ScheduledProgram>, std::string> plan_or_refusal(const Program& program,
                                                                        const Schedule& schedule) {
  try {
    return {lower(program, schedule).program, ""};
  } catch (const InputError& error) {
    return {std::nullopt, error.what()};
  }
}

constexpr std::uint64_t kParts = 4;                          // tests that share the seeds
constexpr std::uint64_t kSeeds = testing::few_cases(500);    // of each part, for plans
constexpr std::uint64_t kBrokenSeeds = testing::cases(150);  // the same, for plans that are broken

class RandomLanguageTest : public ::testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Part, RandomLanguageTest, ::testing::Range(std::uint64_t{0}, kParts));

// Of each part's schedules about half are legal, over all jobs.
TEST_P(RandomLanguageTest, PI2WhatLowerAcceptsIsLegalAndWhatItRefusesIsSaidInWords) {
  const std::vector<Program> jobs = programs();
  std::size_t legal = 0;
  std::map<std::size_t, std::size_t> legal_of;  // by job
  std::map<std::string, std::size_t> refusals;
  for (std::uint64_t seed = GetParam() * kSeeds; seed < (GetParam() + 1) * kSeeds; ++seed) {
    Random random(seed);
    const std::size_t job = seed % jobs.size();
    const Schedule schedule = testing::random_language_schedule(random, jobs[job]);
    const auto [plan, refusal] = plan_or_refusal(jobs[job], schedule);
    if (!plan) {
      EXPECT_EQ(refusal.rfind("schedule random: ", 0), 0U) << "seed " << seed << ": " << refusal;
      EXPECT_EQ(refusal.find('\n'), std::string::npos) << "seed " << seed << ": " << refusal;
      ++refusals[refusal];
      continue;
    }
    const std::vector<Problem> problems = verify(jobs[job], *plan, schedule.merge);
    EXPECT_TRUE(problems.empty()) << "seed " << seed << ", job " << job << ": "
                                  << problems.front().message;
    ++legal;
    ++legal_of[job];
  }
  EXPECT_GE(legal, testing::kHasSanitizer ? kSeeds * 2 / 5 : kSeeds / 2);
  EXPECT_GE(refusals.size(), 5U);
  // Few of one job's are legal: a quarter of the seeds need not meet one.
  for (std::size_t job = 0; job < jobs.size() && !testing::kHasSanitizer; ++job) {
    EXPECT_GE(legal_of[job], 3U) << job;
  }
}

// 7 mutations of each legal plan, kind after kind.
TEST_P(RandomLanguageTest, PI2WhatBreaksALegalPlanIsRejectedForTheRightReason) {
  const std::vector<Program> jobs = programs();
  std::size_t rejected = 0;
  std::map<std::string, std::size_t> rejected_of;  // by kind of mutation
  std::size_t next_kind = 0;
  for (std::uint64_t seed = GetParam() * kBrokenSeeds; seed < (GetParam() + 1) * kBrokenSeeds;
       ++seed) {
    Random random(seed);
    const Program& job = jobs[seed % jobs.size()];
    const Schedule schedule = testing::random_language_schedule(random, job);
    const auto [plan, refusal] = plan_or_refusal(job, schedule);
    if (!plan) continue;
    for (int i = 0; i < 7; ++i) {
      const auto broken = testing::mutate(random, *plan, next_kind++);
      if (!broken) continue;
      const std::vector<Problem> problems = verify(job, broken->plan, schedule.merge);
      const bool right = std::ranges::any_of(problems, [&](const Problem& problem) {
        return std::ranges::count(broken->reasons, problem.kind) > 0;
      });
      EXPECT_TRUE(right) << "seed " << seed << ", " << broken->name << ": "
                         << (problems.empty() ? "nothing found" : problems.front().message);
      if (!right) continue;
      ++rejected;
      ++rejected_of[broken->name];
    }
  }
  EXPECT_GE(rejected, kBrokenSeeds * 5 / 3);
  EXPECT_EQ(rejected_of.size(), testing::mutation_kinds());
  for (const auto& [name, times] : rejected_of) EXPECT_GE(times, 1U) << name;
}

}  // namespace
}  // namespace dovetail::schedule

// Schedules drawn at random from the whole language, on real ranks.
//
// 240 legal ones run on two ranks with data whose reduced values are known exactly: not one element
// may be wrong. Every fourth trains the job for ten steps as well, and must end with the weights of
// the naive program. Draws that a rewriting pass refuses are drawn again; the seed is printed with
// every failure. Illegal schedules are rejected by verify (tests of schedule), and by the entry point
// of a run before any rank starts.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "base/random.h"
#include "exec/legal.h"
#include "exec/values/dataflow.h"
#include "schedule/lower/lower.h"
#include "schedule/verify/verify.h"
#include "tests/exec/drawn.h"
#include "tests/exec/law.h"
#include "tests/exec/programs.h"
#include "tests/support/cases.h"
#include "tests/support/programs.h"
#include "tests/support/random_language.h"
#include "tests/support/tensor_parallel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace dovetail::exec::testing {
namespace {

using schedule::ScheduledProgram;
using ::testing::StartsWith;

constexpr int kWanted = dovetail::testing::few_cases(240);
constexpr std::uint64_t kMostSeeds = 4000;
constexpr int kParts = 4;  // tests that share the legal ones, each with seeds of its own

class RandomSchedulesOfPart : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Part, RandomSchedulesOfPart, ::testing::Range(0, kParts));

TEST_P(RandomSchedulesOfPart, LegalOnesGiveExactGradientsAndTheWeightsOfTheNaiveProgram) {
  constexpr int kWantedHere = kWanted / kParts;
  const std::uint64_t first = static_cast<std::uint64_t>(GetParam()) * (kMostSeeds / kParts);
  const std::uint64_t end = first + kMostSeeds / kParts;
  Law law;
  int legal = 0;
  int trained = 0;
  std::int64_t checked = 0;
  for (std::uint64_t seed = first; seed < end && legal < kWantedHere; ++seed) {
    const std::optional<Drawn> drawn = draw(seed);
    if (!drawn) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const CheckResult check = run_over_ring(drawn->plan, {.warmup = 0, .steps = 2});
    EXPECT_EQ(check.wrong, 0) << check.first_wrong;
    EXPECT_GT(check.checked, 0);
    checked += check.checked;
    if (++legal % 4 != 0) continue;
    const Combination combination = {
        .options = drawn->options, .policy = "naive", .merge = drawn->source.schedule.merge};
    const Trained weights = train(drawn->plan, Law::kSteps, hyperparameters(combination));
    EXPECT_EQ(differences(law.reference(combination), weights), "");
    EXPECT_EQ(weights.disagreement, "");
    ++trained;
  }
  EXPECT_EQ(legal, kWantedHere);
  EXPECT_EQ(trained, kWantedHere / 4);
  // Two steps on two ranks; every schedule reduces all 5,000 gradient elements.
  EXPECT_GT(checked, std::int64_t{kWantedHere} * 2 * 2 * 5000);
}

// The Program's own collectives, placed at random beside random buckets: four ranks in two tensor-parallel
// and two data-parallel pairs find every value.
TEST(PlacedCollectivesTest, FindTheSameValuesWhereverTheyAreLaunched) {
  int placed = 0;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    schedule::Plan source;
    source.program = dovetail::testing::tensor_parallel(
        {.layers = static_cast<std::int32_t>(random.between(1, 3)),
         .work = schedule::MemoryWork{.bytes = kib(4), .flop = Flop(1)}});
    source.schedule = dovetail::testing::random_schedule(random, source.program);
    source.schedule.merge.micro_steps = static_cast<std::int32_t>(random.between(1, 2));
    dovetail::testing::place_collectives(random, source.program, source.schedule);
    placed += static_cast<int>(source.schedule.collectives.size());
    ScheduledProgram plan = schedule::lower(source.program, source.schedule).program;
    ASSERT_TRUE(schedule::verify(source.program, plan, source.schedule.merge).empty());
    plan.owed = owed_by(source);
    const CheckResult check = run_over_ring(plan, {.warmup = 0, .steps = 2});
    EXPECT_EQ(check.wrong, 0) << check.first_wrong;
    EXPECT_GT(check.checked, 0);
  }
  EXPECT_GT(placed, 20);
}

// All factors of the gradients that some op is to find.
std::vector<double> expected_factors(const ScheduledProgram& plan) {
  std::vector<double> factors;
  for (const values::Observation& look : values::expectations(plan, Rank{0}).observations) {
    for (const values::Piece& piece : look.expected) {
      for (const values::Term& term : piece.terms) factors.push_back(term.factor);
    }
  }
  return factors;
}

// What lowering writes into the Program that it hands on does not change what ranks must find: a factor
// that it forgot or applied twice, there and in the commands alike, is a wrong value.
TEST(RandomSchedulesTest, WhatRanksMustFindIsWhatTheUsersProgramOwes) {
  int compared = 0;
  for (std::uint64_t seed = 0; seed < kMostSeeds && compared < 20; ++seed) {
    const std::optional<Drawn> drawn = draw(seed);
    if (!drawn || drawn->plan.program.reductions.empty()) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::vector<double> expected = expected_factors(drawn->plan);
    ScheduledProgram changed = drawn->plan;
    changed.owed.clear();
    EXPECT_EQ(expected_factors(changed), expected) << "lowering owes something else";
    for (schedule::Reduction& reduction : changed.program.reductions) {
      reduction.scale = reduction.scale * Rational(1, 2);
    }
    EXPECT_NE(expected_factors(changed), expected);
    changed.owed = drawn->plan.owed;
    EXPECT_EQ(expected_factors(changed), expected);
    ++compared;
  }
  EXPECT_EQ(compared, 20);
}

// One mutation each of legal plans, the kinds in turn. Some plans have no place for a kind.
TEST(RandomSchedulesTest, IllegalOnesAreRefusedBeforeAnyRankStarts) {
  int refused = 0;
  std::size_t kind = 0;
  for (std::uint64_t seed = 0; seed < kMostSeeds && refused < kWanted; ++seed) {
    std::optional<Drawn> drawn = draw(seed);
    if (!drawn) continue;
    EXPECT_NO_THROW(require_legal(drawn->source, drawn->plan, "legal"));
    Random random(seed);
    for (int tries = 0; tries < 2; ++tries) {
      auto illegal = dovetail::testing::mutate(random, drawn->plan, kind++);
      if (!illegal) continue;
      SCOPED_TRACE("seed " + std::to_string(seed) + ": " + illegal->name);
      try {
        require_legal(drawn->source, illegal->plan, "plan.json");
        ADD_FAILURE() << "it would run";
      } catch (const InputError& error) {
        EXPECT_THAT(error.what(), StartsWith("plan.json: illegal schedule: "));
        ++refused;
      }
    }
  }
  EXPECT_GE(refused, kWanted);
}

}  // namespace
}  // namespace dovetail::exec::testing

// Which Scales a collective carries out.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/fold_scale.h"

#include "tests/exec/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <variant>
#include <vector>

namespace dovetail::exec::cuda {
namespace {

using schedule::Collective;
using schedule::Command;
using schedule::Communicate;
using schedule::Scale;
using schedule::ScaleAt;
using schedule::ScheduledProgram;

// Bucket 0: c and b, bucket 1: a.
ScheduledProgram scaled(std::int64_t ranks, ScaleAt scale,
                        Collective collective = Collective::AllReduce) {
  const schedule::Program program = testing::three_layers(ranks);
  schedule::Schedule schedule = testing::two_buckets_of(program);
  schedule.scale = scale;
  for (schedule::Bucket& bucket : schedule.buckets) bucket.collective = collective;
  return testing::plan_of(program, schedule);
}

// The command of a bucket that is of this type.
template <class Action>
CommandId of_bucket(const ScheduledProgram& plan, BucketId bucket) {
  for (const Command& command : plan.roles.at(0).commands) {
    const auto* action = std::get_if<Action>(&command.action);
    if (action != nullptr && action->bucket == bucket) return command.id;
  }
  ADD_FAILURE() << "no such command of bucket " << bucket;
  return {};
}

// One fold per bucket.
void expect_both(const ScheduledProgram& plan, FoldKind kind, Rational factor) {
  std::vector<Fold> expected;
  for (const BucketId bucket : {BucketId{0}, BucketId{1}}) {
    expected.push_back({.kind = kind,
                        .scale = of_bucket<Scale>(plan, bucket),
                        .collective = of_bucket<Communicate>(plan, bucket),
                        .factor = factor});
  }
  EXPECT_EQ(folds_of(plan, Rank{0}), expected);
}

// Puts a command behind the first one that satisfies a predicate.
void insert_behind(ScheduledProgram& plan, const std::function<bool(const Command&)>& predicate,
                   schedule::Action action) {
  std::vector<Command>& commands = plan.roles.at(0).commands;
  const auto found = std::find_if(commands.begin(), commands.end(), predicate);
  ASSERT_NE(found, commands.end());
  Command command = *found;
  command.id = CommandId{1000};
  command.action = std::move(action);
  commands.insert(found + 1, command);
}
bool is_scale(const Command& command) { return std::holds_alternative<Scale>(command.action); }
bool is_collective(const Command& command) { return bucket_collective(command) != nullptr; }

TEST(CudaFoldTest, AScaleInFrontIsMultipliedInByTheAllReduce) {
  expect_both(scaled(4, ScaleAt::BeforeCollective), FoldKind::PreMultiply, Rational(1, 4));
}

TEST(CudaFoldTest, AScaleBehindMakesTheSumAnAverage) {
  expect_both(scaled(4, ScaleAt::AfterCollective), FoldKind::Average, Rational(1, 4));
}

TEST(CudaFoldTest, AScatteredSumIsAveragedIntoItsShard) {
  expect_both(scaled(4, ScaleAt::AfterCollective, Collective::ReduceScatter), FoldKind::Average,
              Rational(1, 4));
}

// A reduce-scatter in place leaves the other shards as they are, and they would lack the factor.
TEST(CudaFoldTest, NothingIsMultipliedIntoAReduceScatter) {
  const ScheduledProgram plan = scaled(4, ScaleAt::BeforeCollective, Collective::ReduceScatter);
  EXPECT_TRUE(folds_of(plan, Rank{0}).empty());
}

// A third is no power of two: multiplied before the sum it rounds three times, after it once.
TEST(CudaFoldTest, FactorsThatRoundStayWhereTheyAre) {
  for (const ScaleAt scale : {ScaleAt::BeforeCollective, ScaleAt::AfterCollective}) {
    EXPECT_TRUE(folds_of(scaled(3, scale), Rank{0}).empty());
  }
}

TEST(CudaFoldTest, FactorsBelowTheNormalNumbersOfHalfPrecisionStay) {
  ScheduledProgram plan = scaled(4, ScaleAt::BeforeCollective);
  const auto set = [&](Rational factor) {
    for (Command& command : plan.roles.at(0).commands) {
      if (auto* scale = std::get_if<Scale>(&command.action)) scale->factor = factor;
    }
    return folds_of(plan, Rank{0}).size();
  };
  EXPECT_EQ(set(Rational(1, 16384)), 2U);  // 2^-14
  EXPECT_EQ(set(Rational(1, 32768)), 0U);
  EXPECT_EQ(set(Rational(-1, 4)), 0U);
  EXPECT_EQ(set(Rational(3, 4)), 0U);
  EXPECT_EQ(set(Rational(8)), 2U);
}

TEST(CudaFoldTest, ACommandInBetweenKeepsThemApart) {
  ScheduledProgram before = scaled(4, ScaleAt::BeforeCollective);
  insert_behind(before, is_scale, schedule::RunOp{OpId{0}});
  EXPECT_EQ(folds_of(before, Rank{0}).size(), 1U) << "only bucket 1 is left";
  ScheduledProgram after = scaled(4, ScaleAt::AfterCollective);
  insert_behind(after, is_collective, schedule::RunOp{OpId{0}});
  EXPECT_EQ(folds_of(after, Rank{0}).size(), 1U);
}

TEST(CudaFoldTest, AnEventInBetweenDoesNotInFrontButDoesBehind) {
  ScheduledProgram before = scaled(4, ScaleAt::BeforeCollective);
  insert_behind(before, is_scale, schedule::RecordEvent{EventId{99}});
  EXPECT_EQ(folds_of(before, Rank{0}).size(), 2U);
  // Whoever waits for that event reads the sum, not the average.
  ScheduledProgram after = scaled(4, ScaleAt::AfterCollective);
  insert_behind(after, is_collective, schedule::RecordEvent{EventId{99}});
  EXPECT_EQ(folds_of(after, Rank{0}).size(), 1U);
}

TEST(CudaFoldTest, OnlyTheDegreeOfTheGroupIsAnAverage) {
  ScheduledProgram plan = scaled(4, ScaleAt::AfterCollective);
  for (Command& command : plan.roles.at(0).commands) {
    if (auto* scale = std::get_if<Scale>(&command.action)) scale->factor = Rational(1, 8);
  }
  EXPECT_TRUE(folds_of(plan, Rank{0}).empty());
}

TEST(CudaFoldTest, AnotherBucketsScaleIsNotTaken) {
  ScheduledProgram plan = scaled(4, ScaleAt::BeforeCollective);
  for (Command& command : plan.roles.at(0).commands) {
    auto* scale = std::get_if<Scale>(&command.action);
    if (scale != nullptr) scale->bucket = BucketId{1 - scale->bucket.value};
  }
  EXPECT_TRUE(folds_of(plan, Rank{0}).empty());
}

// Ranks of one group that play different roles might decide differently.
TEST(CudaFoldTest, AGroupAcrossRolesIsLeftAlone) {
  ScheduledProgram plan = scaled(4, ScaleAt::BeforeCollective);
  schedule::RankProgram other = plan.roles.at(0);
  plan.roles.at(0).ranks = {Rank{0}, Rank{1}};
  other.ranks = {Rank{2}, Rank{3}};
  plan.roles.push_back(other);
  EXPECT_TRUE(folds_of(plan, Rank{0}).empty());
}

}  // namespace
}  // namespace dovetail::exec::cuda

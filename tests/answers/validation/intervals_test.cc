// Intervals from other yardsticks: every source weighs the same, and its own rows say nothing of itself.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/validation/intervals.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dovetail::yardsticks {
namespace {

// `count` rows of one group, measured at so many times of what is predicted.
void add(std::vector<StepOf>& steps, const std::string& yardstick, int count, double ratio) {
  for (int i = 0; i < count; ++i) {
    steps.push_back({.yardstick = yardstick,
                     .group = "one",
                     .predicted = 100.0 + i,
                     .measured = ratio * (100.0 + i)});
  }
}

const Coverage& of(const Intervals& found, const std::string& yardstick) {
  for (const Coverage& one : found.coverage) {
    if (one.yardstick == yardstick) return one;
  }
  ADD_FAILURE() << yardstick;
  return found.coverage.front();
}

TEST(IntervalsTest, YardsticksWeighTheSame) {
  std::vector<StepOf> steps;
  add(steps, "many", 100, 2);
  add(steps, "few", 5, 1.1);
  add(steps, "third", 5, 1.5);
  add(steps, "too few", 4, 9);
  const Intervals found = score_intervals(steps);
  EXPECT_EQ(found.all.at(jobs::StepKind::OneNode), (Range{.p5 = 1.1, .p50 = 1.5, .p95 = 2}));
  EXPECT_FALSE(found.all.contains(jobs::StepKind::SeveralNodes));
  // many's rows at 2 lie beyond what the others say, 1.1 to 1.5; third's lie inside 1.1 to 2.
  EXPECT_EQ(of(found, "many").rows, 100);
  EXPECT_EQ(of(found, "many").inside, 0);
  EXPECT_EQ(of(found, "many").others, (Range{.p5 = 1.1, .p50 = 1.1, .p95 = 1.5}));
  EXPECT_EQ(of(found, "third").inside, 5);
  EXPECT_EQ(of(found, "too few").inside, 0);
  // Four rows are six pairs, which say as little.
  EXPECT_EQ(of(found, "too few").own, std::nullopt);
  EXPECT_EQ(of(found, "too few").pairs, 6);
  EXPECT_EQ(of(found, "too few").apart, std::nullopt);
}

TEST(IntervalsTest, WhatTwoStepsShareDropsOutOfTheirRatio) {
  std::vector<StepOf> steps;
  add(steps, "shared", 6, 3);  // all of them three times as slow: every ratio as predicted
  add(steps, "spread", 6, 1);
  steps.back().measured *= 1.5;  // 5 of 15 pairs are off by 1.5
  const Intervals found = score_intervals(steps);
  EXPECT_NEAR(of(found, "shared").apart.value(), 1, 1e-9);
  EXPECT_NEAR(of(found, "shared").others_apart, 1.5, 1e-9);
  EXPECT_EQ(of(found, "shared").pairs_inside, 15);
  EXPECT_NEAR(of(found, "spread").apart.value(), 1.5, 1e-9);
  EXPECT_NEAR(of(found, "spread").others_apart, 1, 1e-9);
  EXPECT_EQ(of(found, "spread").pairs, 15);
}

TEST(IntervalsTest, RowsWithACauseOfTheirOwnAreJudgedApart) {
  std::vector<StepOf> steps;
  add(steps, "first", 6, 40);
  for (StepOf& step : steps) step.own_cause = "a slow network";
  add(steps, "first", 6, 1);
  add(steps, "second", 6, 1.2);
  const Intervals found = score_intervals(steps);
  EXPECT_EQ(found.all.at(jobs::StepKind::OneNode), (Range{.p5 = 1, .p50 = 1, .p95 = 1.2}));
  ASSERT_EQ(found.coverage.size(), 3U);
  EXPECT_EQ(found.coverage[1].own_cause, "a slow network");
  EXPECT_EQ(found.coverage[1].inside, 0);
  EXPECT_EQ(found.coverage[1].own.value().p50, 40);
  EXPECT_EQ(of(found, "second").others, (Range{.p5 = 1, .p50 = 1, .p95 = 1}));
}

TEST(IntervalsTest, AloneAYardstickIsNotJudged) {
  std::vector<StepOf> steps;
  add(steps, "only", 9, 1.2);
  const Intervals found = score_intervals(steps);
  EXPECT_TRUE(found.coverage.empty());
  EXPECT_EQ(found.all.at(jobs::StepKind::OneNode).p50, 1.2);
}

}  // namespace
}  // namespace dovetail::yardsticks

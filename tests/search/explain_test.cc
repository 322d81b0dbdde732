// What is said of a plan against what the simulator shows when it is done.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/costs/scaled_costs.h"
#include "search/same_kind.h"
#include "tests/support/programs.h"

namespace dovetail::search {
namespace {

struct Explained {
  schedule::Program program;
  models::Costs costs;
  schedule::Policy policy;
  schedule::Schedule plan;
  Explanation why;
};

// Eight layers on a machine with contention.
Explained explained(const std::string& text) {
  Explained result;
  const std::vector<testing::Layer> layers(
      8, {testing::us(100), testing::us(200), Bytes(400'000), testing::us(20)});
  result.program = testing::chain(layers);
  testing::SimpleMachine machine{.collective = testing::line(testing::us(30), 1)};
  machine.contention = {.compute_slowdown = 1.2, .collective_slowdown = 1, .collective_cpu = {}};
  machine.copy_ns_per_byte = 0.01;
  result.costs = testing::costs_of(machine, result.program);
  result.policy = schedule::parse_policy(text);
  Planner planner(result.program, result.costs);
  result.plan = planner.evaluate(result.policy).schedule;
  result.why = explain(planner, result.plan);
  return result;
}

double change(const Explained& of, const std::vector<std::size_t>& ends) {
  Planner planner(of.program, of.costs);
  const schedule::Schedule other =
      schedule::partition(of.program, ends, *searched_like(of.program, of.plan));
  return static_cast<double>(planner.evaluate(other).step_ns) /
             static_cast<double>(of.why.step.count()) -
         1;
}

TEST(ExplainTest, BordersAreWorthWhatTheSimulatorShows) {
  // Buckets of three gradients, and of the last two.
  const Explained one = explained("threshold:cap=1200000B");
  ASSERT_EQ(one.why.buckets.size(), 3U) << one.why.no_borders;
  const BucketBorders& first = one.why.buckets[0];
  EXPECT_EQ(first.gradients, 3U);
  EXPECT_EQ(first.bytes, Bytes(1'200'000));
  EXPECT_DOUBLE_EQ(first.joined.value(), change(one, {6, 8}));
  EXPECT_DOUBLE_EQ(first.earlier.value(), change(one, {2, 6, 8}));
  EXPECT_DOUBLE_EQ(first.later.value(), change(one, {4, 6, 8}));
  EXPECT_DOUBLE_EQ(first.split.value(), change(one, {2, 3, 6, 8}));
  EXPECT_GT(*first.joined, 0);
  const BucketBorders& last = one.why.buckets[2];
  EXPECT_FALSE(last.joined || last.earlier || last.later);
  EXPECT_TRUE(last.split);
}

TEST(ExplainTest, LeversAreThePlanAtOtherCosts) {
  const Explained one = explained("torch-ddp:cap=1200000B");
  ASSERT_EQ(one.why.levers.size(), 6U);  // with contention and copies
  for (const Lever& lever : one.why.levers) {
    if (!lever.what.starts_with("link bandwidth")) continue;
    Planner faster(one.program, models::scaled(one.costs, models::CostPart::Link, 0.8));
    EXPECT_EQ(lever.step.count(), faster.evaluate(one.plan).step_ns);
  }
  EXPECT_TRUE(std::ranges::is_sorted(one.why.levers, {}, &Lever::step));
  EXPECT_LT(one.why.levers.front().step, one.why.step);
}

TEST(ExplainTest, ThePlanIsComparedWithTheSearchOfItsOwnKind) {
  for (const char* text : {"one-bucket", "torch-ddp", "sharded:p=1,mode=view+threshold:cap=1MiB",
                           "fsdp", "fsdp:forward=2,backward=2,reshard=no"}) {
    SCOPED_TRACE(text);
    const Explained one = explained(text);
    ASSERT_TRUE(one.why.searched);
    EXPECT_LE(one.why.searched->step * 1000, one.why.step * 1001);
    const schedule::Policy& like = one.why.searched->policy;
    EXPECT_EQ(like.decisions.sharding.has_value(), one.policy.decisions.sharding.has_value());
    EXPECT_EQ(like.decisions.gathers.has_value(), one.policy.decisions.gathers.has_value());
    EXPECT_EQ(schedule::placement(like).mode, schedule::placement(one.policy).mode);
    EXPECT_FALSE(one.why.buckets.empty()) << one.why.no_borders;
    EXPECT_TRUE(one.why.bound);
  }
  const Explained ahead = explained("fsdp:forward=2,backward=2,reshard=no");
  EXPECT_EQ(ahead.why.searched->policy.decisions.gathers->forward, 2);
  EXPECT_EQ(ahead.why.searched->policy.decisions.gathers->reshard, schedule::Choice::No);
}

TEST(ExplainTest, WhatTheSearchDoesNotKnowIsSaid) {
  for (const char* text : {"gradient-merge:k=2", "sharded:cap=1MiB", "per-tensor:streams=2"}) {
    SCOPED_TRACE(text);
    const Explained one = explained(text);
    EXPECT_FALSE(one.why.searched);
    EXPECT_TRUE(one.why.buckets.empty());
    EXPECT_NE(one.why.no_borders, "");
    EXPECT_FALSE(one.why.levers.empty());
  }
}

}  // namespace
}  // namespace dovetail::search

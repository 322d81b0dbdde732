// The evaluator against the simulator: every grouping of small programs, random placements of these and
// of models of the zoo, and changes of settled candidates. All to the nanosecond.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/step_model.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lower/lower.h"
#include "models/cluster.h"
#include "models/zoo.h"
#include "policies/policies.h"
#include "sim/steady.h"
#include "tests/support/placements.h"
#include "tests/support/programs.h"
#include "verify/verify.h"

namespace dovetail::search {
namespace {

using schedule::BucketMode;
using schedule::ScaleAt;
using schedule::WaitPoint;

struct Case {
  schedule::Program program;
  models::Costs costs;
  schedule::Schedule frame;
};

schedule::Schedule frame_of(const schedule::Program& program, const std::string& policy) {
  return schedule::make_schedule(program, schedule::parse_policy(policy));
}

// All ranks alike; contention of every kind.
Case small_case(std::uint64_t seed, std::int64_t layers) {
  Random random(seed);
  Case result;
  result.program = testing::random_chain(random, layers, 2);
  testing::SimpleMachine machine = testing::random_machine(random);
  if (random.between(0, 3) > 0) testing::contend(random, machine);
  result.costs = testing::costs_of(machine, result.program);
  result.costs.distinct_ranks = 1;
  const char* const scales[] = {"collective", "collective", "before-collective", "after-collective",
                                "optimizer"};
  result.frame =
      frame_of(result.program, "per-tensor:scale=" + std::string(scales[random.between(0, 4)]));
  if (random.between(0, 2) == 0) {
    for (schedule::Bucket& bucket : result.frame.buckets) {
      bucket.pad_to = Bytes(256);
      bucket.align_to = Bytes(64);
    }
  }
  return result;
}

class Simulator {
 public:
  explicit Simulator(const Case& of) : case_(of) {}

  [[nodiscard]] sim::SteadyState play(const schedule::Schedule& schedule) {
    const schedule::Lowered lowered = schedule::lower(case_.program, schedule);
    return sim::find_steady_state(lowered.program, case_.costs, compiled_, workspace_);
  }

  void expect_equal(const StepModel& model, const Choices& choices,
                    const std::optional<sim::StepSummary>& found) {
    if (!found) return;  // counted
    const sim::SteadyState steady = play(model.schedule_of(choices));
    EXPECT_EQ(found->step_ns, steady.summary.step_ns);
    EXPECT_EQ(found->exposed_ns, steady.summary.exposed_ns);
    EXPECT_EQ(found->communication_ns, steady.summary.communication_ns);
    EXPECT_EQ(found->compute_ns, steady.summary.compute_ns);
  }

 private:
  const Case& case_;
  sim::CompiledProgram compiled_;
  sim::Workspace workspace_;
};

struct Tally {
  StepModel::Counts counts;
  void add(const StepWorkspace& workspace) {
    const StepModel::Counts& more = StepModel::counts(workspace);
    counts.quick += more.quick;
    counts.full += more.full;
    counts.steps += more.steps;
    counts.none += more.none;
  }
  [[nodiscard]] std::int64_t answered() const { return counts.quick + counts.full + counts.steps; }
};

TEST(StepModelTest, EveryGroupingOfSmallProgramsIsAsSimulated) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case small = small_case(seed, 6);
    const StepModel::Made made = StepModel::make(small.program, small.costs, small.frame);
    ASSERT_TRUE(made.model) << made.refusal;
    StepWorkspace workspace = made.model->workspace();
    Simulator simulator(small);
    const auto count = static_cast<std::size_t>(made.model->gradients());
    for (const auto& ends : testing::all_groupings(count)) {
      const auto mode = seed % 2 == 0 ? BucketMode::View : BucketMode::Copy;
      const auto wait = seed % 3 == 0 ? WaitPoint::EndOfBackward : WaitPoint::FirstUse;
      const Choices choices = testing::choices_with_ends(ends, mode, wait);
      simulator.expect_equal(*made.model, choices, made.model->evaluate(choices, workspace));
      if (::testing::Test::HasFailure()) return;
    }
    tally.add(workspace);
  }
  EXPECT_GT(tally.counts.quick, 50);
  EXPECT_GT(tally.counts.full + tally.counts.steps, 100);
  EXPECT_LT(tally.counts.none, tally.answered() / 10);
}

TEST(StepModelTest, RandomPlacementsOfSmallProgramsAreAsSimulated) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case small = small_case(1000 + seed, 12);
    const StepModel::Made made = StepModel::make(small.program, small.costs, small.frame);
    ASSERT_TRUE(made.model) << made.refusal;
    StepWorkspace workspace = made.model->workspace();
    Simulator simulator(small);
    Random random(seed);
    for (int i = 0; i < 8; ++i) {
      const Choices choices = testing::random_choices(random, *made.model, 3);
      simulator.expect_equal(*made.model, choices, made.model->evaluate(choices, workspace));
      if (::testing::Test::HasFailure()) return;
    }
    tally.add(workspace);
  }
  EXPECT_GT(tally.counts.quick, 20);
  EXPECT_GT(tally.counts.full + tally.counts.steps, 100);
  EXPECT_LT(tally.counts.none, tally.answered() / 10);
}

Case zoo_case(const std::string& model, const std::string& cluster, const std::string& policy) {
  const std::string data = std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters";
  const models::Cluster machine = models::load_cluster(cluster, data);
  Case result;
  result.program = models::zoo_program(model, {.world_size = machine.ranks});
  result.costs = models::costs_for(machine, result.program);
  result.frame = frame_of(result.program, policy);
  return result;
}

// bench/step_bench --check=N does the same for as many as one likes.
TEST(StepModelTest, RandomPlacementsOfModelsAreAsSimulated) {
  struct Pair {
    const char* model;
    const char* cluster;
    const char* policy;
  };
  constexpr Pair kPairs[] = {{"mlp", "a100x8", "per-tensor"},
                             {"resnet18", "a100x4_pcie", "per-tensor"},
                             {"googlenet", "b200x8", "per-tensor"},
                             {"resnet50", "a100x16_ib", "per-tensor:scale=before-collective"},
                             {"vgg16", "h100x16_tcpx", "gradient-merge:k=2"}};
  Tally tally;
  for (const Pair& pair : kPairs) {
    SCOPED_TRACE(std::string(pair.model) + " on " + pair.cluster);
    const Case model_case = zoo_case(pair.model, pair.cluster, pair.policy);
    const StepModel::Made made =
        StepModel::make(model_case.program, model_case.costs, model_case.frame);
    ASSERT_TRUE(made.model) << made.refusal;
    StepWorkspace workspace = made.model->workspace();
    Simulator simulator(model_case);
    Random random(7);
    for (int i = 0; i < 12; ++i) {
      const Choices choices = testing::random_choices(random, *made.model, 2 + 3 * i);
      simulator.expect_equal(*made.model, choices, made.model->evaluate(choices, workspace));
      if (::testing::Test::HasFailure()) return;
    }
    tally.add(workspace);
  }
  EXPECT_GT(tally.counts.quick, 20);
  EXPECT_GT(tally.counts.full, 5);
  EXPECT_EQ(tally.counts.none, 0);
}

// Random changes of random settled candidates, each against a walk from nothing in another workspace.
StepModel::Counts compare_changes(const StepModel& model, std::uint64_t seed, int rounds) {
  StepWorkspace workspace = model.workspace();
  StepWorkspace fresh = model.workspace();
  Random random(seed);
  for (int round = 0; round < rounds; ++round) {
    const Choices settled = testing::random_choices(random, model, 5);
    static_cast<void>(model.settle(settled, workspace));
    for (int i = 0; i < 20; ++i) {
      Choices changed = settled;
      std::size_t first = testing::random_change(random, model, changed);
      first = std::min(first, changed.size() - 1);
      const auto found = model.evaluate_change(changed, first, workspace);
      const auto expected = model.evaluate(changed, fresh);
      EXPECT_EQ(found.has_value(), expected.has_value());
      if (!found || !expected) continue;
      EXPECT_EQ(found->step_ns, expected->step_ns);
      EXPECT_EQ(found->exposed_ns, expected->exposed_ns);
      EXPECT_EQ(found->communication_ns, expected->communication_ns);
      EXPECT_EQ(found->compute_ns, expected->compute_ns);
      if (::testing::Test::HasFailure()) {
        ADD_FAILURE() << "round " << round << "/" << i;
        return {};
      }
    }
  }
  return StepModel::counts(workspace);
}

// A change is walked from the first bucket that differs; the answer is that of a walk from nothing.
TEST(StepModelTest, AChangeOfASettledCandidateIsAsOneFromNothing) {
  StepModel::Counts counts;
  for (const char* policy : {"per-tensor", "per-tensor:scale=before-collective"}) {
    SCOPED_TRACE(policy);
    const Case model_case = zoo_case("resnet18", "a100x8", policy);
    const StepModel::Made made =
        StepModel::make(model_case.program, model_case.costs, model_case.frame);
    ASSERT_TRUE(made.model) << made.refusal;
    const StepModel::Counts more = compare_changes(*made.model, 11, 60);
    counts.quick += more.quick;
    counts.full += more.full;
  }
  EXPECT_GT(counts.quick, 1000);
  EXPECT_GT(counts.full, 300);
}

// Buckets of two gradients, and every border moved by one; gives how many of these rejoin.
std::int64_t move_borders(const Case& model_case, BucketMode mode, std::int32_t streams) {
  const StepModel::Made made =
      StepModel::make(model_case.program, model_case.costs, model_case.frame);
  EXPECT_TRUE(made.model) << made.refusal;
  if (!made.model) return 0;
  std::vector<std::size_t> ends;
  for (std::int32_t i = 2; i < made.model->gradients(); i += 2) {
    ends.push_back(static_cast<std::size_t>(i));
  }
  ends.push_back(static_cast<std::size_t>(made.model->gradients()));
  Choices settled = testing::choices_with_ends(ends, mode, schedule::WaitPoint::FirstUse);
  std::int32_t next = 0;
  for (BucketChoice& choice : settled) choice.stream = next++ % streams;
  StepWorkspace workspace = made.model->workspace();
  StepWorkspace fresh = made.model->workspace();
  EXPECT_TRUE(made.model->settle(settled, workspace));
  for (std::size_t b = 0; b + 1 < settled.size(); ++b) {
    Choices changed = settled;
    --changed[b].end;
    --changed[b + 1].begin;
    const auto found = made.model->evaluate_change(changed, b, workspace);
    const auto expected = made.model->evaluate(changed, fresh);
    EXPECT_TRUE(found && expected) << b;
    if (!found || !expected) return 0;
    EXPECT_EQ(found->step_ns, expected->step_ns) << b;
    EXPECT_EQ(found->exposed_ns, expected->exposed_ns) << b;
    EXPECT_EQ(found->communication_ns, expected->communication_ns) << b;
    EXPECT_EQ(found->compute_ns, expected->compute_ns) << b;
  }
  return StepModel::counts(workspace).rejoined;
}

// What follows a moved border soon stands as before.
TEST(StepModelTest, AMovedBorderRejoinsTheSettledCandidate) {
  const Case model_case = zoo_case("resnet50", "a100x8", "per-tensor");
  EXPECT_GT(move_borders(model_case, BucketMode::View, 2), 20);
}

// A machine of processors: waking up takes time, and so does each collective, of the core that computes.
Case by_processors(const std::string& model, const std::string& cluster) {
  Case result = zoo_case(model, cluster, "per-tensor");
  result.costs.host = {.kind = models::HostModel::Kind::Inline,
                       .collective = std::chrono::microseconds(2),
                       .event = std::chrono::microseconds(1),
                       .copy = std::chrono::microseconds(1)};
  result.costs.contention_by_class = {{.compute_slowdown = 1.15,
                                       .collective_slowdown = 1.2,
                                       .collective_cpu = std::chrono::microseconds(10)}};
  return result;
}

TEST(StepModelTest, AMovedBorderRejoinsWhereWaitsAndCopiesTakeTime) {
  for (const BucketMode mode : {BucketMode::View, BucketMode::Copy}) {
    SCOPED_TRACE(to_string(mode));
    EXPECT_GT(move_borders(by_processors("resnet50", "a100x8"), mode, 1), 20);
  }
}

// Transfers that are mostly behind: ops run beside the same ones as before, but later or earlier.
TEST(StepModelTest, AMovedBorderIsAsFromNothingWhereTransfersAreBehind) {
  for (const BucketMode mode : {BucketMode::View, BucketMode::Copy}) {
    SCOPED_TRACE(to_string(mode));
    static_cast<void>(move_borders(by_processors("bert_base", "a100x4_pcie"), mode, 1));
    static_cast<void>(move_borders(by_processors("vgg16", "a100x4_pcie"), mode, 1));
  }
}

// Contention of every kind, both kinds of hosts, links that are shared.
TEST(StepModelTest, AChangeUnderContentionIsAsOneFromNothing) {
  StepModel::Counts counts;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case small = small_case(2000 + seed, 14);
    const StepModel::Made made = StepModel::make(small.program, small.costs, small.frame);
    ASSERT_TRUE(made.model) << made.refusal;
    counts.full += compare_changes(*made.model, seed, 4).full;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(counts.full, 500);
}

// What policies make can be read as choices, and means the same.
TEST(StepModelTest, SchedulesOfPoliciesAreReadAsChoices) {
  const Case model_case = zoo_case("resnet18", "a100x8", "per-tensor");
  const StepModel::Made made =
      StepModel::make(model_case.program, model_case.costs, model_case.frame);
  ASSERT_TRUE(made.model) << made.refusal;
  StepWorkspace workspace = made.model->workspace();
  Simulator simulator(model_case);
  for (const char* policy : {"torch-ddp", "threshold", "per-tensor", "one-bucket", "no-overlap",
                             "threshold:threshold=4MiB,batch=3", "torch-ddp:scope=whole-stream"}) {
    SCOPED_TRACE(policy);
    const schedule::Schedule schedule = frame_of(model_case.program, policy);
    const std::optional<Choices> choices = made.model->choices_of(schedule);
    ASSERT_TRUE(choices);
    simulator.expect_equal(*made.model, *choices, made.model->evaluate(*choices, workspace));
    const auto found = made.model->evaluate(*choices, workspace);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step_ns, simulator.play(schedule).summary.step_ns);
    const auto again = made.model->choices_of(made.model->schedule_of(*choices));
    ASSERT_TRUE(again);
    EXPECT_EQ(made.model->evaluate(*again, workspace)->step_ns, found->step_ns);
  }
  EXPECT_FALSE(made.model->choices_of(frame_of(model_case.program, "naive")));
  EXPECT_FALSE(made.model->choices_of(frame_of(model_case.program, "sharded")));
  EXPECT_FALSE(made.model->choices_of(
      frame_of(model_case.program, "threshold:threshold=4MiB,batch=2,wait=before-next-batch")));
}

TEST(StepModelTest, WhatItCannotDoIsRefusedWithAReason) {
  const Case sharded = zoo_case("mlp", "a100x8", "sharded");
  EXPECT_EQ(StepModel::make(sharded.program, sharded.costs, sharded.frame).refusal,
            "updates are sharded");
  Case ranks = small_case(5, 6);
  ranks.costs.distinct_ranks = 2;
  EXPECT_EQ(StepModel::make(ranks.program, ranks.costs, ranks.frame).refusal, "ranks differ");
  const Case every = zoo_case("mlp", "a100x8", "gradient-merge:k=2,sync=every");
  EXPECT_EQ(StepModel::make(every.program, every.costs, every.frame).refusal,
            "every micro-step reduces");
}

// What the random placements are is legal: no order, delay, stream or mode of them is refused.
TEST(StepModelTest, RandomPlacementsAreLegal) {
  const Case model_case = zoo_case("resnet18", "a100x8", "per-tensor");
  const StepModel::Made made =
      StepModel::make(model_case.program, model_case.costs, model_case.frame);
  ASSERT_TRUE(made.model) << made.refusal;
  Random random(3);
  for (int i = 0; i < 6; ++i) {
    const Choices choices = testing::random_choices(random, *made.model, 6);
    const schedule::Lowered lowered =
        schedule::lower(model_case.program, made.model->schedule_of(choices));
    const auto problems = schedule::verify(model_case.program, lowered.program);
    EXPECT_TRUE(problems.empty()) << problems.front().message;
  }
}

}  // namespace
}  // namespace dovetail::search

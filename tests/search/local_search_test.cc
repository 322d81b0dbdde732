// The local search: what it finds is as simulated, legal, no worse than its starts, and always the same.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/local_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "models/clusters/cluster.h"
#include "models/networks/zoo.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "schedule/verify/verify.h"
#include "search/planner.h"
#include "search/schedule_memo.h"
#include "sim/steady.h"

namespace dovetail::search {
namespace {

struct Step {
  schedule::Program program;
  models::Costs costs;
};

Step step_of(const std::string& model, const std::string& cluster) {
  const models::Cluster machine =
      models::load_cluster(cluster, std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters");
  Step step{.program = models::zoo_program(model, {.world_size = machine.ranks}), .costs = {}};
  step.costs = models::costs_for(machine, step.program);
  return step;
}

schedule::Schedule made(const Step& step, const std::string& policy) {
  return schedule::make_schedule(step.program, schedule::parse_policy(policy));
}

std::vector<Placed> starts_of(const Step& step, const StepModel& model) {
  std::vector<Placed> starts;
  StepWorkspace workspace = model.workspace();
  for (const char* policy :
       {"threshold:cap=2MiB", "one-bucket", "torch-ddp:mode=view,scale=collective"}) {
    Choices choices = model.choices_of(made(step, policy)).value();
    const Duration time = model.evaluate(choices, workspace);
    starts.push_back({std::move(choices), time});
  }
  return starts;
}

TEST(LocalSearchTest, WhatItFindsIsAsSimulatedAndLegalAndNoWorseThanItsStarts) {
  const Step step = step_of("vgg16", "b200x8");
  const StepModel::Made model = StepModel::make(step.program, step.costs, made(step, "threshold"));
  ASSERT_TRUE(model.model) << model.refusal;
  const std::vector<Placed> starts = starts_of(step, *model.model);
  const Duration best_start = std::ranges::min_element(starts, {}, &Placed::step)->step;
  for (const Moves moves : {Moves::Groupings, Moves::Delays}) {
    const LocalSearchOptions options{.moves = moves, .evaluations = 600};
    const LocalSearchResult found = local_search(*model.model, starts, options);
    EXPECT_LE(found.evaluations, options.evaluations);
    if (moves == Moves::Groupings) {
      EXPECT_LT(found.best.step, best_start);
    } else {
      EXPECT_LE(found.best.step, best_start);
    }
    const schedule::Schedule schedule = model.model->schedule_of(found.best.choices);
    const schedule::Lowered lowered = schedule::lower(step.program, schedule);
    EXPECT_TRUE(schedule::verify(step.program, lowered.program).empty());
    sim::CompiledProgram compiled;
    sim::Workspace memory;
    const sim::SteadyState steady =
        sim::find_steady_state(lowered.program, step.costs, compiled, memory);
    EXPECT_EQ(Duration(steady.summary.step_ns), found.best.step);
    EXPECT_EQ(local_search(*model.model, starts, options).best.choices, found.best.choices);
  }
}

// A candidate carries its Schedule, so nothing has to be found again by the name of its policy.
TEST(LocalSearchTest, ACandidateOfThePlannerIsItsSchedule) {
  const Step step = step_of("resnet18", "a100x8");
  Planner planner(step.program, step.costs);
  for (const char* policy : {"exact", "torch-ddp"}) {
    const Candidate candidate = planner.evaluate(schedule::parse_policy(policy));
    const std::size_t simulated = planner.simulated();
    EXPECT_EQ(planner.evaluate(candidate.schedule).step_ns, candidate.summary.step_ns);
    EXPECT_EQ(planner.simulated(), simulated) << "an equal Schedule is known";
    EXPECT_FALSE(planner.verified(candidate.schedule).roles.empty());
    EXPECT_EQ(planner.lower_bound(candidate).problem, "");
  }
}

TEST(LocalSearchTest, AMemoTellsSchedulesApartByAllThatDecidesTheirTime) {
  const Step step = step_of("mlp", "a100x8");
  const schedule::Schedule schedule = made(step, "per-tensor");
  ScheduleMemo memo;
  memo.keep(schedule, {.step_ns = 7});
  schedule::Schedule other = schedule;
  other.policy = "by hand";
  other.buckets[0].closed_by = "me";
  ASSERT_NE(memo.find(other), nullptr);
  EXPECT_EQ(memo.find(other)->step_ns, 7);
  other.buckets[1].launch = schedule::LaunchAfterOp{step.program.ops.front().id};
  EXPECT_EQ(memo.find(other), nullptr);
  other = schedule;
  other.buckets[1].max_ctas = 4;
  EXPECT_EQ(memo.find(other), nullptr);
  other = schedule;
  std::swap(other.buckets[0].gradients, other.buckets[1].gradients);
  EXPECT_EQ(memo.find(other), nullptr);
}

}  // namespace
}  // namespace dovetail::search

// The planner's bound lies below everything it finds, and its exact policy is optimal where the
// model is relaxed.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "models/rates/collective_table.h"
#include "schedule/lower/lower.h"
#include "tests/support/programs.h"

namespace dovetail::search {
namespace {

std::vector<models::CollectivePoint> random_points(Random& random) {
  std::vector<models::CollectivePoint> points;
  std::int64_t bytes = 64;
  std::int64_t time = random.between(500, 5000);
  for (int i = 0; i < 8; ++i) {
    models::CollectivePoint point;
    point.bytes = Bytes(bytes);
    point.isolated = Duration(time);
    point.back_to_back = Duration(std::max<std::int64_t>(1, time + random.between(-400, 400)));
    points.push_back(point);
    bytes *= 4;
    time += random.between(0, 4000);
  }
  return points;
}

struct Instance {
  schedule::Program program;
  models::Costs costs;
  models::CollectiveTable table;
};

Instance random_instance(std::uint64_t seed, std::int64_t layers, bool relaxed) {
  Random random(seed);
  schedule::Program program = testing::random_chain(random, layers, 2);
  std::vector<models::CollectivePoint> points = random_points(random);
  testing::SimpleMachine machine = testing::random_machine(random);
  if (relaxed) {
    machine.host = {.kind = models::HostModel::Kind::Inline};
    machine.copy_ns_per_byte = 0;
    for (models::CollectivePoint& point : points) point.back_to_back.reset();
  } else {
    machine.contention = {.compute_slowdown = 1 + random.uniform() * 0.5,
                          .collective_slowdown = 1 + random.uniform() * 0.2,
                          .collective_cpu = Duration(random.between(0, 300))};
  }
  const models::CollectiveTable table(points);
  machine.collective = table;
  models::Costs costs = testing::costs_of(machine, program);
  return {std::move(program), std::move(costs), table};
}

// Of a bound that does not hold nothing is left.
std::int64_t bound_of(Planner& planner, const Candidate& found) {
  return planner.lower_bound(found).time.value_or(Duration::max()).count();
}

// In every third instance no optimizer op reads the gradient that is ready last.
TEST(PlannerTest, NoGroupingBeatsTheLowerBound) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Instance instance = random_instance(seed, 7, false);
    if (seed % 3 == 0) {
      const TensorId last = schedule::owed_gradients(instance.program).back().tensor;
      for (schedule::Op& op : instance.program.ops) std::erase(op.reads, last);
    }
    const schedule::Program program = instance.program;
    const models::Costs costs = instance.costs;
    Planner planner(std::move(instance.program), std::move(instance.costs));
    const Candidate found = planner.evaluate(schedule::parse_policy("exact"));
    const std::int64_t bound = bound_of(planner, found);
    for (const auto& ends : testing::all_groupings(program.reductions.size())) {
      const auto schedule = schedule::partition(program, ends, schedule::parse_policy("exact"));
      const sim::CompiledProgram compiled =
          sim::compile(schedule::lower(program, schedule).program, costs, 2);
      sim::Workspace workspace;
      sim::play(compiled.graph, workspace);
      EXPECT_GE(sim::summarize(compiled.graph, workspace.timeline).step_ns, bound);
    }
    EXPECT_GE(found.summary.step_ns, bound);
  }
}

// With waits at the end of backward the step is max(backward, last completion) + optimizer, so the
// earliest last completion is the best step: the exact policy must equal the best of all groupings.
TEST(PlannerTest, TheExactPolicyIsTheBestOfAllGroupingsWithoutContention) {
  std::size_t compared = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Instance instance = random_instance(seed, 7, true);
    const schedule::Program program = instance.program;
    const models::Costs costs = instance.costs;
    // A falling table is read through its hull, which a bucket without padding cannot reach.
    const auto hull = instance.table.hull(models::TimeKind::Isolated);
    bool rising = true;
    for (std::int64_t bytes = 4; bytes < 200'000; bytes += 4 + bytes / 3) {
      const auto gap =
          instance.table.time(Bytes(bytes)).isolated - models::evaluate(hull, Bytes(bytes));
      rising = rising && gap <= Duration(1);
    }
    if (!rising) continue;
    Planner planner(std::move(instance.program), std::move(instance.costs));
    const auto spec = schedule::parse_policy("exact:wait=end-of-backward");
    std::int64_t best = INT64_MAX;
    for (const auto& ends : testing::all_groupings(program.reductions.size())) {
      const auto schedule = schedule::partition(program, ends, spec);
      const sim::CompiledProgram compiled =
          sim::compile(schedule::lower(program, schedule).program, costs, 2);
      sim::Workspace workspace;
      sim::play(compiled.graph, workspace);
      best = std::min(best, sim::summarize(compiled.graph, workspace.timeline).step_ns);
    }
    // Each collective's time is rounded once to whole ns.
    EXPECT_LE(planner.evaluate(spec).summary.step_ns,
              best + static_cast<std::int64_t>(program.reductions.size()));
    ++compared;
  }
  EXPECT_GT(compared, 20u);
}

// The shortest step of all groupings into consecutive buckets, and by how much the search is above it.
double above_the_best_grouping(std::uint64_t seed, const char* text) {
  Instance instance = random_instance(seed, 9, false);
  const schedule::Program program = instance.program;
  Planner planner(std::move(instance.program), std::move(instance.costs));
  const auto spec = schedule::parse_policy(text);
  std::int64_t best = INT64_MAX;
  for (const auto& ends : testing::all_groupings(program.reductions.size())) {
    const schedule::PolicyResult made = schedule::try_partition(program, ends, spec);
    if (!made.failure) best = std::min(best, planner.evaluate(made.schedule).step_ns);
  }
  const Candidate found = planner.evaluate(spec);
  EXPECT_NO_THROW(static_cast<void>(planner.verified(found.schedule)));
  return static_cast<double>(found.summary.step_ns) / static_cast<double>(best) - 1;
}

TEST(PlannerTest, ShardedUpdatesAndBlocksAreGroupedAsWellAsAnyGroupingIs) {
  for (const char* text : {"sharded:p=1,gather=next-forward,mode=view+exact",
                           "sharded:p=1,mode=view+exact", "fsdp:memory=1GiB+exact"}) {
    int missed = 0;
    for (std::uint64_t seed = 0; seed < 25; ++seed) {
      SCOPED_TRACE(std::string(text) + ", seed " + std::to_string(seed));
      const double above = above_the_best_grouping(seed, text);
      EXPECT_LT(above, 0.03);
      missed += above > 0.002 ? 1 : 0;
    }
    EXPECT_LE(missed, 2) << text;
  }
}

TEST(PlannerTest, SearchedBlocksNeedNoMoreMemoryThanLayersUnlessMoreIsAllowed) {
  std::size_t fewer = 0;
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Instance instance = random_instance(seed, 9, false);
    const schedule::Program program = instance.program;
    Planner planner(std::move(instance.program), std::move(instance.costs));
    const auto layers = schedule::parse_policy("fsdp");
    const Candidate found = planner.evaluate(schedule::parse_policy("fsdp+exact"));
    const Candidate plain = planner.evaluate(layers);
    // Of groupings within 0.1 % of each other the one of smaller blocks.
    EXPECT_LE(static_cast<double>(found.summary.step_ns),
              1.001 * static_cast<double>(plain.summary.step_ns));
    EXPECT_EQ(found.schedule.gather_limit, schedule::GatherLimit{});
    schedule::Schedule limited = found.schedule;
    limited.gather_limit.bytes = schedule::apply_policy(program, layers).most_gathered;
    EXPECT_NO_THROW(static_cast<void>(planner.verified(limited)));
    fewer += found.buckets() < plain.buckets() ? 1 : 0;
  }
  EXPECT_GT(fewer, 5U);
}

// The bound is of whole gradients in consecutive buckets, in ready order, on one stream: nothing else
// is said to be bounded.
TEST(PlannerTest, OnlyConsecutiveBucketsOfWholeGradientsOnOneStreamAreBounded) {
  Instance instance = random_instance(3, 6, true);
  for (std::uint64_t seed = 3; instance.program.reductions.size() < 3; ++seed) {
    instance = random_instance(seed, 6, true);
  }
  const schedule::Program program = instance.program;
  Planner planner(std::move(instance.program), std::move(instance.costs));
  const schedule::Schedule plain =
      schedule::make_schedule(program, schedule::parse_policy("per-tensor"));
  EXPECT_TRUE(planner.is_bounded(plain));
  schedule::Schedule other = plain;
  std::swap(other.buckets[0], other.buckets[1]);
  EXPECT_FALSE(planner.is_bounded(other)) << "launched in another order";
  other = plain;
  other.buckets[0].gradients.push_back(other.buckets[2].gradients.front());
  other.buckets.erase(other.buckets.begin() + 2);
  EXPECT_FALSE(planner.is_bounded(other)) << "not consecutive";
  std::swap(other.buckets[0].gradients[0], other.buckets[0].gradients[1]);
  EXPECT_FALSE(planner.is_bounded(other));
  other = plain;
  other.buckets[0].stream = schedule::CommStream{1};
  EXPECT_FALSE(planner.is_bounded(other)) << "two streams";
  other = plain;
  other.buckets[0].gradients[0].first = 1;
  EXPECT_FALSE(planner.is_bounded(other)) << "a part of a gradient";
  other = plain;
  other.merge.micro_steps = 2;
  EXPECT_TRUE(planner.is_bounded(other)) << "two micro-steps";
  other = plain;  // in one bucket the order does not matter
  other.buckets = {plain.buckets[0]};
  other.buckets[0].gradients.clear();
  for (std::size_t i = plain.buckets.size(); i-- > 0;) {
    other.buckets[0].gradients.push_back(plain.buckets[i].gradients.front());
  }
  EXPECT_TRUE(planner.is_bounded(other));
}

// One curve bounds all buckets; two groups of a size have two where they lie on other nodes.
TEST(PlannerTest, GroupsOfOneSizeAreBoundedOnlyWhereTheyLieAlike) {
  Random random(7);
  schedule::Program program = testing::random_chain(random, 6, 4);
  while (program.reductions.size() < 2) program = testing::random_chain(random, 6, 4);
  schedule::ProcessGroup across = program.groups.front();
  program.groups.front().instance_size = 2;  // 0 1 and 2 3, in nodes of two
  across.id = GroupId{program.groups.front().id.value + 1};
  across.name = "across";
  across.ranks = {Rank{0}, Rank{2}, Rank{1}, Rank{3}};
  across.instance_size = 2;
  program.groups.push_back(across);
  program.reductions.back().group = across.id;
  const schedule::Schedule plain =
      schedule::make_schedule(program, schedule::parse_policy("per-tensor"));
  models::Costs costs = testing::costs_of({}, program);
  EXPECT_TRUE(Planner(program, costs).is_bounded(plain));

  costs.unit_ranks = {2};
  const std::vector<models::CollectiveCost> anywhere = std::move(costs.collectives);
  costs.collectives.clear();
  for (models::CollectiveCost cost : anywhere) {
    for (const std::int64_t nodes : {1, 2}) {
      cost.key.nodes = nodes;
      costs.collectives.push_back(cost);
    }
  }
  EXPECT_FALSE(Planner(program, costs).is_bounded(plain));
}

TEST(PlannerTest, ABoundThatDoesNotHoldIsToldInOneLine) {
  Candidate found;
  found.spec = schedule::parse_policy("per-tensor");
  found.summary.step_ns = 2'000'000;
  EXPECT_EQ(checked_bound(Duration(2'000'000), found).time, Duration(2'000'000));
  const Bound wrong = checked_bound(Duration(3'000'000), found);
  EXPECT_EQ(wrong.time, std::nullopt);
  EXPECT_EQ(wrong.problem,
            "the lower bound of 3 ms does not hold, so none is given: per-tensor takes 2 ms");
}

// With contention, copies and a host the solved grouping may miss the best one. Of few gradients none
// is left out.
TEST(PlannerTest, OfFewGradientsTheExactPolicyIsTheBestOfAllGroupings) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Instance instance = random_instance(seed, 6, false);
    const schedule::Program program = instance.program;
    const models::Costs costs = instance.costs;
    Planner planner(std::move(instance.program), std::move(instance.costs));
    const auto spec = schedule::parse_policy("exact");
    std::int64_t best = INT64_MAX;
    sim::CompiledProgram compiled;
    sim::Workspace workspace;
    for (const auto& ends : testing::all_groupings(program.reductions.size())) {
      const auto schedule = schedule::partition(program, ends, spec);
      const auto plan = schedule::lower(program, schedule).program;
      best =
          std::min(best, sim::find_steady_state(plan, costs, compiled, workspace).summary.step_ns);
    }
    EXPECT_EQ(planner.evaluate(spec).summary.step_ns, best);
  }
}

// The same step with two of four gradients in half the bytes.
Instance mixed_instance(std::uint64_t seed, std::int64_t layers, bool relaxed) {
  Instance instance = random_instance(seed, layers, relaxed);
  const auto owed = schedule::owed_gradients(instance.program);
  for (std::size_t i = 0; i < owed.size(); ++i) {
    if (i % 4 >= 2) continue;
    instance.program.tensors[static_cast<std::size_t>(owed[i].tensor.value)].dtype =
        schedule::DType::BF16;
  }
  return instance;
}

// All buckets of one dtype, launched when ready.
std::vector<schedule::Schedule> all_of_kinds(const schedule::Program& program) {
  const schedule::GradientKinds kinds = schedule::kinds_of(program);
  std::vector<schedule::Schedule> all;
  for (const auto& ends : testing::all_groupings(program.reductions.size())) {
    const bool whole_kinds = std::ranges::includes(ends, kinds.ends);
    if (!whole_kinds) continue;
    all.push_back(schedule::partition(program, ends, schedule::parse_policy("exact")));
  }
  return all;
}

TEST(PlannerTest, OfMixedDtypesTheExactPolicyIsTheBestOfAllGroupings) {
  std::size_t over_others = 0;  // where it joins gradients
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Instance instance = mixed_instance(seed, 6, false);
    const schedule::Program program = instance.program;
    const models::Costs costs = instance.costs;
    Planner planner(std::move(instance.program), std::move(instance.costs));
    const auto spec = schedule::parse_policy("exact");
    EXPECT_EQ(planner.refusal_of(spec), std::nullopt);
    std::int64_t best = INT64_MAX;
    sim::CompiledProgram compiled;
    sim::Workspace workspace;
    for (const schedule::Schedule& schedule : all_of_kinds(program)) {
      const auto plan = planner.verified(schedule);
      best =
          std::min(best, sim::find_steady_state(plan, costs, compiled, workspace).summary.step_ns);
    }
    const Candidate found = planner.evaluate(spec);
    EXPECT_EQ(found.summary.step_ns, best);
    EXPECT_TRUE(found.bounded);
    EXPECT_GE(best, bound_of(planner, found));
    const auto buckets = schedule::make_schedule(program, schedule::parse_policy("per-tensor"));
    over_others += found.buckets() < buckets.buckets.size() ? 1 : 0;
  }
  EXPECT_GT(over_others, 0U);
}

// Expectation: gradients of 20, 40, 20 and 40 bytes in bf16 and f32 by turns are ready at 10, 20, 30 and 40 us; a
// collective takes 50 us + 1 us a byte. One by one, which is all that runs of one dtype allow, they end at
// 10 + 4 x 50 + 120 = 330 us; one bucket of each dtype at 30 + 90 + 130 = 250.
TEST(PlannerTest, GradientsOfOneDtypeAreJoinedOverThoseOfAnother) {
  std::vector<testing::Layer> layers;
  for (int i = 0; i < 4; ++i) layers.push_back({Duration{}, testing::us(10), Bytes(40), {}});
  schedule::Program program = testing::chain(layers);
  for (const auto& owed : schedule::owed_gradients(program)) {
    const bool half = owed.producer_index % 2 == 0;
    if (half)
      program.tensors[static_cast<std::size_t>(owed.tensor.value)].dtype = schedule::DType::BF16;
  }
  testing::SimpleMachine machine;
  machine.collective = testing::line(testing::us(50), 1000);
  const models::Costs costs = testing::costs_of(machine, program);
  Planner planner(program, costs);
  const Candidate found = planner.evaluate(schedule::parse_policy("exact"));
  EXPECT_EQ(found.summary.step_ns, testing::us(250).count());
  // From the first gradient on a bucket of each dtype travels, and 120 bytes: 10 + 2 x 50 + 120.
  EXPECT_TRUE(found.bounded);
  EXPECT_NEAR(static_cast<double>(bound_of(planner, found)), 230e3, 10);
}

TEST(PlannerTest, TheLowerBoundOfMixedDtypesHoldsForAllBucketsAndOrders) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Instance instance = mixed_instance(seed, 7, seed % 2 == 0);
    const schedule::Program program = instance.program;
    const models::Costs costs = instance.costs;
    Planner planner(std::move(instance.program), std::move(instance.costs));
    if (schedule::kinds_of(program).ends.size() == 1) continue;  // of two gradients or fewer
    const std::int64_t bound = bound_of(planner, planner.evaluate(schedule::parse_policy("exact")));
    Random random(seed);
    for (schedule::Schedule& schedule : all_of_kinds(program)) {
      ASSERT_TRUE(planner.is_bounded(schedule));
      const auto last = static_cast<std::int64_t>(schedule.buckets.size()) - 1;
      std::swap(schedule.buckets[static_cast<std::size_t>(random.between(0, last))],
                schedule.buckets.front());
      ASSERT_TRUE(planner.is_bounded(schedule));
      const sim::CompiledProgram compiled =
          sim::compile(schedule::lower(program, schedule).program, costs, 2);
      sim::Workspace workspace;
      sim::play(compiled.graph, workspace);
      EXPECT_GE(sim::summarize(compiled.graph, workspace.timeline).step_ns, bound);
    }
  }
}

TEST(PlannerTest, AGroupingSeenBeforeIsNotSimulatedAgain) {
  Instance instance = random_instance(3, 20, false);
  Planner planner(std::move(instance.program), std::move(instance.costs));
  const Candidate first = planner.evaluate(schedule::parse_policy("threshold:cap=1KiB"));
  const std::size_t simulated = planner.simulated();
  const Candidate again = planner.evaluate(schedule::parse_policy("threshold:cap=1KiB"));
  EXPECT_EQ(planner.simulated(), simulated);
  EXPECT_EQ(again.summary.step_ns, first.summary.step_ns);
}

}  // namespace
}  // namespace dovetail::search

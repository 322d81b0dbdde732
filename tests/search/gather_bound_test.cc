// Bounds of blocks that are gathered before each use, of several micro-steps and of pipelines under the steps of all
// groupings of small programs, played by the evaluator, which is the simulator to the nanosecond.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/gather_bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "schedule/lower/pipeline/assign.h"
#include "schedule/policies/policies.h"
#include "search/step_model.h"
#include "tests/support/placements.h"
#include "tests/support/programs.h"

namespace dovetail::search {
namespace {

constexpr std::uint64_t kDraws = 250;  // 3,000 of each kind were run once

struct Drawn {
  schedule::Program program;
  models::Costs costs;
};

// Tables that fall here and there, as where a library changes its algorithm.
models::CollectiveTable stepped_table(Random& random) {
  std::vector<models::CollectivePoint> points;
  std::int64_t time = random.between(100, 6000);
  for (std::int64_t bytes = 64; bytes < 200'000; bytes *= 4) {
    points.push_back({.bytes = Bytes(bytes), .isolated = Duration(time)});
    if (random.between(0, 2) > 0)
      points.back().back_to_back =
          Duration(std::max<std::int64_t>(1, time + random.between(-3000, 3000)));
    time = std::max<std::int64_t>(50, time + random.between(-500, 9000));
  }
  return models::CollectiveTable(points);
}

// The parameter "l3" of op "l3.backward": its place among the tensors.
std::size_t layer_tensor(const schedule::Program& program, const schedule::Op& op) {
  const std::string layer = op.name.substr(0, op.name.find('.'));
  return static_cast<std::size_t>(
      std::ranges::find(program.tensors, layer, &schedule::Tensor::name) - program.tensors.begin());
}

Drawn draw(std::uint64_t seed, std::int64_t layers) {
  Random random(seed);
  Drawn drawn;
  drawn.program = testing::random_chain(random, layers, 2);
  const std::int64_t reading = random.between(
      0, 3);  // backward reads: nothing, or parameters of all layers, or but the first
  const bool is_tied = layers > 1 && random.between(0, 5) == 0;
  const std::string ends = "l" + std::to_string(drawn.program.ops.size() / 3 - 1) + ".";
  for (schedule::Op& op : drawn.program.ops) {
    const TensorId parameter = drawn.program.tensors[layer_tensor(drawn.program, op)].id;
    const bool is_first = &drawn.program.tensors[0] == &drawn.program.tensor(parameter);
    if (op.phase == schedule::Phase::Backward && reading > 0 && !(is_first && reading == 1))
      op.reads.push_back(parameter);
    // A parameter of both ends, as tied embeddings are.
    if (is_tied && op.name.starts_with(ends) && op.phase != schedule::Phase::Optimizer)
      op.reads.push_back(drawn.program.tensors.front().id);
    if (op.phase == schedule::Phase::Optimizer)
      op.work = schedule::MemoryWork{.bytes = Bytes(random.between(1, 9'000)), .flop = Flop(0)};
  }
  testing::SimpleMachine machine = testing::random_machine(random);
  if (random.between(0, 1) == 0) machine.collective = stepped_table(random);
  if (random.between(0, 3) > 0) testing::contend(random, machine);
  drawn.costs = testing::costs_of(machine, drawn.program);
  drawn.costs.distinct_ranks = random.between(0, 3) == 0 ? 2 : 1;
  return drawn;
}

// A plan of the kind, and its step.
struct Played {
  BoundKind kind;
  Duration step{};
};

struct GatherTally {
  std::int64_t plans = 0;
  std::int64_t close = 0;  // of kinds, those whose bound is within a tenth of their best plan
};

// Every bound under every plan of its kind: of those that gather more at a time, too.
void expect_under(const StepModel& model, const std::vector<Played>& plans, GatherTally& tally) {
  std::vector<BoundKind> seen;
  for (const Played& plan : plans) {
    if (std::ranges::find(seen, plan.kind) != seen.end()) continue;
    seen.push_back(plan.kind);
    Duration best = Duration::max();
    for (const Played& other : plans) {
      BoundKind as = other.kind;
      as.most_gathered = plan.kind.most_gathered;
      const bool belongs = as == plan.kind && other.kind.most_gathered <= plan.kind.most_gathered;
      if (belongs) best = std::min(best, other.step);
    }
    const Duration bound = model.lower_bound(plan.kind, Duration::max()).step;
    EXPECT_LE(bound, best) << plan.kind.most_gathered << " " << plan.kind.reshards;
    tally.close += bound * 10 >= best * 9 ? 1 : 0;
    ++tally.plans;
  }
}

// All groupings with each of these policies.
void expect_under_all(const Drawn& drawn, const std::vector<std::string>& policies,
                      GatherTally& tally) {
  const schedule::Policy first = schedule::parse_policy(policies.front());
  const schedule::GradientKinds kinds = schedule::kinds_of(drawn.program, first);
  const std::size_t count = kinds.gradients.size();
  std::optional<StepModel> model;
  std::vector<Played> plans;
  for (const std::string& text : policies) {
    const schedule::Policy policy = schedule::parse_policy(text);
    for (const std::vector<std::size_t>& ends : testing::all_groupings(count)) {
      if (!std::ranges::includes(ends, kinds.ends)) continue;  // no bucket holds two kinds
      const schedule::PolicyResult made = schedule::try_partition(drawn.program, ends, policy);
      if (made.failure) continue;
      schedule::Schedule schedule = made.schedule;
      schedule.gather_limit = {};  // the plan tells how much it gathers
      if (!model) model = StepModel::make(drawn.program, drawn.costs, schedule).model;
      if (!model) return;  // updates of several kinds
      StepWorkspace workspace = model->workspace();
      const std::optional<Choices> choices = model->choices_of(schedule);
      ASSERT_TRUE(choices) << text;
      const Duration step = model->evaluate(*choices, workspace);
      const std::optional<BoundKind> kind = model->bound_kind(*choices, step);
      ASSERT_TRUE(kind) << text;
      plans.push_back({*kind, step});
    }
  }
  expect_under(*model, plans, tally);
}

std::string at_depth(const std::string& options, Random& random) {
  return "fsdp:forward=" + std::to_string(random.between(0, 5)) +
         ",backward=" + std::to_string(random.between(0, 5)) + options;
}

TEST(GatherBoundTest, LiesUnderAllBlocksThatAreGatheredBeforeEachUse) {
  GatherTally tally;
  for (std::uint64_t seed = 0; seed < kDraws / 2; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Drawn drawn = draw(seed, 6);
    Random random(seed);
    std::string common;
    if (random.between(0, 3) == 0) common += ",mode=copy";
    if (random.between(0, 3) == 0) common += ",streams=2";
    if (random.between(0, 3) == 0) common += ",k=2";
    if (random.between(0, 7) == 0) common += ",k=3,sync=every";
    if (common.find("k=2,k=3") != std::string::npos) common = ",k=3,sync=every";
    std::vector<std::string> policies;
    for (int i = 0; i < 6; ++i) {
      const std::string limit = ",memory=" + std::to_string(random.between(4000, 40'000)) + "B";
      policies.push_back(at_depth(common + (i % 2 == 0 ? "" : limit), random));
    }
    policies.push_back(at_depth(common + ",reshard=no", random));
    policies.push_back(at_depth(common + ",reshard=no", random));
    expect_under_all(drawn, policies, tally);
  }
  EXPECT_GT(tally.plans, 500);
  EXPECT_GT(tally.close, tally.plans / 10);  // few of the plans that there may be are played
}

TEST(GatherBoundTest, LiesUnderAllGroupingsOfSeveralMicroSteps) {
  GatherTally tally;
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Drawn drawn = draw(seed, 7);
    Random random(seed);
    const std::string kinds[] = {"per-tensor:k=2",
                                 "per-tensor:k=3,sync=after",
                                 "per-tensor:k=2,mode=copy,wait=end-of-backward",
                                 "per-tensor:k=3,sync=every",
                                 "sharded:p=1,k=2,mode=view",
                                 "dear:k=2,sync=every,mode=view,wait=first-use"};
    expect_under_all(drawn, {kinds[seed % std::size(kinds)]}, tally);
  }
  EXPECT_GT(tally.plans, 100);
  EXPECT_GT(tally.close, tally.plans / 2);
}

// Groupings of each stage, all of them.
TEST(GatherBoundTest, LiesUnderAllGroupingsOfPipelines) {
  GatherTally tally;
  for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Drawn drawn = draw(seed, 7);
    const char* const kinds[] = {"1f1b", "sequential", "1f1b"};
    const std::string wait = seed % 3 == 0 ? ",wait=end-of-backward" : "";
    const std::string text =
        "pipeline:stages=2,k=" + std::to_string(2 + seed % 4) + ",kind=" + kinds[seed % 3] + wait;
    const schedule::Policy policy = schedule::parse_policy(text);
    if (drawn.program.ops.size() < 6) continue;
    const schedule::Rewrite rewrite =
        schedule::assign_stages(drawn.program, schedule::split_of(policy));
    const auto* cut = std::get_if<schedule::Rewritten>(&rewrite);
    if (cut == nullptr) continue;
    Random random(seed);
    testing::SimpleMachine machine = testing::random_machine(random);
    if (random.between(0, 1) == 0) testing::contend(random, machine);
    expect_under_all({cut->program, testing::costs_of(machine, cut->program)}, {text}, tally);
  }
  EXPECT_GT(tally.plans, 100);
}

}  // namespace
}  // namespace dovetail::search

// The evaluator against the simulator: every grouping of small programs, and random placements of these and
// of models of the zoo, for each kind of plan that it serves. All to the nanosecond.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/step_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "models/clusters/cluster.h"
#include "models/networks/decisions.h"
#include "models/networks/program.h"
#include "models/networks/text.h"
#include "models/networks/zoo.h"
#include "schedule/lower/lower.h"
#include "schedule/lower/pipeline/assign.h"
#include "schedule/policies/policies.h"
#include "schedule/verify/verify.h"
#include "sim/steady.h"
#include "tests/support/placements.h"
#include "tests/support/programs.h"
#include "tests/support/tensor_parallel.h"

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

// Hosts of both kinds, contention of every kind.
Case small_case(std::uint64_t seed, std::int64_t layers, std::int64_t ranks = 1,
                std::int64_t world = 2) {
  Random random(seed);
  Case result;
  result.program = testing::random_chain(random, layers, world);
  testing::SimpleMachine machine = testing::random_machine(random);
  if (random.between(0, 3) > 0) testing::contend(random, machine);
  result.costs = testing::costs_of(machine, result.program);
  result.costs.distinct_ranks = ranks;
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

// Ops of all classes.
Case with_kernels(Case of, std::uint64_t seed) {
  Random random(seed);
  testing::draw_kernels(random, of.program, of.costs);
  return of;
}

// The evaluator of a case beside lower and the simulator.
struct Weighed {
  explicit Weighed(const Case& one) : of(one), model(model_of(one)), memory(model.workspace()) {}

  static StepModel model_of(const Case& one) {
    StepModel::Made made = StepModel::make(one.program, one.costs, one.frame);
    if (!made.model) throw InputError(made.refusal);
    return *made.model;
  }

  [[nodiscard]] sim::SteadyState play(const schedule::Schedule& schedule) {
    const schedule::Lowered lowered = schedule::lower(of.program, schedule);
    return sim::find_steady_state(lowered.program, of.costs, compiled, played);
  }

  [[nodiscard]] Duration step(const Choices& choices) { return model.evaluate(choices, memory); }

  void expect_equal(const Choices& choices) {
    const sim::SteadyState steady = play(model.schedule_of(choices));
    EXPECT_EQ(step(choices).count(), steady.summary.step_ns);
    const sim::StepSummary found = model.summary(choices, memory);
    EXPECT_EQ(found.step_ns, steady.summary.step_ns);
    EXPECT_EQ(found.exposed_ns, steady.summary.exposed_ns);
    EXPECT_EQ(found.communication_ns, steady.summary.communication_ns);
    EXPECT_EQ(found.compute_ns, steady.summary.compute_ns);
    EXPECT_EQ(found.host_wait_ns, steady.summary.host_wait_ns);
  }

  // Of placements as drawn, until one is not.
  template <class Draw>
  void expect_equal(int count, const Draw& draw) {
    for (int i = 0; i < count && !::testing::Test::HasFailure(); ++i) expect_equal(draw());
  }

  const Case& of;
  StepModel model;
  StepWorkspace memory;
  sim::CompiledProgram compiled;
  sim::Workspace played;
};

struct Tally {
  StepModel::Counts counts;
  void add(const Weighed& weighed) {
    const StepModel::Counts& more = StepModel::counts(weighed.memory);
    counts.one_step += more.one_step;
    counts.many_steps += more.many_steps;
  }
};

TEST(StepModelTest, EveryGroupingOfSmallProgramsIsAsSimulated) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case small = with_kernels(small_case(seed, 6), seed);
    Weighed weighed(small);
    const auto count = static_cast<std::size_t>(weighed.model.gradients());
    for (const auto& ends : testing::all_groupings(count)) {
      const auto mode = seed % 2 == 0 ? BucketMode::View : BucketMode::Copy;
      const auto wait = seed % 3 == 0 ? WaitPoint::EndOfBackward : WaitPoint::FirstUse;
      const Choices choices = testing::choices_with_ends(ends, mode, wait);
      weighed.expect_equal(choices);
      if (::testing::Test::HasFailure()) return;
    }
    tally.add(weighed);
  }
  EXPECT_GT(tally.counts.one_step, 100);
}

TEST(StepModelTest, RandomPlacementsOfSmallProgramsAreAsSimulated) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case small = with_kernels(small_case(1000 + seed, 12), seed);
    Weighed weighed(small);
    Random random(seed);
    weighed.expect_equal(8, [&] { return testing::random_choices(random, weighed.model, 3); });
    if (::testing::Test::HasFailure()) return;
    tally.add(weighed);
  }
  EXPECT_GT(tally.counts.one_step, 100);
}

// From one that is far ahead to one that is behind.
TEST(StepModelTest, RandomPlacementsWhereTheHostLimitsAreAsSimulated) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Case small = small_case(4000 + seed, 10);
    Random random(seed);
    small.costs.host = {.kind = models::HostModel::Kind::Async,
                        .run_op = testing::us(random.between(1, 60)),
                        .collective = testing::us(random.between(0, 30)),
                        .event = testing::us(random.between(0, 5)),
                        .copy = testing::us(random.between(0, 10)),
                        .launch_latency = testing::us(random.between(0, 40)),
                        .launch_gap = testing::us(random.between(0, 2))};
    Weighed weighed(small);
    weighed.expect_equal(6, [&] { return testing::random_choices(random, weighed.model, 3); });
    if (::testing::Test::HasFailure()) return;
    tally.add(weighed);
  }
  EXPECT_GT(tally.counts.one_step, 5);
  EXPECT_GT(tally.counts.many_steps, 20);
}

TEST(StepModelTest, RandomPlacementsOnUnlikeRanksAreAsSimulated) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Case small = small_case(3000 + seed, 8, 2);
    Weighed weighed(small);
    Random random(seed);
    weighed.expect_equal(5, [&] { return testing::random_choices(random, weighed.model, 3); });
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(StepModelTest, RandomPlacementsBesideCollectivesOfTheProgramAreAsSimulated) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Case own;
    own.program = testing::tensor_parallel({.layers = 6});
    testing::SimpleMachine machine = testing::random_machine(random);
    if (random.between(0, 1) > 0) testing::contend(random, machine);
    own.costs = testing::costs_of(machine, own.program);
    own.costs.distinct_ranks = random.between(0, 2) == 0 ? 4 : 1;
    constexpr const char* kPolicies[] = {"per-tensor", "per-tensor:collectives=async",
                                         "sharded:collectives=async"};
    own.frame = frame_of(own.program, kPolicies[random.between(0, 2)]);
    Weighed weighed(own);
    weighed.expect_equal(6, [&] { return testing::random_choices(random, weighed.model, 2); });
    if (::testing::Test::HasFailure()) return;
  }
}

// Some updates become one of several parameters, and all of them may wait for a norm of all gradients.
void vary_updates(Random& random, schedule::Program& program) {
  const auto first =
      std::ranges::find(program.ops, schedule::Phase::Optimizer, &schedule::Op::phase);
  std::vector<schedule::Op> updates(first, program.ops.end());
  program.ops.erase(first, program.ops.end());
  if (random.between(0, 2) == 0) {
    schedule::Op norm = updates.front();
    norm.id = OpId{1000};
    norm.name = "norm";
    norm.effect = schedule::GlobalNorm{.rescale = Rational(1)};
    norm.reads.clear();
    for (const schedule::Op& update : updates) norm.reads.push_back(update.reads.front());
    schedule::Tensor value = program.tensor(updates.front().reads.front());
    value.id = TensorId{1000};
    value.name = "norm.value";
    value.kind = schedule::TensorKind::Activation;
    value.shape = {1};
    norm.writes = {value.id};
    program.tensors.push_back(value);
    program.ops.push_back(norm);
    for (schedule::Op& update : updates) update.reads.push_back(value.id);
  }
  for (const schedule::Op& update : updates) {
    schedule::Op& last = program.ops.back();
    if (!std::holds_alternative<schedule::Update>(last.effect) || random.between(0, 3) > 0) {
      program.ops.push_back(update);
      continue;
    }
    last.reads.insert(last.reads.begin() + std::ssize(last.writes), update.reads.front());
    last.reads.push_back(update.writes.front());
    last.writes.push_back(update.writes.front());
  }
}

// Backward reads parameters, too.
void read_parameters(schedule::Program& program) {
  for (schedule::Op& op : program.ops) {
    if (op.phase != schedule::Phase::Backward) continue;
    for (const schedule::Op& update : program.ops) {
      const bool mine =
          update.phase == schedule::Phase::Optimizer && update.reads.front() == op.writes.front();
      if (mine) op.reads.push_back(update.writes.front());
    }
  }
}

// Reduce-scattered, with micro-steps, gathered at any time.
Case sharded(Case result, Random& random) {
  read_parameters(result.program);
  vary_updates(random, result.program);
  if (random.between(0, 1) == 0) {  // narrower than their gradients
    for (schedule::Tensor& tensor : result.program.tensors) {
      if (tensor.kind != schedule::TensorKind::Parameter) continue;
      tensor.dtype = schedule::DType::BF16;
    }
  }
  if (random.between(0, 2) == 0) {
    result.frame.merge.micro_steps = static_cast<std::int32_t>(random.between(2, 3));
    if (random.between(0, 1) == 0) {
      result.frame.merge.sync = schedule::SyncPoint::AfterLastMicroStep;
    }
  }
  constexpr schedule::ParameterSync kSyncs[] = {schedule::ParameterSync::AfterUpdate,
                                                schedule::ParameterSync::NextForward,
                                                schedule::ParameterSync::EachUse};
  result.frame.parameters = kSyncs[random.between(0, 2)];
  result.frame.buckets.front().collective = schedule::Collective::ReduceScatter;
  result.frame.buckets.front().sums_whole = random.between(0, 3) == 0;
  return result;
}

// Borders move into gradients, which may then lie in three buckets.
void cut(Random& random, const StepModel& model, Choices& choices) {
  for (std::size_t b = 0; b + 1 < choices.size(); ++b) {
    const std::int32_t next = choices[b + 1].begin;
    const std::int64_t elements = model.bytes(next).count() / 4;
    if (choices[b].end != next || elements < 3 || random.between(0, 1) == 0) continue;
    if (model.kind(choices[b].begin) != model.kind(next)) continue;
    choices[b].end = next + 1;
    choices[b].take = random.between(1, elements - 2);
    choices[b + 1].skip = choices[b].take;
    if (random.between(0, 2) > 0) continue;
    BucketChoice middle = choices[b + 1];
    middle.end = next + 1;
    middle.take = 1;
    ++choices[b + 1].skip;
    choices.insert(choices.begin() + static_cast<std::ptrdiff_t>(++b), middle);
  }
}

void gather(Random& random, const StepModel& model, std::int32_t micro_steps, Choices& choices) {
  const std::int32_t first = micro_steps == 1 ? 1 : model.ready(0);
  for (BucketChoice& choice : choices) {
    const auto place = [&] {
      return random.between(0, 2) == 0
                 ? 0
                 : static_cast<std::int32_t>(random.between(first, model.backward_end()));
    };
    choice.gather.forward = place();
    choice.gather.keeps = random.between(0, 3) == 0;
    if (!choice.gather.keeps) choice.gather.backward = place();
    choice.gather.stream = static_cast<std::int32_t>(random.between(0, 1));
  }
}

// Some placements of the case; `kinds`: adds how many its gradients are.
void expect_equal_shards(const Case& of, std::uint64_t seed, Tally& tally,
                         std::int32_t* kinds = nullptr) {
  Weighed weighed(of);
  Random random(seed);
  if (kinds != nullptr) *kinds += 1 + weighed.model.kind(weighed.model.gradients() - 1);
  for (int i = 0; i < 6; ++i) {
    Choices choices = testing::random_choices(random, weighed.model, 3);
    if (of.frame.parameters == schedule::ParameterSync::EachUse) {
      gather(random, weighed.model, of.frame.merge.micro_steps, choices);
    } else if (choices.front().mode == BucketMode::Copy && random.between(0, 2) > 0) {
      for (BucketChoice& choice : choices) choice.mode = BucketMode::Copy;
      cut(random, weighed.model, choices);
    }
    weighed.expect_equal(choices);
    if (::testing::Test::HasFailure()) return;
  }
  tally.add(weighed);
}

TEST(StepModelTest, RandomPlacementsOfShardsAreAsSimulated) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(5000 + seed);
    const Case shards = sharded(small_case(5000 + seed, 10, seed % 5 == 0 ? 2 : 1), random);
    expect_equal_shards(shards, seed, tally);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(tally.counts.one_step, 100);
  EXPECT_GT(tally.counts.many_steps, 50);
}

// Gradients of several types, over pairs of ranks, over all four, or over pairs and then those across.
void mix_kinds(Random& random, schedule::Program& program, bool two_reductions) {
  program.groups.front().instance_size = 2;
  program.groups.push_back({GroupId{1}, "across", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2});
  program.groups.push_back({GroupId{2}, "all", {Rank{0}, Rank{1}, Rank{2}, Rank{3}}});
  std::vector<schedule::Reduction> more;
  for (schedule::Reduction& owed : program.reductions) {
    const std::int64_t drawn = random.between(0, 2);
    if (drawn == 0) owed.group = GroupId{2};
    if (drawn == 1 && two_reductions) {
      more.push_back(owed);
      more.back().group = GroupId{1};
    }
    if (random.between(0, 2) > 0) continue;
    for (schedule::Tensor& tensor : program.tensors) {
      if (tensor.id == owed.gradient) tensor.dtype = schedule::DType::BF16;
    }
  }
  program.reductions.insert(program.reductions.end(), more.begin(), more.end());
}

TEST(StepModelTest, RandomPlacementsOfUnlikeGradientsAreAsSimulated) {
  Tally tally;
  std::int32_t kinds = 0;
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(7000 + seed);
    const bool shards = random.between(0, 1) == 0;
    Case unlike = small_case(7000 + seed, 10, seed % 5 == 0 ? 4 : 1, 4);
    mix_kinds(random, unlike.program, shards);
    // Elsewhere the factors must be those of one kind.
    constexpr ScaleAt kScales[] = {ScaleAt::Collective, ScaleAt::BeforeCollective,
                                   ScaleAt::AfterCollective};
    unlike.frame.scale = kScales[random.between(0, 2)];
    if (shards) {
      unlike = sharded(std::move(unlike), random);
      if (unlike.program.reductions.size() > unlike.frame.buckets.size()) {
        unlike.frame.buckets.front().replicas = GroupId{1};
      }
    }
    expect_equal_shards(unlike, seed, tally, &kinds);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(kinds, 200);
  EXPECT_GT(tally.counts.one_step, 100);
  EXPECT_GT(tally.counts.many_steps, 50);
}

// In 2 or 3 stages, of one chunk or two; `beside`: another policy.
std::optional<Case> pipeline_case(std::uint64_t seed, const std::string& beside = "") {
  Random random(seed);
  Case result = small_case(seed, 14, random.between(0, 3) == 0 ? 2 : 1);
  if (!beside.empty()) read_parameters(result.program);
  const auto stages = static_cast<std::int32_t>(random.between(2, 3));
  const std::int32_t chunks = random.between(0, 2) == 0 ? 2 : 1;
  for (schedule::Op& op : result.program.ops) {
    std::get<schedule::TimedWork>(op.work).by_rank.resize(1);
  }
  schedule::Rewrite split =
      schedule::assign_stages(std::move(result.program), {.stages = stages, .chunks = chunks});
  if (!std::holds_alternative<schedule::Rewritten>(split)) return std::nullopt;  // too few layers
  result.program = std::get<schedule::Rewritten>(std::move(split)).program;
  std::string policy = "pipeline:stages=" + std::to_string(stages);
  policy += ",k=" + std::to_string(stages * random.between(1, 2));
  if (chunks > 1) {
    policy += ",kind=interleaved,chunks=2";
    if (random.between(0, 1) == 0) policy += ",align=across-stages";
  } else {
    constexpr const char* kKinds[] = {",kind=1f1b", ",kind=sequential",
                                      ",kind=sequential,sync=every"};
    policy += kKinds[random.between(0, 2)];
  }
  result.frame = frame_of(result.program, policy + beside);
  return result;
}

TEST(StepModelTest, RandomPlacementsInPipelinesAreAsSimulated) {
  Tally tally;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::optional<Case> stages = pipeline_case(6000 + seed);
    if (!stages) continue;
    Weighed weighed(*stages);
    const std::optional<Choices> choices = weighed.model.choices_of(stages->frame);
    ASSERT_TRUE(choices);
    weighed.expect_equal(*choices);
    Random random(seed);
    weighed.expect_equal(5, [&] { return testing::random_choices(random, weighed.model, 3); });
    if (::testing::Test::HasFailure()) return;
    tally.add(weighed);
  }
  EXPECT_GT(tally.counts.one_step, 20);
  EXPECT_GT(tally.counts.many_steps, 20);
}

TEST(StepModelTest, RandomPlacementsOfShardsInPipelinesAreAsSimulated) {
  constexpr const char* kPolicies[] = {"+sharded", "+sharded:gather=next-forward", "+fsdp",
                                       "+fsdp:reshard=no,forward=2"};
  Tally tally;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + kPolicies[seed % 4]);
    const std::optional<Case> stages = pipeline_case(8000 + seed, kPolicies[seed % 4]);
    if (!stages) continue;
    Weighed weighed(*stages);
    const std::optional<Choices> choices = weighed.model.choices_of(stages->frame);
    ASSERT_TRUE(choices);
    weighed.expect_equal(*choices);
    Random random(seed);
    for (int i = 0; i < 5; ++i) {
      Choices others = testing::random_choices(random, weighed.model, 3);
      const bool placed =
          stages->frame.parameters != schedule::ParameterSync::EachUse ||
          weighed.model.place_gathers(others,
                                      {.forward = static_cast<std::int32_t>(random.between(0, 3)),
                                       .backward = static_cast<std::int32_t>(random.between(0, 3))},
                                      0);
      ASSERT_TRUE(placed);
      weighed.expect_equal(others);
      if (::testing::Test::HasFailure()) return;
    }
    tally.add(weighed);
  }
  EXPECT_GT(tally.counts.one_step, 20);
  EXPECT_GT(tally.counts.many_steps, 20);
}

// Blocks that nothing updates are gathered among those that are reduced.
TEST(StepModelTest, RandomPlacementsBesideFrozenBlocksAreAsSimulated) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Case frozen;
    frozen.program = testing::with_adapters(static_cast<int>(random.between(2, 6)), Bytes(4000),
                                            Bytes(400), testing::us(random.between(1, 20)));
    testing::SimpleMachine machine = testing::random_machine(random);
    if (random.between(0, 1) > 0) testing::contend(random, machine);
    frozen.costs = testing::costs_of(machine, frozen.program);
    frozen.costs.distinct_ranks = random.between(0, 2) == 0 ? 2 : 1;
    constexpr const char* kPolicies[] = {"fsdp", "fsdp:cap=1KiB", "fsdp:k=2,sync=every",
                                         "fsdp:reshard=no", "fsdp:k=3,forward=2,backward=2"};
    frozen.frame = frame_of(frozen.program, kPolicies[random.between(0, 4)]);
    ASSERT_FALSE(frozen.frame.frozen.empty());
    Weighed weighed(frozen);
    const std::optional<Choices> choices = weighed.model.choices_of(frozen.frame);
    ASSERT_TRUE(choices);
    EXPECT_EQ(weighed.step(*choices).count(), weighed.play(frozen.frame).summary.step_ns);
    for (int i = 0; i < 6; ++i) {
      Choices others = testing::random_choices(random, weighed.model, 3);
      ASSERT_TRUE(
          weighed.model.place_gathers(others,
                                      {.forward = static_cast<std::int32_t>(random.between(0, 3)),
                                       .backward = static_cast<std::int32_t>(random.between(0, 3))},
                                      static_cast<std::int32_t>(random.between(0, 1))));
      weighed.expect_equal(others);
      if (::testing::Test::HasFailure()) return;
    }
  }
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
                             {"mlp", "a100x2_nv12", "gradient-merge:k=3,sync=every"},
                             {"vgg16", "h100x16_tcpx", "gradient-merge:k=2"}};
  Tally tally;
  for (const Pair& pair : kPairs) {
    SCOPED_TRACE(std::string(pair.model) + " on " + pair.cluster);
    const Case model_case = zoo_case(pair.model, pair.cluster, pair.policy);
    Weighed weighed(model_case);
    Random random(7);
    for (int i = 0; i < 12; ++i) {
      const Choices choices = testing::random_choices(random, weighed.model, 2 + 3 * i);
      weighed.expect_equal(choices);
      if (::testing::Test::HasFailure()) return;
    }
    tally.add(weighed);
  }
  EXPECT_GT(tally.counts.one_step, 20);
}

// What policies make can be read as choices, and means the same.
TEST(StepModelTest, SchedulesOfPoliciesAreReadAsChoices) {
  const Case model_case = zoo_case("resnet18", "a100x8", "per-tensor");
  Weighed weighed(model_case);
  for (const char* policy :
       {"torch-ddp", "threshold", "per-tensor", "one-bucket", "no-overlap",
        "threshold:cap=4MiB,batch=3", "torch-ddp:scope=whole-stream", "no-overlap-per-tensor",
        "threshold:cap=1MiB,batch=2,wait=before-next-batch"}) {
    SCOPED_TRACE(policy);
    const schedule::Schedule schedule = frame_of(model_case.program, policy);
    const std::optional<Choices> choices = weighed.model.choices_of(schedule);
    ASSERT_TRUE(choices);
    weighed.expect_equal(*choices);
    const Duration found = weighed.step(*choices);
    EXPECT_EQ(found.count(), weighed.play(schedule).summary.step_ns);
    const auto again = weighed.model.choices_of(weighed.model.schedule_of(*choices));
    ASSERT_TRUE(again);
    EXPECT_EQ(weighed.step(*again), found);
  }
  EXPECT_FALSE(weighed.model.choices_of(frame_of(model_case.program, "naive")));  // it scales
  EXPECT_FALSE(weighed.model.choices_of(frame_of(model_case.program, "sharded")));
}

// Tensors cut into buckets of one size, gathers ahead and after, held back, in micro-steps.
TEST(StepModelTest, SchedulesOfShardingPoliciesAreReadAsChoices) {
  for (const char* policy :
       {"sharded:cap=4MiB", "sharded:cap=1MiB,p=2,wait=before-next-batch",
        "sharded:cap=4MiB,p=1,overlap=no", "sharded:cap=1MiB,p=1,gather=next-forward",
        "sharded:cap=8MiB,k=2", "sharded:cap=1MiB,k=2,sync=every",
        "fsdp:cap=2MiB,k=2,sync=every,reshard=no", "fsdp:k=3,sync=every", "fsdp",
        "fsdp:forward=2,backward=2", "fsdp:cap=2MiB,reshard=no", "fsdp:limit=2", "fsdp:k=3",
        "fsdp:cap=16MiB,prefetch=3,streams=2"}) {
    for (const char* cluster : {"a100x8", "h100x16_tcpx"}) {
      SCOPED_TRACE(std::string(policy) + " on " + cluster);
      const Case model_case = zoo_case("resnet18", cluster, policy);
      Weighed weighed(model_case);
      const std::optional<Choices> choices = weighed.model.choices_of(model_case.frame);
      ASSERT_TRUE(choices);
      EXPECT_EQ(weighed.step(*choices).count(), weighed.play(model_case.frame).summary.step_ns);
      weighed.expect_equal(*choices);
      const auto again = weighed.model.choices_of(weighed.model.schedule_of(*choices));
      ASSERT_TRUE(again);
      weighed.expect_equal(*again);
    }
  }
}

// A bound of the placement's kind, where there is one, is not above it.
void expect_bounded(Weighed& weighed, const Choices& choices) {
  const Duration step = weighed.step(choices);
  const std::optional<BoundKind> kind = weighed.model.bound_kind(choices, step);
  if (!kind) return;
  EXPECT_LE(weighed.model.lower_bound(*kind, Duration::max()).step, step);
}

// Layouts of jobs of all kinds with their own policies: experts over groups of their own, tied weights, norms over
// stages, backward in two, adapters.
TEST(StepModelTest, PlansOfJobsAreAsSimulated) {
  for (const char* text :
       {"qwen3_0.6b:dp=2,tp=2", "qwen3_0.6b:tp=2,async_tp=yes,dp=2", "qwen3_0.6b:pp=2,dp=2,gbs=8",
        "qwen3_0.6b:pp=4,dp=2,gbs=8,zero=1", "qwen3_0.6b:pp=2,vp=2,dp=2,dp_shard=2,gbs=8",
        "llama3_8b:pp=2,dp=2,gbs=8,zero=1,grads=bf16,reduce=bf16", "llama3_8b:dp_shard=4",
        "llama3_8b:pp=2,vp=2,schedule=zbv,tp=2,dp=2,gbs=8,recompute=op,lora=16",
        "llama3_8b:pp=2,vp=2,schedule=zbv,tp=2,dp_shard=2,gbs=8,recompute=full",
        "llama3_8b:pp=4,schedule=zero-bubble,dp=2,gbs=16,zero=1", "vit_b16:dp=8,mbs=32",
        "mixtral_8x7b:ep=4,dp=4", "mixtral_8x7b:ep=4,dp_shard=8",
        "mixtral_8x7b:ep=2,dp=2,dp_shard=4", "mixtral_8x7b:ep=2,dp_shard=4,pp=2,gbs=16",
        "mixtral_8x7b:ep=4,dp_shard=4,zero=1", "llama3_8b:dp_shard=4,lora=16",
        "llama3_8b:dp=2,zero=1,lora=16,recompute=full"}) {
    SCOPED_TRACE(text);
    jobs::Job job = jobs::parse_job(text);
    const std::int64_t chunks = job.layout.pp * job.layout.vp;
    job.model.layers = chunks * std::max<std::int64_t>(2, 6 / chunks);
    Case of;
    of.program = jobs::program_of(job);
    const models::Cluster machine =
        models::load_cluster("h100x" + std::to_string(of.program.world_size),
                             std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters");
    of.costs = models::costs_for(machine, of.program);
    of.frame = schedule::make_schedule(of.program, jobs::policy_of(job));
    Weighed weighed(of);
    const std::optional<Choices> choices = weighed.model.choices_of(of.frame);
    ASSERT_TRUE(choices);
    EXPECT_EQ(weighed.step(*choices).count(), weighed.play(of.frame).summary.step_ns);
    weighed.expect_equal(*choices);
    expect_bounded(weighed, *choices);
    Random random(9);
    for (int i = 0; i < 2 && of.frame.gathers.empty(); ++i) {
      const Choices others = testing::random_choices(random, weighed.model, 4);
      weighed.expect_equal(others);
      expect_bounded(weighed, others);
    }
    if (::testing::Test::HasFailure()) return;
  }
}

// A placement's updates are priced by the names that lower gives them.
TEST(StepModelTest, UpdatesOfSomeBucketsMayBeMeasured) {
  Random random(3);
  Case measured = sharded(small_case(3, 8), random);
  for (schedule::Op& op : measured.program.ops) {
    if (op.phase == schedule::Phase::Optimizer) op.work = schedule::MemoryWork{.bytes = kib(64)};
  }
  const Case plain_case = measured;
  Weighed plain(plain_case);
  const Choices choices =
      testing::choices_with_ends({2, static_cast<std::size_t>(plain.model.gradients())},
                                 BucketMode::View, WaitPoint::FirstUse);
  const schedule::Lowered lowered =
      schedule::lower(measured.program, plain.model.schedule_of(choices));
  const auto update =
      std::ranges::find(lowered.program.program.ops, "bucket1.update", &schedule::Op::name);
  ASSERT_NE(update, lowered.program.program.ops.end());
  models::OpModel machine = measured.costs.ops.model();
  machine.kernels = models::KernelTable({{.dtype = update->dtype,
                                          .work = std::get<schedule::MemoryWork>(update->work),
                                          .time = testing::us(700),
                                          .op = update->name}});
  measured.costs.ops = models::OpCosts(machine);
  Weighed weighed(measured);
  weighed.expect_equal(choices);
  EXPECT_GT(weighed.step(choices), plain.step(choices));
}

TEST(StepModelTest, WhatItCannotDoIsRefusedWithAReason) {
  Case twice = small_case(1, 4);
  twice.program.groups.push_back({GroupId{1}, "again", {Rank{0}, Rank{1}}});
  twice.program.reductions.push_back(twice.program.reductions.front());
  twice.program.reductions.back().group = GroupId{1};
  EXPECT_EQ(StepModel::make(twice.program, twice.costs, twice.frame).refusal,
            "a gradient needs two reductions");
}

// What the random placements are is legal: no order, delay, stream or mode of them is refused.
TEST(StepModelTest, RandomPlacementsAreLegal) {
  const Case model_case = zoo_case("resnet18", "a100x8", "per-tensor");
  Weighed weighed(model_case);
  Random random(3);
  for (int i = 0; i < 6; ++i) {
    const Choices choices = testing::random_choices(random, weighed.model, 6);
    const schedule::Lowered lowered =
        schedule::lower(model_case.program, weighed.model.schedule_of(choices));
    const auto problems = schedule::verify(model_case.program, lowered.program);
    EXPECT_TRUE(problems.empty()) << problems.front().message;
  }
}

}  // namespace
}  // namespace dovetail::search

// Every decision that a Schedule can make, executed on real ranks over the ring: a legal plan gives
// exact gradients, and the same plan with one command lost or changed is found out.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/pipeline/assign.h"
#include "schedule/policies/policies.h"
#include "schedule/transfers.h"
#include "tests/exec/programs.h"
#include "tests/support/program_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <variant>
#include <vector>

namespace dovetail::exec {
namespace {

using schedule::Collective;
using schedule::Command;
using schedule::Communicate;
using schedule::CopyDirection;
using schedule::Program;
using schedule::ReduceOp;
using schedule::ScaleAt;
using schedule::Schedule;
using schedule::ScheduledProgram;
using schedule::Slice;
using schedule::SyncPoint;
using testing::buckets_of;
using ::testing::HasSubstr;
using testing::kA;
using testing::kAcross;
using testing::kAGrad;
using testing::kANumel;
using testing::kBGrad;
using testing::kBNumel;
using testing::kCGrad;
using testing::kCNumel;
using testing::Owes;
using testing::plan_of;
using testing::run_over_ring;
using testing::three_layers;
using testing::three_layers_in_pairs;
using testing::two_buckets_of;
using testing::without;
using testing::without_op;

// With one warm-up and three measured steps.
constexpr std::int64_t kSteps = 4;
constexpr std::int64_t kNumel = kANumel + kBNumel + kCNumel;

void expect_exact(const ScheduledProgram& plan) {
  const CheckResult check = run_over_ring(plan);
  EXPECT_EQ(check.wrong, 0) << check.first_wrong;
  EXPECT_GE(check.checked, plan.program.world_size * kSteps * kNumel);
}

// Most of the elements that depend on what is missing must differ.
void expect_found(const ScheduledProgram& plan, const std::string& words) {
  const CheckResult check = run_over_ring(plan);
  EXPECT_GT(check.wrong, kCNumel * 9 / 10);
  EXPECT_THAT(check.first_wrong, HasSubstr(words));
}

ScheduledProgram without_scales(const ScheduledProgram& plan) {
  return without(plan, [](const Command& command) {
    return std::holds_alternative<schedule::Scale>(command.action);
  });
}
ScheduledProgram without_collective(const ScheduledProgram& plan, Collective kind) {
  return without(plan, [&](const Command& command) {
    const auto* run = bucket_collective(command);
    return run != nullptr && run->kind == kind;
  });
}

// Scaling ------------------------------------------------------------------------------------------

TEST(LanguageTest, EveryPlaceOfTheFactorGivesTheAverage) {
  for (const ScaleAt scale :
       {ScaleAt::Collective, ScaleAt::BeforeCollective, ScaleAt::AfterCollective,
        ScaleAt::LossGradient, ScaleAt::Optimizer}) {
    const Program program = three_layers(2);
    Schedule schedule = two_buckets_of(program);
    schedule.scale = scale;
    SCOPED_TRACE(schedule::to_string(scale));
    expect_exact(plan_of(program, schedule));
  }
}

TEST(LanguageTest, ALostScaleIsFound) {
  for (const ScaleAt scale : {ScaleAt::BeforeCollective, ScaleAt::AfterCollective}) {
    const Program program = three_layers(2);
    Schedule schedule = two_buckets_of(program);
    schedule.scale = scale;
    expect_found(without_scales(plan_of(program, schedule)), "c.grad");
  }
}

TEST(LanguageTest, AFactorThatTheLossGradientDoesNotHoldIsFound) {
  const Program program = three_layers(2);
  Schedule schedule = two_buckets_of(program);
  schedule.scale = ScaleAt::LossGradient;
  ScheduledProgram plan = plan_of(program, schedule);
  for (schedule::Op& op : plan.program.ops) {
    auto* fill = std::get_if<schedule::FillLossGradient>(&op.effect);
    if (fill != nullptr) fill->value = Rational(1);
  }
  expect_found(plan, "c.grad");
}

TEST(LanguageTest, AFactorThatTheOptimizerDoesNotHoldIsFound) {
  const Program program = three_layers(2);
  Schedule schedule = two_buckets_of(program);
  schedule.scale = ScaleAt::Optimizer;
  ScheduledProgram plan = plan_of(program, schedule);
  for (schedule::Op& op : plan.program.ops) {
    auto* update = std::get_if<schedule::Update>(&op.effect);
    if (update != nullptr) update->rescale = Rational(1);
  }
  expect_found(plan, "c.grad");
}

// Slices -------------------------------------------------------------------------------------------

// Bucket 0: c and the first 100 elements of b; bucket 1: the rest of b and 50 of a; bucket 2: a.
Schedule sliced(const Program& program) {
  return buckets_of(program, {{kCGrad, Slice(kBGrad, 0, 100)},
                              {Slice(kBGrad, 100, 233), Slice(kAGrad, 0, 50)},
                              {Slice(kAGrad, 50, 650)}});
}

TEST(LanguageTest, SlicesOverBucketBordersAreExact) {
  const Program program = three_layers(2);
  expect_exact(plan_of(program, sliced(program)));
}

TEST(LanguageTest, ASliceThatIsNeverUnpackedIsFound) {
  const Program program = three_layers(2);
  const ScheduledProgram plan =
      without(plan_of(program, sliced(program)), [](const Command& command) {
        const auto* copy = std::get_if<schedule::Copy>(&command.action);
        return copy != nullptr && copy->bucket == BucketId{1} &&
               copy->direction == CopyDirection::Unpack;
      });
  expect_found(plan, "b.grad[100]");
}

// Micro-steps --------------------------------------------------------------------------------------

ScheduledProgram merged(SyncPoint sync, ScaleAt scale = ScaleAt::Collective) {
  const Program program = three_layers(2);
  Schedule schedule = two_buckets_of(program);
  schedule.merge = {.micro_steps = 2, .op = ReduceOp::Average, .sync = sync};
  schedule.scale = scale;
  return plan_of(program, schedule);
}

TEST(LanguageTest, MicroStepsAreSummedWhereverTheyAreReduced) {
  for (const SyncPoint sync :
       {SyncPoint::EveryMicroStep, SyncPoint::AfterLastMicroStep, SyncPoint::LastMicroStep}) {
    for (const ScaleAt scale : {ScaleAt::Collective, ScaleAt::AfterCollective,
                                ScaleAt::LossGradient, ScaleAt::Optimizer}) {
      SCOPED_TRACE(std::string(schedule::to_string(sync)) + " " +
                   std::string(schedule::to_string(scale)));
      expect_exact(merged(sync, scale));
    }
  }
}

TEST(LanguageTest, AMicroStepThatIsNotAddedIsFound) {
  for (const SyncPoint sync : {SyncPoint::EveryMicroStep, SyncPoint::LastMicroStep}) {
    const ScheduledProgram plan = merged(sync);
    std::string last;
    for (const schedule::Op& op : plan.program.ops) {
      const auto* sum = std::get_if<schedule::Accumulate>(&op.effect);
      if (sum != nullptr && op.reads[0] == kBGrad) last = op.name;
      if (sum != nullptr && op.reads.back() == kBGrad) last = op.name;
    }
    expect_found(without_op(plan, last), "as the optimizer read it");
  }
}

// Shards -------------------------------------------------------------------------------------------

ScheduledProgram sharded(schedule::ParameterSync sync, testing::Clip clip = testing::Clip::None) {
  const Program program = three_layers(2, clip);
  Schedule schedule = two_buckets_of(program);
  for (schedule::Bucket& bucket : schedule.buckets) bucket.collective = Collective::ReduceScatter;
  schedule.parameters = sync;
  return plan_of(program, schedule);
}

TEST(LanguageTest, EveryRankEndsWithEveryParameter) {
  expect_exact(sharded(schedule::ParameterSync::AfterUpdate));
}

TEST(LanguageTest, ForwardReadsTheParametersOfTheStepBefore) {
  expect_exact(sharded(schedule::ParameterSync::NextForward));
}

TEST(LanguageTest, AMissingAllGatherIsFoundInTheParameters) {
  const ScheduledProgram plan = sharded(schedule::ParameterSync::AfterUpdate);
  expect_found(without_collective(plan, Collective::AllGather), "rank 0 step 0 ");
}

TEST(LanguageTest, ParametersThatAreNotUnpackedBeforeForwardAreFound) {
  const ScheduledProgram plan = sharded(schedule::ParameterSync::NextForward);
  const ScheduledProgram broken = without(plan, [&](const Command& command) {
    const auto* copy = std::get_if<schedule::Copy>(&command.action);
    return copy != nullptr && copy->direction == CopyDirection::Unpack && copy->gradients[0] == kA;
  });
  expect_found(broken, "a[0] as a.forward read it");
}

TEST(LanguageTest, AMissingReduceScatterIsFoundByTheShardedUpdate) {
  const ScheduledProgram plan = sharded(schedule::ParameterSync::AfterUpdate);
  expect_found(without_collective(plan, Collective::ReduceScatter), "rank 0 step 0 ");
}

// Parameters that come and go ----------------------------------------------------------------------

ScheduledProgram fsdp(const std::string& options) {
  const Program program = three_layers(2);
  return plan_of(program, make_schedule(program, schedule::parse_policy("fsdp:" + options)));
}

TEST(LanguageTest, ParametersThatAreGatheredBeforeEachUseAreTheOnesThatWereUpdated) {
  for (const std::string options :
       {"prefetch=1", "prefetch=0,mode=copy", "prefetch=2,limit=2,streams=2", "limit=1,mode=copy",
        "reshard=no", "k=2,prefetch=2,streams=2"}) {
    SCOPED_TRACE(options);
    expect_exact(fsdp(options));
  }
}

// b is frozen: of each rank its shard exists, and every reader finds those of both ranks.
TEST(LanguageTest, FrozenParametersAreGatheredBeforeEachUse) {
  const Program program = dovetail::testing::frozen(three_layers(2), testing::kB);
  for (const std::string options :
       {"prefetch=1", "prefetch=0,mode=copy", "prefetch=2,limit=2,streams=2", "reshard=no",
        "k=2,prefetch=2,streams=2"}) {
    SCOPED_TRACE(options);
    const ScheduledProgram plan =
        plan_of(program, make_schedule(program, schedule::parse_policy("fsdp:" + options)));
    const CheckResult check = run_over_ring(plan);
    EXPECT_EQ(check.wrong, 0) << check.first_wrong;
    EXPECT_GE(check.checked, 2 * kSteps * kNumel);
  }
  const ScheduledProgram plan =
      plan_of(program, make_schedule(program, schedule::parse_policy("fsdp:prefetch=1")));
  // a and b are gathered for forward, c for both, b and a for backward.
  for (const int gather : {1, 3}) {
    const CheckResult check = run_over_ring(testing::without_gather(plan, gather));
    EXPECT_GT(check.wrong, 0);
    EXPECT_THAT(check.first_wrong, HasSubstr("b["));
  }
}

// What is freed is spoiled, one element in a page: the reader meets it.
TEST(LanguageTest, AGatherThatIsLeftOutIsFoundByTheReader) {
  // a and b are gathered for forward, c for both, b and a for backward.
  const CheckResult check = run_over_ring(testing::without_gather(fsdp("prefetch=1"), 3));
  EXPECT_GT(check.wrong, 0);
  EXPECT_THAT(check.first_wrong, HasSubstr("b["));
  EXPECT_THAT(check.first_wrong, HasSubstr("as b.backward read it"));
}

TEST(LanguageTest, ParametersThatAreFreedBeforeTheirReaderAreFound) {
  for (const std::string mode : {"view", "copy"}) {
    const CheckResult check =
        run_over_ring(testing::released_before(fsdp("prefetch=1,mode=" + mode), "b.forward"));
    EXPECT_GT(check.wrong, 0);
    EXPECT_THAT(check.first_wrong, HasSubstr("as b.forward read it"));
  }
}

// Norms --------------------------------------------------------------------------------------------

TEST(LanguageTest, AI7TheNormIsThatOfTheReducedGradients) {
  const Program program = three_layers(2, testing::Clip::GlobalNorm);
  expect_exact(plan_of(program, two_buckets_of(program)));
  expect_exact(sharded(schedule::ParameterSync::AfterUpdate, testing::Clip::GlobalNorm));
}

TEST(LanguageTest, ANormOfShardsThatIsNotSummedUpIsFound) {
  const ScheduledProgram plan =
      sharded(schedule::ParameterSync::AfterUpdate, testing::Clip::GlobalNorm);
  const ScheduledProgram broken = without(plan, [&](const Command& command) {
    const auto run = schedule::op_run_by(command);
    return run && std::holds_alternative<schedule::CollectiveWork>(plan.program.op(*run).work);
  });
  const CheckResult check = run_over_ring(broken);
  // Two sharded updates read the norm, on two ranks.
  EXPECT_EQ(check.wrong, kSteps * 2 * 2);
  EXPECT_THAT(check.first_wrong, HasSubstr(" norm as bucket"));
}

// Groups -------------------------------------------------------------------------------------------

TEST(LanguageTest, PairsReduceAmongThemselves) {
  const Program program = three_layers_in_pairs(Owes::Pairs);
  expect_exact(plan_of(program, two_buckets_of(program)));
}

TEST(LanguageTest, TheWrongPairsAreFound) {
  const Program program = three_layers_in_pairs(Owes::Pairs);
  ScheduledProgram plan = plan_of(program, two_buckets_of(program));
  for (Command& command : plan.roles[0].commands) {
    auto* run = std::get_if<Communicate>(&command.action);
    if (run != nullptr) run->group = kAcross;
  }
  schedule::link_transfers(plan);
  expect_found(plan, "c.grad");
}

TEST(LanguageTest, AGradientMayOweTwoGroups) {
  const Program program = three_layers_in_pairs(Owes::PairsAndAcross);
  Schedule schedule = buckets_of(program, {{kCGrad, kBGrad}, {kCGrad, kBGrad}, {kAGrad}, {kAGrad}});
  schedule.buckets[1].group = kAcross;
  schedule.buckets[3].group = kAcross;
  const ScheduledProgram plan = plan_of(program, schedule);
  expect_exact(plan);
  const ScheduledProgram broken = without(plan, [](const Command& command) {
    const auto* run = bucket_collective(command);
    return run != nullptr && run->group == kAcross;
  });
  expect_found(broken, "c.grad");
}

// Scattered within the pairs, then summed over the replicas of each shard.
TEST(LanguageTest, ShardsWithReplicasAreExact) {
  const Program program = three_layers_in_pairs(Owes::PairsAndAcross);
  Schedule schedule = two_buckets_of(program);
  for (schedule::Bucket& bucket : schedule.buckets) {
    bucket.collective = Collective::ReduceScatter;
    bucket.replicas = kAcross;
  }
  const ScheduledProgram plan = plan_of(program, schedule);
  expect_exact(plan);
  expect_found(without_collective(plan, Collective::AllReduce), "rank 0 step 0 ");
}

// Types and groups of today -------------------------------------------------------------------------

// Gradients are f32, parameters bf16; those of b owe over the pairs {0, 2} and {1, 3}, the others over all
// four ranks.
Program experts() {
  Program program = three_layers(4, testing::Clip::GlobalNorm);
  program.groups.push_back({kAcross, "edp", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2});
  for (schedule::Reduction& owed : program.reductions) {
    if (owed.gradient == kBGrad) owed.group = kAcross;
  }
  for (schedule::Tensor& tensor : program.tensors) {
    if (tensor.kind == schedule::TensorKind::Parameter) tensor.dtype = schedule::DType::BF16;
  }
  return program;
}

ScheduledProgram experts_plan(const std::string& policy) {
  const Program program = experts();
  return plan_of(program, make_schedule(program, schedule::parse_policy(policy)));
}

TEST(LanguageTest, NarrowParametersOfTwoGroupsAreThoseThatWereUpdated) {
  for (const std::string policy :
       {"sharded", "sharded:cap=1KiB,p=1", "sharded:gather=next-forward,k=2", "sharded+per-tensor",
        "sharded:mode=view,scale=before-collective", "fsdp:k=2", "fsdp:reshard=no",
        "fsdp:k=3,sync=every", "sharded:k=2,sync=every,mode=view",
        "sharded:cap=1KiB,k=2,sync=every", "sharded+per-tensor+k=2,sync=every",
        "fsdp:k=2,sync=every,average=no,scale=after-collective",
        "fsdp:prefetch=2,mode=copy,streams=2"}) {
    SCOPED_TRACE(policy);
    expect_exact(experts_plan(policy));
  }
}

TEST(LanguageTest, AGatherOfTheExpertsThatIsLeftOutIsFound) {
  const ScheduledProgram plan = experts_plan("sharded");
  const ScheduledProgram broken = without(plan, [&](const Command& command) {
    const auto* run = bucket_collective(command);
    return run != nullptr && run->kind == Collective::AllGather && run->group == kAcross;
  });
  const CheckResult check = run_over_ring(broken);
  EXPECT_GT(check.wrong, kBNumel * 9 / 10);
  EXPECT_THAT(check.first_wrong, HasSubstr(" b["));
}

TEST(LanguageTest, APartOfTheNormThatIsNotSummedUpIsFound) {
  const CheckResult check =
      run_over_ring(without_op(experts_plan("sharded"), "norm.edp.all-reduce"));
  EXPECT_GT(check.wrong, 0);
  EXPECT_THAT(check.first_wrong, HasSubstr("norm.edp as norm.edp.add read it"));
}

// Two stages of four ranks each, a and b on the first one.
ScheduledProgram experts_pipeline(const std::string& policy) {
  auto assigned = schedule::assign_stages(experts(), {.stages = 2});
  const Program program = std::get<schedule::Rewritten>(std::move(assigned)).program;
  return plan_of(program, make_schedule(program, schedule::parse_policy(policy)));
}

TEST(LanguageTest, StagesOfShardsHaveTheRightValuesAndOneNorm) {
  for (const std::string policy :
       {"pipeline:stages=2,k=2", "pipeline:stages=2,k=3+sharded",
        "pipeline:stages=2,k=2+sharded:gather=next-forward", "pipeline:stages=2,k=2+fsdp",
        "pipeline:stages=2,k=3+fsdp:reshard=no"}) {
    SCOPED_TRACE(policy);
    const CheckResult check = run_over_ring(experts_pipeline(policy));
    EXPECT_EQ(check.wrong, 0) << check.first_wrong;
    EXPECT_GE(check.checked, 4 * kSteps * kNumel);
  }
}

}  // namespace
}  // namespace dovetail::exec

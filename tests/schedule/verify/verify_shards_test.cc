// Sharded buckets: what may be read of a shard, and when parameters are whole again.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/policies.h"
#include "tests/schedule/verify/verify_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::schedule::verify_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

bool is_collective(const Command& command, Collective kind) {
  const auto* collective = bucket_collective(command);
  return collective != nullptr && collective->kind == kind;
}

std::size_t collective(const ScheduledProgram& plan, Collective kind, int nth = 0) {
  return find_command(
      plan, [&](const Command& command) { return is_collective(command, kind); }, nth);
}

// Two layers on four ranks, each bucket reduce-scattered, its shard updated, its parameters
// gathered.
ScheduledProgram sharded(ParameterSync parameters, BucketMode mode = BucketMode::Copy,
                         ScaleAt scale = ScaleAt::Collective) {
  const Program program = training({8, 16}, 4);
  Schedule schedule = buckets_of(program, {{"l1"}, {"l0"}});
  schedule.parameters = parameters;
  schedule.scale = scale;
  for (Bucket& bucket : schedule.buckets) {
    bucket.collective = Collective::ReduceScatter;
    bucket.mode = mode;
  }
  ScheduledProgram plan = lower(program, schedule).program;
  EXPECT_THAT(reasons(plan), IsEmpty());
  return plan;
}

TEST(VerifyShardsTest, A24AParameterThatIsNeverGatheredIsOldInTheNextStep) {
  ScheduledProgram broken = sharded(ParameterSync::AfterUpdate);
  erase(broken, collective(broken, Collective::AllGather));
  EXPECT_THAT(reasons(broken),
              Contains(MatchesRegex("read before gathered: in the next step, op l1.forward "
                                    ".c[0-9]+. reads l1 before its updated shards are gathered")));
}

TEST(VerifyShardsTest, A24AGatheredParameterThatIsNotUnpackedIsOldInTheNextStep) {
  ScheduledProgram broken = sharded(ParameterSync::AfterUpdate);
  const std::size_t unpack = find_command(broken, [&](const Command& command) {
    const auto* copy = std::get_if<Copy>(&command.action);
    return copy != nullptr && copy->direction == CopyDirection::Unpack;
  });
  erase(broken, unpack);
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("read before gathered: in the next step, op l")));
}

TEST(VerifyShardsTest, A24AGatherBeforeTheUpdateBringsBackOldParameters) {
  ScheduledProgram broken = sharded(ParameterSync::NextForward);
  // At the start of the step the gathers are in time; behind the forward op they are not.
  const std::size_t gather = collective(broken, Collective::AllGather);
  const BucketId bucket = *bucket_collective(commands_of(broken)[gather])->bucket;
  const std::size_t unpack = find_command(broken, [&](const Command& command) {
    const auto* copy = std::get_if<Copy>(&command.action);
    return copy != nullptr && copy->bucket == bucket;
  });
  move(broken, unpack, commands_of(broken).size());
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("read before gathered: in the next step, op l")));
}

TEST(VerifyShardsTest, A24TheNextStepsGatherMustWaitForThisStepsUpdate) {
  // The gather at the start of a step sends the shards that the last step's update wrote.
  ScheduledProgram broken = sharded(ParameterSync::NextForward);
  const std::size_t gather = collective(broken, Collective::AllGather);
  const StreamId stream = commands_of(broken)[gather].stream;
  const std::size_t wait = find_command(broken, [&](const Command& command) {
    return command.stream == stream && std::holds_alternative<WaitEvent>(command.action);
  });
  ASSERT_LT(wait, gather);
  erase(broken, wait);
  EXPECT_THAT(reasons(broken), Contains(MatchesRegex(
                                   "race: in the next step, bucket [0-9]+: all-gather .c[0-9]+. is "
                                   "not ordered after the write of l0 by op bucket1.update.*")));
}

TEST(VerifyShardsTest, A14AGatherThatDoesNotWaitForTheUpdateIsARace) {
  ScheduledProgram broken = sharded(ParameterSync::AfterUpdate);
  const std::size_t gather = collective(broken, Collective::AllGather);
  std::size_t wait = gather;
  while (!std::holds_alternative<WaitEvent>(commands_of(broken)[wait].action)) --wait;
  erase(broken, wait);
  EXPECT_THAT(reasons(broken), Contains(MatchesRegex("race: bucket [0-9]+: all-gather .*is not "
                                                     "ordered after the write of l1 by op "
                                                     "bucket0.update .c[0-9]+.")));
}

TEST(VerifyShardsTest, AWholeUpdateOfAShardIsTheWrongReduction) {
  const Program program = training({8, 16}, 4);
  ScheduledProgram broken = lower(program, buckets_of(program, {{"l1"}, {"l0"}})).program;
  broken.buckets[0].shards = 4;
  broken.buckets[0].cut_over = program.groups[0].id;
  std::get<Communicate>(commands_of(broken)[find<Communicate>(broken)].action).kind =
      Collective::ReduceScatter;
  EXPECT_THAT(reasons(broken),
              ElementsAre(MatchesRegex("wrong reduction: op l1.update .c[0-9]+. reads l1.grad, of "
                                       "which it has only this rank's shard")));
}

TEST(VerifyShardsTest, AShardUpdateOfAParameterThatLiesInNoBucketIsReported) {
  const Program program = training({8, 16}, 4);
  ScheduledProgram broken = lower(program, buckets_of(program, {{"l1"}, {"l0"}})).program;
  op_named(broken.program, "l1.update").effect =
      ShardUpdate{BucketId{0}, BucketId{0}, Bytes(16), Rational()};
  EXPECT_THAT(reasons(broken), ElementsAre(MatchesRegex("bad reference: op l1.update .c[0-9]+. "
                                                        "writes l1, which does not lie in bucket "
                                                        "0")));
}

TEST(VerifyShardsTest, AShardUpdateTakesGradientsThatLieAsItsParametersDo) {
  ScheduledProgram broken = sharded(ParameterSync::AfterUpdate);
  // Bucket 0 has the 16 elements of l1.grad, bucket 1 the 8 of l0.grad.
  std::get<ShardUpdate>(op_named(broken.program, "bucket0.update").effect).gradients = BucketId{1};
  const auto lines = reasons(broken);
  EXPECT_THAT(lines, Contains(MatchesRegex("bad layout: op bucket0.update .c[0-9]+. updates bucket "
                                           "2 with bucket 1, which is not cut alike")));
  EXPECT_THAT(lines, Contains(HasSubstr("reads l1.grad, which does not lie in bucket 1")));
}

TEST(VerifyShardsTest, AReduceScatterWithAnAllGatherIsAsGoodAsAnAllReduce) {
  const Program program = training({8, 16}, 4);
  ScheduledProgram plan = lower(program, buckets_of(program, {{"l1"}, {"l0"}})).program;
  plan.buckets[0].shards = 4;
  plan.buckets[0].cut_over = program.groups[0].id;
  const std::size_t at = find<Communicate>(plan);
  auto& commands = commands_of(plan);
  std::get<Communicate>(commands[at].action).kind = Collective::ReduceScatter;
  Command gather = commands[at];
  gather.id = CommandId{1000};
  std::get<Communicate>(gather.action).kind = Collective::AllGather;
  commands.insert(commands.begin() + static_cast<std::ptrdiff_t>(at) + 1, gather);
  EXPECT_THAT(reasons(plan), IsEmpty());
}

TEST(VerifyShardsTest, AI6ABucketHasAsManyShardsAsItsGroupHasRanks) {
  ScheduledProgram broken = sharded(ParameterSync::AfterUpdate);
  ProcessGroup pairs = broken.program.groups[0];
  pairs.id = GroupId{static_cast<std::int32_t>(broken.program.groups.size())};
  pairs.name = "pairs";
  pairs.instance_size = 2;
  broken.program.groups.push_back(pairs);
  broken.buckets[0].shards = 2;
  broken.buckets[0].cut_over = pairs.id;
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("is over 4 ranks, but the buffer has 2 shards")));
}

TEST(VerifyShardsTest, ABucketInShardsSaysOverWhichRanksItIsCut) {
  ScheduledProgram broken = sharded(ParameterSync::AfterUpdate);
  broken.buckets[0].cut_over.reset();
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("bucket 0 has 4 shards, but names no group of as "
                                                  "many ranks")));
}

TEST(VerifyShardsTest, ACollectiveTakesTheShardsOfTheRanksThatHoldThem) {
  ScheduledProgram broken = sharded(ParameterSync::AfterUpdate);
  ProcessGroup turned = broken.program.groups[0];
  turned.id = GroupId{static_cast<std::int32_t>(broken.program.groups.size())};
  turned.name = "turned";
  std::ranges::reverse(turned.ranks);
  broken.program.groups.push_back(turned);
  broken.buckets[0].cut_over = turned.id;
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("but the buffer is cut over other ranks")));
}

TEST(VerifyShardsTest, PI2AShardThatIsScaledTwiceIsReported) {
  ScheduledProgram broken =
      sharded(ParameterSync::AfterUpdate, BucketMode::View, ScaleAt::AfterCollective);
  std::get<Scale>(commands_of(broken)[find<Scale>(broken)].action).factor = Rational(1, 16);
  EXPECT_THAT(reasons(broken), ElementsAre(HasSubstr("scaled by 1/16, but 1/4 is needed")));
}

// 2 shards x 2 replicas: each gradient owes an average over both groups.
ScheduledProgram with_replicas() {
  Program program = training({8, 16}, 4);
  const GroupId replicas{1};
  program.groups[0].ranks = {Rank{0}, Rank{1}, Rank{2}, Rank{3}};
  program.groups[0].instance_size = 2;
  program.groups.push_back({replicas, "replicas", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2});
  const std::vector<Reduction> owed = program.reductions;
  for (Reduction reduction : owed) {
    reduction.group = replicas;
    program.reductions.push_back(reduction);
  }
  Schedule schedule = buckets_of(program, {{"l1"}, {"l0"}});
  for (Bucket& bucket : schedule.buckets) {
    bucket.collective = Collective::ReduceScatter;
    bucket.replicas = replicas;
  }
  ScheduledProgram plan = lower(program, schedule).program;
  EXPECT_THAT(reasons(plan), IsEmpty());
  return plan;
}

TEST(VerifyShardsTest, PL15AGroupThatIsLeftOutIsReported) {
  ScheduledProgram broken = with_replicas();
  erase(broken, collective(broken, Collective::AllReduce));
  EXPECT_THAT(reasons(broken),
              Contains("not reduced: gradient l1.grad is never reduced over replicas"));
}

TEST(VerifyShardsTest, A15TheReplicasReduceShardsNotTheWholeBucket) {
  ScheduledProgram broken = with_replicas();
  const std::size_t at = collective(broken, Collective::AllReduce);
  std::get<Communicate>(commands_of(broken)[at].action).part = Part::Whole;
  EXPECT_THAT(reasons(broken),
              ElementsAre(HasSubstr("takes all of l1.grad, of which only a shard is right")));
}

TEST(VerifyShardsTest, PL15ReducingOverTheSameGroupTwiceIsReported) {
  ScheduledProgram broken = with_replicas();
  const std::size_t at = collective(broken, Collective::AllReduce);
  std::get<Communicate>(commands_of(broken)[at].action).group = kDp;
  const auto lines = reasons(broken);
  EXPECT_THAT(lines, Contains(HasSubstr("reduced twice: gradient l1.grad is reduced a second")));
  EXPECT_THAT(lines, Contains("not reduced: gradient l1.grad is never reduced over replicas"));
}

// A norm over all gradients, read by every update.
Program with_norm() {
  Program program = training({8, 16}, 4);
  const TensorId norm{200};
  program.tensors.push_back({.id = norm, .name = "norm", .shape = {1}});
  const auto update = std::ranges::find(program.ops, "l1.update", &Op::name);
  program.ops.insert(update,
                     {.id = OpId{200},
                      .name = "norm",
                      .phase = Phase::Optimizer,
                      .work = MemoryWork{.bytes = Bytes(96), .flop = Flop(0)},
                      .reads = {tensor_named(program, "l1.grad"), tensor_named(program, "l0.grad")},
                      .writes = {norm},
                      .effect = GlobalNorm{}});
  op_named(program, "l1.update").reads.push_back(norm);
  op_named(program, "l0.update").reads.push_back(norm);
  return program;
}

TEST(VerifyShardsTest, A22AL2ANormOfShardsMustBeSummedBeforeItIsUsed) {
  const Program program = with_norm();
  Schedule schedule = buckets_of(program, {{"l1"}, {"l0"}});
  for (Bucket& bucket : schedule.buckets) bucket.collective = Collective::ReduceScatter;
  ScheduledProgram plan = lower(program, schedule).program;
  EXPECT_THAT(reasons(plan), IsEmpty());
  // Take the all-reduce of the norm out of Program and commands.
  const std::size_t sum = find_command(plan, [&](const Command& command) {
    const auto run = op_run_by(command);
    return run && std::holds_alternative<CollectiveWork>(plan.program.op(*run).work);
  });
  const OpId op = *op_run_by(commands_of(plan)[sum]);
  std::erase_if(plan.program.ops, [&](const Op& each) { return each.id == op; });
  erase(plan, sum);
  EXPECT_THAT(reasons(plan),
              Contains(MatchesRegex("wrong reduction: op bucket0.update .c[0-9]+. reads norm, "
                                    "which covers only this rank's shards")));
}

TEST(VerifyShardsTest, A22ANormOfShardsOfWholeGradientsIsReported) {
  const Program program = with_norm();
  ScheduledProgram broken = lower(program, buckets_of(program, {{"l1"}, {"l0"}})).program;
  op_named(broken.program, "norm").effect = GlobalNorm{.shard = true, .rescale = Rational()};
  EXPECT_THAT(reasons(broken), Contains(MatchesRegex(
                                   "wrong reduction: op norm .c[0-9]+. reads this rank's shards of "
                                   "l1.grad, which is not cut into shards")));
}

TEST(VerifyShardsTest, GMI8ANormThatIsTakenBeforeTheReductionIsReported) {
  const Program program = with_norm();
  ScheduledProgram plan = lower(program, buckets_of(program, {{"l1"}, {"l0"}})).program;
  EXPECT_THAT(reasons(plan), IsEmpty());
  op_named(plan.program, "norm").effect = GlobalNorm{.shard = false, .rescale = Rational(1, 4)};
  EXPECT_THAT(reasons(plan), Contains(HasSubstr("op norm")));
}

// Dense and expert gradients, f32 over bf16 parameters -------------------------------------------------

ScheduledProgram experts_plan(const std::string& policy) {
  const Program program = with_experts({8, 16, 24, 12});
  const Schedule schedule = make_schedule(program, parse_policy(policy));
  ScheduledProgram plan = lower(program, schedule).program;
  EXPECT_THAT(reasons(program, plan, schedule.merge), IsEmpty()) << policy;
  return plan;
}

TEST(VerifyShardsTest, EveryPolicyOfShardsIsLegalOverTwoGroups) {
  for (const std::string policy :
       {"sharded", "sharded:cap=40B,p=1", "sharded:gather=next-forward,k=3", "sharded+per-tensor",
        "sharded:mode=view", "sharded:scale=before-collective", "fsdp", "fsdp:reshard=no,k=2",
        "fsdp:prefetch=2,limit=2,mode=copy", "fsdp:scale=after-collective,cap=40B"}) {
    const ScheduledProgram plan = experts_plan(policy);
    for (const BucketLayout& bucket : plan.buckets) {
      const bool expert = plan.program.tensor(bucket.members.front().tensor).name[1] % 2 == 1;
      EXPECT_EQ(bucket.cut_over, expert ? kExperts : kDp) << policy;
    }
  }
}

TEST(VerifyShardsTest, ParametersThatLieAtOtherElementsThanTheirGradientsAreReported) {
  ScheduledProgram broken = experts_plan("sharded");
  BucketLayout& parameters = broken.buckets.back();
  parameters.members.back().offset -= Bytes(2);
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("which is not cut alike")));
}

TEST(VerifyShardsTest, A22APartOfANormThatIsNotAddedIsReported) {
  const Program program = with_experts({8, 16, 24, 12});
  ScheduledProgram plan = experts_plan("sharded");
  const std::size_t add = run_of(plan, "norm.dp.add");
  const OpId op = *op_run_by(commands_of(plan)[add]);
  std::erase_if(plan.program.ops, [&](const Op& each) { return each.id == op; });
  erase(plan, add);
  EXPECT_THAT(reasons(program, plan),
              Contains("other program: program: op norm is not what the original computes"));
}

// An update between the parts of the norm would see but one of them.
TEST(VerifyShardsTest, A22ANormThatIsUsedBeforeItsPartsAreAddedIsReported) {
  const Program program = with_experts({8, 16, 24, 12});
  ScheduledProgram plan = experts_plan("sharded");
  std::vector<Op>& ops = plan.program.ops;
  const auto add = std::ranges::find(ops, "norm.dp.add", &Op::name);
  std::rotate(add, add + 1, ops.end());
  move(plan, run_of(plan, "norm.dp.add"), commands_of(plan).size());
  EXPECT_THAT(reasons(program, plan),
              Contains("other program: program: op norm is not what the original computes"));
}

}  // namespace
}  // namespace dovetail::schedule::verify_test

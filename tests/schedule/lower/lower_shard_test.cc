// Reduce-scattered buckets, sharded updates and the all-gathers of parameters (rules A).
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/schedule/lower/lower_words.h"

namespace dovetail::schedule {
namespace {

Schedule sharded(const Program& program, ParameterSync parameters,
                 const std::string& policy = "per-tensor") {
  Schedule schedule = schedule_of(program, policy);
  for (Bucket& bucket : schedule.buckets) bucket.collective = Collective::ReduceScatter;
  schedule.parameters = parameters;
  return schedule;
}

// Buckets 0 (l1) and 1 (l0) of gradients have the buckets 2 and 3 of parameters. Each update works
// on the shard in the bucket, so nothing is unpacked before it.
TEST(LowerShardTest, A14A24UpdatesTheShardThenGathersTheParameters) {
  const Program program = layers(2);
  EXPECT_EQ(words(lower(program, sharded(program, ParameterSync::AfterUpdate)).program),
            "0:l0.forward 0:l1.forward "
            "0:l1.backward 0:record0 1:wait0 1:reduce-scatter0 1:record1 "
            "0:l0.backward 0:record2 1:wait2 1:reduce-scatter1 1:record3 "
            "0:wait1 0:bucket0.update 0:record4 1:wait4 1:all-gather2 1:record5 "
            "0:wait3 0:bucket1.update 0:record6 1:wait6 1:all-gather3 1:record7 "
            "0:wait5 0:wait7 ");
}

// The step begins with the parameters that the step before has updated, in the order in which
// forward needs them: l0 lies in bucket 3, l1 in bucket 2.
TEST(LowerShardTest, A24GathersTheParametersInTheNextForward) {
  const Program program = layers(2);
  EXPECT_EQ(words(lower(program, sharded(program, ParameterSync::NextForward)).program),
            "0:record0 1:wait0 1:all-gather3 1:record1 0:record2 1:wait2 1:all-gather2 1:record3 "
            "0:wait1 0:l0.forward 0:wait3 0:l1.forward "
            "0:l1.backward 0:record4 1:wait4 1:reduce-scatter0 1:record5 "
            "0:l0.backward 0:record6 1:wait6 1:reduce-scatter1 1:record7 "
            "0:wait5 0:bucket0.update 0:wait7 0:bucket1.update ");
}

TEST(LowerShardTest, CopyModePacksTheGradientsAndUnpacksOnlyTheParameters) {
  const Program program = layers(2);
  const Schedule schedule = sharded(program, ParameterSync::AfterUpdate, "one-bucket:mode=copy");
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:pack0 0:l0.backward 0:pack0 "
            "0:record0 1:wait0 1:reduce-scatter0 1:record1 0:wait1 0:bucket0.update "
            "0:record2 1:wait2 1:all-gather1 1:record3 0:wait3 0:unpack1 ");
}

// Payload 400 + 800 bytes on 5 ranks, padded to 128: the least common multiple with 5 elements of 4
// bytes is 640, so the bucket has 1280 bytes and each shard 256 = two units of 128.
TEST(LowerShardTest, A2ABucketIsPaddedToEqualShardsOfWholeUnits) {
  const Program program = layers(2, 5);
  Schedule schedule = sharded(program, ParameterSync::AfterUpdate, "one-bucket");
  schedule.buckets[0].pad_to = Bytes(128);
  const ScheduledProgram result = lower(program, schedule).program;
  ASSERT_EQ(result.buckets.size(), 2u);
  for (const BucketLayout& bucket : result.buckets) {
    EXPECT_EQ(bucket.shards, 5);
    EXPECT_EQ(bucket.size, Bytes(1280));
    EXPECT_EQ(bucket.payload, Bytes(1200));
  }
}

TEST(LowerShardTest, TheParametersLieLikeTheirGradients) {
  const Program program = layers(2);
  Schedule schedule = sharded(program, ParameterSync::AfterUpdate, "one-bucket:mode=copy");
  const TensorId l1 = tensor_named(program, "l1.grad");
  schedule.buckets.push_back(schedule.buckets[0]);
  schedule.buckets[0].gradients = {Slice(l1, 0, 120)};
  schedule.buckets[1].id = BucketId{7};
  schedule.buckets[1].gradients = {Slice(l1, 120, 80), tensor_named(program, "l0.grad")};
  const ScheduledProgram result = lower(program, schedule).program;
  ASSERT_EQ(result.buckets.size(), 4u);
  const BucketLayout& parameters = result.buckets[3];
  EXPECT_EQ(parameters.bucket, BucketId{9});
  EXPECT_EQ(parameters.mode, BucketMode::Copy);
  ASSERT_EQ(parameters.members.size(), 2u);
  EXPECT_EQ(parameters.members[0], (BucketMember{tensor_named(program, "l1"), Bytes(0), 120, 80}));
  EXPECT_EQ(parameters.members[1].tensor, tensor_named(program, "l0"));
  EXPECT_EQ(parameters.members[1].offset, Bytes(320));
}

// l0 begins behind the 200 elements of l1, aligned to 128 bytes of f32: at element 224. The bucket ends at
// 1296 bytes, padded to 1920: 480 elements, 960 bytes of bf16.
TEST(LowerShardTest, NarrowerParametersLieAtTheSameElements) {
  Program program = layers(2, 5);
  for (Tensor& tensor : program.tensors) {
    if (tensor.kind == TensorKind::Parameter) tensor.dtype = DType::BF16;
  }
  for (const ParameterSync sync : {ParameterSync::AfterUpdate, ParameterSync::NextForward}) {
    Schedule schedule = sharded(program, sync, "one-bucket");
    schedule.buckets[0].pad_to = Bytes(640);
    schedule.buckets[0].align_to = Bytes(128);
    const ScheduledProgram result = lower(program, schedule).program;
    const BucketLayout& gradients = result.buckets[0];
    const BucketLayout& parameters = result.buckets[1];
    EXPECT_EQ(gradients.size, Bytes(1920));
    EXPECT_EQ(gradients.members[1].offset, Bytes(896));
    EXPECT_EQ(parameters.dtype, DType::BF16);
    EXPECT_EQ(parameters.payload, Bytes(600));
    EXPECT_EQ(parameters.size, Bytes(960));
    EXPECT_EQ(parameters.members[1].offset, Bytes(448));
    EXPECT_EQ(parameters.shards, 5);
    const auto bytes = [&](Collective kind) {
      return std::ranges::find(result.transfers, kind, &Transfer::kind)->bytes;
    };
    EXPECT_EQ(bytes(Collective::ReduceScatter), Bytes(1920));
    EXPECT_EQ(bytes(Collective::AllGather), Bytes(960));
  }
}

TEST(LowerShardTest, ParametersOfTwoTypesInOneBucketAreRefused) {
  Program program = layers(2);
  program.tensors[static_cast<std::size_t>(tensor_named(program, "l0").value)].dtype = DType::BF16;
  const Schedule schedule = sharded(program, ParameterSync::AfterUpdate, "one-bucket");
  EXPECT_THROW(lower(program, schedule), InputError);
}

// Four ranks, shards over pairs and replicas across them.
TEST(LowerShardTest, A15AL7TheReplicasFollowOnTheCommunicationStream) {
  Program program = layers(1, 4);
  program.groups[0].instance_size = 2;
  program.groups.push_back({GroupId{1}, "replicas", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2});
  program.reductions.push_back({program.reductions[0].gradient, GroupId{1}, ReduceOp::Average});
  Schedule schedule = sharded(program, ParameterSync::AfterUpdate);
  schedule.buckets.resize(1);
  schedule.buckets[0].replicas = GroupId{1};
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward 0:l0.backward "
            "0:record0 1:wait0 1:reduce-scatter0 1:all-reduce0/shard 1:record1 "
            "0:wait1 0:bucket0.update 0:record2 1:wait2 1:all-gather1 1:record3 0:wait3 ");
  schedule.scale = ScaleAt::AfterCollective;
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward 0:l0.backward "
            "0:record0 1:wait0 1:reduce-scatter0+ 1:all-reduce0/shard+ 1:scale0x1/4/shard "
            "1:record1 0:wait1 0:bucket0.update "
            "0:record2 1:wait2 1:all-gather1 1:record3 0:wait3 ");
}

TEST(LowerShardTest, A19OneReduceScatterPerBucketForAllMicroSteps) {
  const Program program = layers(5);
  Schedule schedule = sharded(program, ParameterSync::AfterUpdate);
  schedule.merge.micro_steps = 3;
  const ScheduledProgram result = lower(program, schedule).program;
  EXPECT_EQ(count(result, Collective::ReduceScatter), 5);
  EXPECT_EQ(count(result, Collective::AllGather), 5);
}

// The naive program sums, then scales: of two ranks each scales its shard by 1/2.
TEST(LowerShardTest, OnTheComputeStreamNothingNeedsAnEvent) {
  const Program program = layers(1);
  Schedule schedule = sharded(program, ParameterSync::AfterUpdate, "naive");
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward 0:l0.backward 0:reduce-scatter0+ 0:scale0x1/2/shard 0:bucket0.update "
            "0:all-gather1 ");
}

TEST(LowerShardTest, RefusesWhatCannotBeSharded) {
  Program program = layers(1);
  const Schedule schedule = sharded(program, ParameterSync::AfterUpdate);
  std::get<Update>(program.ops.back().effect).elementwise = false;
  EXPECT_THROW(lower(program, schedule), InputError);
  Schedule replicas = schedule_of(program, "per-tensor");
  replicas.buckets[0].replicas = GroupId{0};
  EXPECT_THROW(lower(program, replicas), InputError);
}

TEST(LowerShardTest, ReportsTheGathers) {
  const Program program = layers(2);
  const auto report = lower(program, sharded(program, ParameterSync::NextForward)).report;
  ASSERT_EQ(report.size(), 6u);
  EXPECT_EQ(report[0].pass, LoweringPass::Shard);
  EXPECT_EQ(to_string(report[4]), "gather: 2 buckets of parameters in the next forward");
}

}  // namespace
}  // namespace dovetail::schedule

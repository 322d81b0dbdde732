// Where buckets lie, where their collectives stand, and who scales them.
//
// Two layers: l1.grad (200 elements, 800 bytes) is ready first, then l0.grad (100 elements).
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/error.h"
#include "schedule/verify/verify.h"
#include "tests/schedule/lower/lower_words.h"

namespace dovetail::schedule {
namespace {

Schedule one_bucket(const Program& program) { return schedule_of(program, "one-bucket"); }

// A gradient cut over two buckets: 150 of l1's 200 elements in the first, 50 and l0 in the second.
Schedule sliced(const Program& program) {
  Schedule schedule = schedule_of(program, "per-tensor:mode=copy");
  const TensorId l1 = tensor_named(program, "l1.grad");
  const TensorId l0 = tensor_named(program, "l0.grad");
  schedule.buckets[0].gradients = {Slice(l1, 0, 150)};
  schedule.buckets[1].gradients = {Slice(l1, 150, 50), l0};
  return schedule;
}

TEST(LowerBucketsTest, A4PL23PacksEachPartOfAGradientIntoItsBucket) {
  const Program program = layers(2);
  const ScheduledProgram result = lower(program, sliced(program)).program;
  EXPECT_EQ(words(result),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:pack0 0:pack1 "
            "0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:l0.backward 0:pack1 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:wait1 0:unpack0 0:wait3 0:unpack1 0:l1.update 0:l0.update ");
  // Expectation: 150 elements of 4 bytes; then 50 elements and, 200 bytes on, all 100 of l0.
  const TensorId l1 = tensor_named(program, "l1.grad");
  EXPECT_EQ(result.buckets[0].payload, Bytes(600));
  EXPECT_EQ(result.buckets[1].payload, Bytes(600));
  EXPECT_EQ(result.buckets[1].members[0], (BucketMember{l1, Bytes(0), 150, 50}));
  EXPECT_EQ(result.buckets[1].members[1].offset, Bytes(200));
}

TEST(LowerBucketsTest, RefusesPartsThatAViewCannotHold) {
  const Program program = layers(2);
  Schedule schedule = sliced(program);
  schedule.buckets[0].mode = BucketMode::View;
  EXPECT_THROW(lower(program, schedule), InputError);
}

TEST(LowerBucketsTest, RefusesPartsThatOverlapOrDoNotExist) {
  const Program program = layers(2);
  Schedule overlapping = sliced(program);
  overlapping.buckets[1].gradients[0] = Slice(tensor_named(program, "l1.grad"), 149, 51);
  EXPECT_THROW(lower(program, overlapping), InputError);
  Schedule beyond = sliced(program);
  beyond.buckets[1].gradients[0] = Slice(tensor_named(program, "l1.grad"), 150, 51);
  EXPECT_THROW(lower(program, beyond), InputError);
  Schedule twice = one_bucket(program);
  twice.buckets[0].gradients.push_back(twice.buckets[0].gradients[0]);
  EXPECT_THROW(lower(program, twice), InputError);
}

TEST(LowerBucketsTest, PI6TheBucketsHoldEveryElementOnce) {
  const Program program = layers(5);
  for (const std::string policy : {"per-tensor", "one-bucket", "threshold:cap=1KiB"}) {
    const ScheduledProgram result = lower(program, schedule_of(program, policy)).program;
    Bytes sum;
    for (const BucketLayout& bucket : result.buckets) sum += bucket.payload;
    EXPECT_EQ(sum, Bytes(4 * 400 + 800)) << policy;
    EXPECT_EQ(count(result, Collective::AllReduce),
              static_cast<std::int64_t>(result.buckets.size()))
        << policy;
  }
}

TEST(LowerBucketsTest, P15TheCommunicationStreamStartsOnceComputeHasIssuedTheProducer) {
  const Program program = layers(1);
  EXPECT_EQ(words(lower(program, schedule_of(program, "per-tensor")).program),
            "0:l0.forward 0:l0.backward 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:wait1 0:l0.update ");
}

// The bucket's only collective stands where its last member is ready: l1 waits for l0.
TEST(LowerBucketsTest, P25P28ABucketIsLaunchedAfterItsLastMember) {
  const Program program = layers(2);
  EXPECT_EQ(words(lower(program, one_bucket(program)).program),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:l0.backward "
            "0:record0 1:wait0 1:all-reduce0 1:record1 0:wait1 0:l1.update 0:l0.update ");
}

// One op makes two gradients. Expectation: reduce w, scale w, reduce b, scale b on the compute
// stream.
TEST(LowerBucketsTest, P5TheNaiveProgramReducesAndScalesGradientAfterGradient) {
  Program program = layers(2);
  Op& both = program.ops[2];
  ASSERT_EQ(both.name, "l1.backward");
  both.writes.push_back(program.ops[3].writes.front());
  program.ops.erase(program.ops.begin() + 3);
  Schedule schedule = schedule_of(program, "naive");
  schedule.scale = ScaleAt::AfterCollective;
  const ScheduledProgram result = lower(program, schedule).program;
  EXPECT_EQ(words(result),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:all-reduce0+ 0:scale0x1/2 "
            "0:all-reduce1+ 0:scale1x1/2 0:l1.update 0:l0.update ");
}

TEST(LowerBucketsTest, P13ScalesABucketOnceBehindItsCollective) {
  const Program program = layers(2, 4);
  Schedule schedule = one_bucket(program);
  schedule.scale = ScaleAt::AfterCollective;
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:l0.backward "
            "0:record0 1:wait0 1:all-reduce0+ 1:scale0x1/4 1:record1 "
            "0:wait1 0:l1.update 0:l0.update ");
}

TEST(LowerBucketsTest, PL17ScalesABucketOnTheComputeStreamInFrontOfItsCollective) {
  const Program program = layers(2, 4);
  Schedule schedule = schedule_of(program, "one-bucket:mode=copy");
  schedule.scale = ScaleAt::BeforeCollective;
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:pack0 0:l0.backward 0:pack0 0:scale0x1/4 "
            "0:record0 1:wait0 1:all-reduce0+ 1:record1 0:wait1 0:unpack0 "
            "0:l1.update 0:l0.update ");
}

TEST(LowerBucketsTest, P11P12AFactorFoldedIntoTheOptimizerLeavesPlainSums) {
  const Program program = layers(1);
  Schedule schedule = one_bucket(program);
  schedule.scale = ScaleAt::Optimizer;
  const ScheduledProgram result = lower(program, schedule).program;
  EXPECT_EQ(words(result),
            "0:l0.forward 0:l0.backward 0:record0 1:wait0 1:all-reduce0+ 1:record1 "
            "0:wait1 0:l0.update ");
  EXPECT_EQ(std::get<Update>(result.program.ops.back().effect).rescale, Rational(1, 2));
}

TEST(LowerBucketsTest, P1ARefusalNamesTheScheduleAndTheRule) {
  const Program program = layers(1);  // no op is known to fill the gradient of the loss
  Schedule schedule = one_bucket(program);
  schedule.scale = ScaleAt::LossGradient;
  try {
    lower(program, schedule);
    FAIL() << "nothing fills a loss gradient here";
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()),
              "schedule one-bucket: no op is known to fill the gradient of the loss");
  }
}

TEST(LowerBucketsTest, ASumThatOwesAScaleGetsOnlyThatScale) {
  Program program = layers(1);
  program.reductions[0].op = ReduceOp::Sum;
  program.reductions[0].scale = Rational(1, 3);
  for (const ScaleAt at : {ScaleAt::Collective, ScaleAt::AfterCollective}) {
    Schedule schedule = one_bucket(program);
    schedule.scale = at;
    EXPECT_EQ(words(lower(program, schedule).program),
              "0:l0.forward 0:l0.backward 0:record0 1:wait0 1:all-reduce0+ 1:scale0x1/3 1:record1 "
              "0:wait1 0:l0.update ");
  }
}

// l0.grad owes averages over ranks {0, 1} x {0, 2}: four ranks in pairs.
Program two_groups() {
  Program program = layers(1, 4);
  program.groups[0].ranks = {Rank{0}, Rank{1}, Rank{2}, Rank{3}};
  program.groups[0].instance_size = 2;
  program.groups.push_back({GroupId{1}, "across", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2});
  program.reductions.push_back({program.reductions[0].gradient, GroupId{1}, ReduceOp::Average});
  return program;
}

Schedule two_group_schedule(const Program& program) {
  Schedule schedule;
  schedule.policy = "two-groups";
  const TensorId gradient = program.reductions[0].gradient;
  schedule.buckets.push_back({.id = BucketId{0}, .gradients = {gradient}, .group = GroupId{0}});
  schedule.buckets.push_back({.id = BucketId{1}, .gradients = {gradient}, .group = GroupId{1}});
  return schedule;
}

// The second collective continues on the first one's buffer, behind it on the same stream.
TEST(LowerBucketsTest, PL15AGradientThatOwesTwoReductionsGetsThemOneAfterTheOther) {
  const Program program = two_groups();
  const ScheduledProgram result = lower(program, two_group_schedule(program)).program;
  EXPECT_EQ(words(result),
            "0:l0.forward 0:l0.backward 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:record2 1:wait2 1:all-reduce0 1:record3 0:wait3 0:l0.update ");
  EXPECT_EQ(result.buckets.size(), 1u);
}

TEST(LowerBucketsTest, PL15OnAnotherStreamTheSecondReductionWaitsForTheFirst) {
  const Program program = two_groups();
  Schedule schedule = two_group_schedule(program);
  schedule.buckets[1].stream = CommStream{1};
  schedule.scale = ScaleAt::AfterCollective;
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward 0:l0.backward 0:record0 1:wait0 1:all-reduce0+ 1:record1 "
            "0:record2 2:wait2 2:wait1 2:all-reduce0+ 2:scale0x1/4 2:record3 "
            "0:wait3 0:l0.update ");
}

// A tensor-parallel all-reduce in the middle of backward.
TEST(LowerBucketsTest, PI8OtherCommunicationKeepsItsPlaceOnTheComputeStream) {
  Program program = layers(2);
  Op shared = program.ops[2];
  shared.id = OpId{100};
  shared.name = "tp.all-reduce";
  shared.reads = {program.tensors[1].id};
  shared.writes = {program.tensors[1].id};
  shared.work = CollectiveWork{.group = GroupId{0}, .bytes = Bytes(4)};
  program.ops.insert(program.ops.begin() + 3, shared);
  EXPECT_EQ(words(lower(program, schedule_of(program, "per-tensor")).program),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:tp.all-reduce 0:l0.backward 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:wait1 0:l1.update 0:wait3 0:l0.update ");
}

TEST(LowerBucketsTest, PI10LoweringAgainGivesTheSame) {
  const Program program = layers(3);
  for (const std::string policy : {"naive", "per-tensor", "one-bucket:mode=copy"}) {
    const Schedule schedule = schedule_of(program, policy);
    const ScheduledProgram once = lower(program, schedule).program;
    EXPECT_EQ(lower(once.program, schedule).program, once) << policy;
  }
}

TEST(LowerBucketsTest, CollectivesKeepTheLimitOnThreadBlocks) {
  const Program program = layers(1);
  Schedule schedule = one_bucket(program);
  schedule.buckets[0].max_ctas = 4;
  const Lowered lowered = lower(program, schedule);
  int collectives = 0;
  for (const Command& command : lowered.program.roles[0].commands) {
    if (const auto* run = bucket_collective(command)) {
      ++collectives;
      EXPECT_EQ(run->max_ctas, 4);
    }
  }
  EXPECT_EQ(collectives, 1);
}

}  // namespace
}  // namespace dovetail::schedule

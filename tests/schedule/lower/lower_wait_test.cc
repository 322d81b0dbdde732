// Batches and waits: oracle O5's schedules, and hazards inside backward.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/schedule/lower/lower_words.h"

namespace dovetail::schedule {
namespace {

// Buckets of one gradient, launched in batches of p as the source system does; the tail of n mod p
// after backward (A10, A11).
Schedule batches(const Program& program, std::size_t p) {
  Schedule schedule = schedule_of(program, "per-tensor");
  const std::size_t full = schedule.buckets.size() / p * p;
  for (std::size_t i = 0; i < schedule.buckets.size(); ++i) {
    Bucket& bucket = schedule.buckets[i];
    bucket.wait = WaitPoint::BeforeNextBatch;
    if (i < full) {
      bucket.launch = LaunchInBatch{static_cast<std::int32_t>(i / p)};
    } else {
      bucket.launch = LaunchAfterBackward{};
    }
  }
  return schedule;
}

TEST(LowerWaitTest, A10ABatchIsLaunchedWhenItsLastBucketIsReady) {
  const Program program = layers(4);
  Schedule schedule = batches(program, 2);
  for (Bucket& bucket : schedule.buckets) bucket.wait = WaitPoint::FirstUse;
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward 0:l1.forward 0:l2.forward 0:l3.forward 0:l3.backward 0:l2.backward "
            "0:record0 1:wait0 1:all-reduce0 1:record1 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:l1.backward 0:l0.backward "
            "0:record4 1:wait4 1:all-reduce2 1:record5 0:record6 1:wait6 1:all-reduce3 1:record7 "
            "0:wait1 0:l3.update 0:wait3 0:l2.update 0:wait5 0:l1.update 0:wait7 0:l0.update ");
}

// Five buckets in batches of two: before each batch compute waits for the batch before; the tail is
// waited for at the end of backward.
TEST(LowerWaitTest, A13ComputeWaitsForABatchBeforeItLaunchesTheNext) {
  const Program program = layers(5);
  EXPECT_EQ(words(lower(program, batches(program, 2)).program),
            "0:l0.forward 0:l1.forward 0:l2.forward 0:l3.forward 0:l4.forward "
            "0:l4.backward 0:l3.backward "
            "0:record0 1:wait0 1:all-reduce0 1:record1 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:l2.backward 0:l1.backward 0:wait1 0:wait3 "
            "0:record4 1:wait4 1:all-reduce2 1:record5 0:record6 1:wait6 1:all-reduce3 1:record7 "
            "0:l0.backward 0:wait5 0:wait7 "
            "0:record8 1:wait8 1:all-reduce4 1:record9 0:wait9 "
            "0:l4.update 0:l3.update 0:l2.update 0:l1.update 0:l0.update ");
}

// Nothing is computed between a launch and its wait: what FSDP2 does on Gloo.
TEST(LowerWaitTest, AtLaunchComputeWaitsInFrontOfTheNextOp) {
  const Program program = layers(3);
  Schedule schedule = schedule_of(program, "per-tensor");
  for (Bucket& bucket : schedule.buckets) bucket.wait = WaitPoint::AtLaunch;
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward 0:l1.forward 0:l2.forward "
            "0:l2.backward 0:record0 1:wait0 1:all-reduce0 1:record1 0:wait1 "
            "0:l1.backward 0:record2 1:wait2 1:all-reduce1 1:record3 0:wait3 "
            "0:l0.backward 0:record4 1:wait4 1:all-reduce2 1:record5 0:wait5 "
            "0:l2.update 0:l1.update 0:l0.update ");
}

// Five buckets in batches of three: the tail of two is one batch, so they do not wait for each
// other.
TEST(LowerWaitTest, A11TheTailIsOneBatch) {
  const Program program = layers(5);
  EXPECT_EQ(words(lower(program, batches(program, 3)).program),
            "0:l0.forward 0:l1.forward 0:l2.forward 0:l3.forward 0:l4.forward "
            "0:l4.backward 0:l3.backward 0:l2.backward "
            "0:record0 1:wait0 1:all-reduce0 1:record1 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:record4 1:wait4 1:all-reduce2 1:record5 0:l1.backward 0:l0.backward "
            "0:wait1 0:wait3 0:wait5 "
            "0:record6 1:wait6 1:all-reduce3 1:record7 0:record8 1:wait8 1:all-reduce4 1:record9 "
            "0:wait7 0:wait9 0:l4.update 0:l3.update 0:l2.update 0:l1.update 0:l0.update ");
}

TEST(LowerWaitTest, A13InBatchesOfOneEachLaunchWaitsForTheOneBefore) {
  const Program program = layers(2);
  EXPECT_EQ(words(lower(program, batches(program, 1)).program),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:l0.backward 0:wait1 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:wait3 0:l1.update 0:l0.update ");
}

TEST(LowerWaitTest, P16ComputeWaitsForTheWholeStreamBeforeTheFirstReader) {
  const Program program = layers(3);
  EXPECT_EQ(words(lower(program, schedule_of(program, "per-tensor:scope=whole-stream")).program),
            "0:l0.forward 0:l1.forward 0:l2.forward "
            "0:l2.backward 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:l1.backward 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:l0.backward 0:record4 1:wait4 1:all-reduce2 1:record5 "
            "0:wait5 0:l2.update 0:l1.update 0:l0.update ");
}

// An op of backward that reads the reduced l1.grad, one op after its bucket was launched.
TEST(LowerWaitTest, P22AReaderInBackwardIsWaitedForAndClosesNothing) {
  Program program = layers(2);
  Op reader = program.ops[2];
  reader.id = OpId{100};
  reader.name = "reader";
  reader.reads = {tensor_named(program, "l1.grad")};
  reader.writes = {program.tensors[1].id};
  program.ops.insert(program.ops.begin() + 4, reader);
  EXPECT_EQ(words(lower(program, schedule_of(program, "per-tensor:wait=end-of-backward")).program),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:l0.backward 0:record2 1:wait2 1:all-reduce1 1:record3 0:wait1 0:reader "
            "0:wait3 0:l1.update 0:l0.update ");
}

// An optimizer op that overwrites a gradient that nobody reads (it clears it).
TEST(LowerWaitTest, PL3AnOverwriteWaitsForTheCollectiveToo) {
  Program program = layers(1);
  Op& update = program.ops.back();
  update.name = "clear";
  update.effect = ZeroFill{};
  update.reads = {};
  update.writes = {tensor_named(program, "l0.grad")};
  EXPECT_EQ(
      words(lower(program, schedule_of(program, "per-tensor")).program),
      "0:l0.forward 0:l0.backward 0:record0 1:wait0 1:all-reduce0 1:record1 0:wait1 0:clear ");
}

TEST(LowerWaitTest, ABucketLaunchedBehindTheOptimizersFirstOpIsWaitedForAtItsUse) {
  const Program program = layers(2);
  Schedule schedule = schedule_of(program, "per-tensor:wait=end-of-backward");
  schedule.buckets[1].launch = LaunchAfterOp{program.ops[4].id};
  EXPECT_EQ(words(lower(program, schedule).program),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:l0.backward 0:wait1 0:l1.update 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:wait3 0:l0.update ");
}

}  // namespace
}  // namespace dovetail::schedule

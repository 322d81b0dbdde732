// What a rank keeps of a plan, by hand.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/resident.h"

#include <gtest/gtest.h>

namespace dovetail::schedule {
namespace {

// Two layers with parameters of 1 Mi and 2 Mi elements of f32, their gradients and one moment of each.
Program two_layers() {
  Program program;
  program.groups = {
      {.id = GroupId{0}, .name = "dp", .ranks = {Rank{0}, Rank{1}, Rank{2}, Rank{3}}}};
  const auto tensor = [&](const std::string& name, std::int64_t size, TensorKind kind) {
    const TensorId id{static_cast<std::int32_t>(program.tensors.size())};
    program.tensors.push_back({.id = id, .name = name, .kind = kind, .shape = {size << 20}});
    return id;
  };
  for (std::int32_t layer = 0; layer < 2; ++layer) {
    const TensorId w = tensor("w", layer + 1, TensorKind::Parameter);
    const TensorId g = tensor("g", layer + 1, TensorKind::Gradient);
    const TensorId m = tensor("m", layer + 1, TensorKind::OptimizerState);
    const auto op = [&](Phase phase, std::vector<TensorId> reads, std::vector<TensorId> writes) {
      program.ops.push_back({.id = OpId{static_cast<std::int32_t>(program.ops.size())},
                             .phase = phase,
                             .reads = std::move(reads),
                             .writes = std::move(writes),
                             .stage = layer});
    };
    op(Phase::Forward, {w}, {});
    op(Phase::Backward, {w}, {g});
    op(Phase::Optimizer, {g, w, m}, {w, m});
  }
  return program;
}

Schedule one_bucket(Collective collective) {
  Schedule schedule;
  Bucket bucket;
  bucket.gradients = {TensorId{1}, TensorId{4}};
  bucket.group = GroupId{0};
  bucket.collective = collective;
  schedule.buckets = {bucket};
  return schedule;
}

TEST(ResidentTest, AllReducedBucketsLeaveEverythingWhole) {
  EXPECT_EQ(
      resident(two_layers(), one_bucket(Collective::AllReduce)),
      (Resident{{.parameters = mib(12), .gradients = mib(12), .optimizer = mib(12)}, mib(24)}));
}

TEST(ResidentTest, CopiesAndSumsOfMicroStepsAreSecondGradients) {
  Schedule schedule = one_bucket(Collective::AllReduce);
  schedule.buckets[0].mode = BucketMode::Copy;
  schedule.merge.micro_steps = 4;
  const Resident kept = resident(two_layers(), schedule);
  EXPECT_EQ(kept.copies, mib(12));
  EXPECT_EQ(kept.accumulated, mib(12));
  EXPECT_EQ(kept.total(), mib(60));
}

// Of 16 MiB that nothing updates a rank keeps 4, and all of it while it is in use.
TEST(ResidentTest, FrozenBlocksAreDividedAndTheLargestIsThereWhole) {
  Program program = two_layers();
  const TensorId frozen{static_cast<std::int32_t>(program.tensors.size())};
  program.tensors.push_back(
      {.id = frozen, .name = "frozen", .kind = TensorKind::Parameter, .shape = {4 << 20}});
  program.ops.front().reads.push_back(frozen);
  Schedule schedule = one_bucket(Collective::ReduceScatter);
  EXPECT_EQ(resident(program, schedule).parameters, mib(12 + 16));
  schedule.parameters = ParameterSync::EachUse;
  schedule.frozen = {{.id = BucketId{1}, .parameters = {frozen}, .group = GroupId{0}}};
  EXPECT_EQ(resident(program, schedule).parameters, mib(3 + 4 + 16));
}

TEST(ResidentTest, ShardedUpdatesDivideStateAndFsdpAlsoTheRest) {
  Schedule schedule = one_bucket(Collective::ReduceScatter);
  EXPECT_EQ(resident(two_layers(), schedule),
            (Resident{{.parameters = mib(12), .gradients = mib(12), .optimizer = mib(3)}, mib(6)}));
  schedule.parameters = ParameterSync::EachUse;
  EXPECT_EQ(
      resident(two_layers(), schedule),
      (Resident{{.parameters = mib(3 + 12), .gradients = mib(3), .optimizer = mib(3)}, mib(6)}));
}

// Of 12 MiB of parameters those that are kept from forward to backward are there whole.
TEST(ResidentTest, BlocksThatAreNotReshardedAreThereTogether) {
  Schedule schedule = one_bucket(Collective::ReduceScatter);
  Bucket second = schedule.buckets.front();
  second.id = BucketId{1};
  schedule.buckets.front().gradients = {TensorId{1}};
  second.gradients = {TensorId{4}};
  schedule.buckets.push_back(second);
  schedule.parameters = ParameterSync::EachUse;
  EXPECT_EQ(resident(two_layers(), schedule).parameters, mib(3 + 8));  // the larger one at a time
  for (const Bucket& bucket : schedule.buckets) {
    ParameterGather gather;
    gather.bucket = bucket.id;
    gather.readers = GatherFor::ForwardAndBackward;
    schedule.gathers.push_back(gather);
  }
  EXPECT_EQ(resident(two_layers(), schedule).parameters, mib(3 + 12));
}

TEST(ResidentTest, OfStagesTheFullestCounts) {
  Program program = two_layers();
  program.stages = 2;
  EXPECT_EQ(resident(program, one_bucket(Collective::AllReduce)),
            (Resident{{.stage = 1, .parameters = mib(8), .gradients = mib(8), .optimizer = mib(8)},
                      mib(16)}));
}

}  // namespace
}  // namespace dovetail::schedule

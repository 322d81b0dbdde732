// Races on pieces of tensors, layouts that cannot be, and the order of ops.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/schedule/verify/verify_programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::schedule::verify_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

ScheduledProgram legal(const Program& program, const Schedule& schedule) {
  ScheduledProgram plan = lower(program, schedule).program;
  EXPECT_THAT(reasons(plan), IsEmpty());
  return plan;
}

bool is_wait_of(const Command& command, StreamId stream) {
  return command.stream == stream && std::holds_alternative<WaitEvent>(command.action);
}

std::size_t wait_of(const ScheduledProgram& plan, StreamId stream, int nth = 0) {
  return find_command(
      plan, [&](const Command& command) { return is_wait_of(command, stream); }, nth);
}

// One bucket in copy mode, whose two gradients come from two streams that do not wait for each
// other.
//
//   compute  a.backward  pack a  record e0
//   side     b.backward  pack b  record e1
//   comm     wait e0  wait e1  all-reduce  record e2
//   compute  wait e2  unpack  a.update  b.update
ScheduledProgram two_producers() {
  TrainingBuilder build(2);
  ScheduledProgram plan;
  const StreamId side{1}, comm{2};
  plan.streams = {{kComputeStream, "compute"}, {side, "side"}, {comm, "comm0"}};
  BucketLayout bucket{.bucket = BucketId{0},
                      .mode = BucketMode::Copy,
                      .payload = Bytes(32),
                      .size = Bytes(32),
                      .members = {}};
  std::vector<TensorId> gradients;
  std::vector<OpId> backward, update;
  for (const std::string name : {"a", "b"}) {
    const TensorId weight = build.tensor(name, TensorKind::Parameter, 4);
    const TensorId gradient = build.tensor(name + ".grad", TensorKind::Gradient, 4);
    backward.push_back(build.op(name + ".backward", Phase::Backward, {weight}, {gradient}));
    build.program.reductions.push_back({gradient, kDp, ReduceOp::Average});
    bucket.members.push_back({gradient, Bytes(16 * static_cast<std::int64_t>(gradients.size()))});
    gradients.push_back(gradient);
  }
  for (std::size_t i = 0; i < 2; ++i) {
    const TensorId weight{static_cast<std::int32_t>(2 * i)};
    update.push_back(build.op(i == 0 ? "a.update" : "b.update", Phase::Optimizer,
                              {gradients[i], weight}, {weight}));
  }
  plan.program = build.program;
  plan.buckets = {bucket};
  plan.roles.push_back({{Rank{0}, Rank{1}}, {}});
  const auto add = [&](StreamId stream, Action action) {
    auto& commands = commands_of(plan);
    const auto id = static_cast<std::int32_t>(commands.size());
    commands.push_back({CommandId{id}, stream, std::move(action)});
  };
  const BucketId id{0};
  add(kComputeStream, RunOp{backward[0]});
  add(kComputeStream, Copy{id, CopyDirection::Pack, {gradients[0]}});
  add(kComputeStream, RecordEvent{EventId{0}});
  add(side, RunOp{backward[1]});
  add(side, Copy{id, CopyDirection::Pack, {gradients[1]}});
  add(side, RecordEvent{EventId{1}});
  add(comm, WaitEvent{EventId{0}});
  add(comm, WaitEvent{EventId{1}});
  add(comm, Communicate{id, Collective::AllReduce, ReduceOp::Average, kDp});
  add(comm, RecordEvent{EventId{2}});
  add(kComputeStream, WaitEvent{EventId{2}});
  add(kComputeStream, Copy{id, CopyDirection::Unpack, gradients});
  add(kComputeStream, RunOp{update[0]});
  add(kComputeStream, RunOp{update[1]});
  EXPECT_THAT(reasons(plan), IsEmpty());
  return plan;
}

// PL12: the start dependency of the source system names only the last member.
TEST(VerifyMemoryTest, P29PI3PL12ABucketThatWaitsOnlyForItsLastMemberIsARace) {
  ScheduledProgram broken = two_producers();
  erase(broken, wait_of(broken, StreamId{2}, 0));
  EXPECT_THAT(reasons(broken),
              ElementsAre(MatchesRegex("race: bucket 0: all-reduce .c8. is not ordered after the "
                                       "write of a.grad by bucket 0: pack .c1.")));
}

TEST(VerifyMemoryTest, P29PI4AReaderThatDoesNotWaitForTheCollectiveIsARace) {
  ScheduledProgram broken = two_producers();
  erase(broken, wait_of(broken, kComputeStream));
  EXPECT_THAT(reasons(broken),
              Contains(MatchesRegex("race: bucket 0: unpack .c11. is not ordered after the write "
                                    "of a.grad in its bucket by bucket 0: all-reduce .c8.")));
}

// PL3: an op that only overwrites a gradient is a hazard as well.
TEST(VerifyMemoryTest, PI5AWriteIntoABucketInFlightIsARace) {
  // Two micro-steps, each reduced: the second backward writes the window that travels.
  const Program program = training({4, 6});
  Schedule schedule = buckets_of(program, {{"l1", "l0"}});
  schedule.merge = {.micro_steps = 2, .sync = SyncPoint::EveryMicroStep};
  ScheduledProgram broken = legal(program, schedule);
  erase(broken, wait_of(broken, kComputeStream, 0));
  EXPECT_THAT(reasons(broken), Contains(MatchesRegex("race: op l1.backward .c[0-9]+. is not "
                                                     "ordered after the write of l1.grad by "
                                                     "bucket 0: all-reduce .c[0-9]+.")));
}

TEST(VerifyMemoryTest, AI3APackIntoABucketInFlightIsARace) {
  const Program program = training({4, 6});
  Schedule schedule = buckets_of(program, {{"l1", "l0"}});
  schedule.merge = {.micro_steps = 2, .sync = SyncPoint::EveryMicroStep};
  schedule.buckets[0].mode = BucketMode::Copy;
  ScheduledProgram broken = legal(program, schedule);
  erase(broken, wait_of(broken, kComputeStream, 0));
  EXPECT_THAT(reasons(broken),
              Contains(MatchesRegex("race: bucket 0: pack .c[0-9]+. is not ordered after the write "
                                    "of l1.grad in its bucket by bucket 0: all-reduce.*")));
}

TEST(VerifyMemoryTest, PL3AScaleThatDoesNotWaitForItsBucketIsARace) {
  const Program program = training({4, 6});
  Schedule schedule = buckets_of(program, {{"l1", "l0"}});
  schedule.scale = ScaleAt::AfterCollective;
  ScheduledProgram broken = legal(program, schedule);
  commands_of(broken)[find<Scale>(broken)].stream = kComputeStream;
  EXPECT_THAT(reasons(broken), Contains(HasSubstr("race: bucket 0: scale")));
}

// l0.grad, 10 elements: [0, 6) in bucket 0, the rest in bucket 1.
Schedule split(const Program& program) {
  Schedule schedule = buckets_of(program, {{"l1"}, {}});
  const TensorId big = tensor_named(program, "l0.grad");
  schedule.buckets[0].gradients.push_back({big, 0, 6});
  schedule.buckets[1].gradients.push_back({big, 6, 4});
  for (Bucket& bucket : schedule.buckets) bucket.mode = BucketMode::Copy;
  return schedule;
}

TEST(VerifyMemoryTest, PI7APieceOfAGradientThatIsNotUnpackedIsNotReduced) {
  const Program program = training({10, 4});
  ScheduledProgram broken = legal(program, split(program));
  const std::size_t unpack = find_command(broken, [](const Command& command) {
    const auto* copy = std::get_if<Copy>(&command.action);
    return copy != nullptr && copy->direction == CopyDirection::Unpack &&
           copy->bucket == BucketId{1};
  });
  erase(broken, unpack);
  EXPECT_THAT(reasons(broken), ElementsAre(HasSubstr("read before reduced: op l0.update")));
}

TEST(VerifyMemoryTest, PI7ElementsThatLieInNoBucketAreNotReduced) {
  const Program program = training({10, 4});
  Schedule schedule = split(program);
  schedule.buckets[1].gradients[0].count = 3;
  EXPECT_THAT(reasons(lower(program, schedule).program),
              ElementsAre(HasSubstr("reads l0.grad before it holds the reduced value")));
}

TEST(VerifyMemoryTest, PI7ElementsThatLieInTwoBucketsAreReducedTwice) {
  const Program program = training({10, 4});
  ScheduledProgram broken = legal(program, split(program));
  BucketMember& second = broken.buckets[1].members[0];
  second.first = 5;
  second.count = 5;
  broken.buckets[1].size = Bytes(20);
  EXPECT_THAT(reasons(broken), ElementsAre(HasSubstr("reduced twice: gradient l0.grad")));
}

TEST(VerifyMemoryTest, APieceRacesOnlyWithItself) {
  // Bucket 1 is launched without a wait for the pack of its own part of l0.grad.
  const Program program = training({10, 4});
  Schedule schedule = split(program);
  schedule.buckets[1].stream = CommStream{1};
  ScheduledProgram broken = legal(program, schedule);
  erase(broken, wait_of(broken, StreamId{2}));
  EXPECT_THAT(reasons(broken), AllOf(Not(IsEmpty()), Each(HasSubstr("race: bucket 1"))));
}

// A layout with one bucket of 32 bytes in copy mode, after a change.
std::vector<std::string> layout_problems(const std::function<void(BucketLayout&)>& change) {
  const Program program = training({4, 4});
  Schedule schedule = buckets_of(program, {{"l1", "l0"}});
  schedule.buckets[0].mode = BucketMode::Copy;
  ScheduledProgram plan = legal(program, schedule);
  change(plan.buckets[0]);
  return reasons(plan);
}

TEST(VerifyMemoryTest, AI6ShardsMustDivideTheBucket) {
  EXPECT_THAT(layout_problems([](BucketLayout& bucket) { bucket.shards = 3; }),
              ElementsAre("bad layout: bucket 0: its 32 bytes are not 3 equal shards of whole "
                          "elements"));
}

TEST(VerifyMemoryTest, ARangeBeyondTheTensorIsABadLayout) {
  EXPECT_THAT(layout_problems([](BucketLayout& bucket) {
                bucket.members[0].first = 2;
                bucket.members[0].count = 4;
              }),
              ElementsAre("bad layout: bucket 0: elements 2 to 6 do not lie inside l1.grad"));
}

TEST(VerifyMemoryTest, AMemberOutsideTheBufferIsABadLayout) {
  EXPECT_THAT(layout_problems([](BucketLayout& bucket) { bucket.members[1].offset = Bytes(20); }),
              ElementsAre("bad layout: bucket 0: l0.grad lies outside the buffer"));
}

TEST(VerifyMemoryTest, AnotherDtypeIsABadLayout) {
  EXPECT_THAT(layout_problems([](BucketLayout& bucket) { bucket.dtype = DType::F16; }),
              Contains("bad layout: bucket 0: l1.grad has another dtype"));
}

TEST(VerifyMemoryTest, APartOfATensorCannotBeAWindow) {
  EXPECT_THAT(layout_problems([](BucketLayout& bucket) {
                bucket.mode = BucketMode::View;
                bucket.members[0].count = 2;
              }),
              ElementsAre("bad layout: bucket 0: only a part of l1.grad lies in it, which needs "
                          "copy mode"));
}

TEST(VerifyMemoryTest, PI7ATensorCannotBeTheWindowOfTwoBuckets) {
  const Program program = training({4, 4});
  ScheduledProgram plan = legal(program, buckets_of(program, {{"l1"}, {"l0"}}));
  plan.buckets[1].members[0].tensor = plan.buckets[0].members[0].tensor;
  EXPECT_THAT(reasons(plan),
              ElementsAre("bad layout: bucket 1: l1.grad is a window of bucket 0 already",
                          "reduced twice: bucket 1 and bucket 0 are both reduced over dp and both "
                          "hold l1.grad"));
  // Where no collective runs on the second bucket, only its layout is wrong.
  erase(plan, find<Communicate>(plan, 1));
  EXPECT_THAT(reasons(plan),
              ElementsAre("bad layout: bucket 1: l1.grad is a window of bucket 0 already"));
}

TEST(VerifyMemoryTest, UnknownTensorsOpsAndGroupsAreBadReferences) {
  EXPECT_THAT(layout_problems([](BucketLayout& bucket) { bucket.members[0].tensor = {99}; }),
              ElementsAre("bad reference: bucket 0 holds the unknown tensor 99"));
  const Program program = training({4, 4});
  ScheduledProgram plan = legal(program, buckets_of(program, {{"l1"}, {"l0"}}));
  std::get<Communicate>(commands_of(plan)[find<Communicate>(plan)].action).group = {7};
  EXPECT_THAT(reasons(plan), ElementsAre(HasSubstr("names the unknown process group 7")));
}

TEST(VerifyMemoryTest, AnOpThatReadsWhatALaterOpShouldHaveWrittenIsOutOfOrder) {
  const Program program = training({4, 4});
  ScheduledProgram plan = legal(program, buckets_of(program, {{"l1", "l0"}}));
  move(plan, run_of(plan, "l1.forward"), run_of(plan, "l0.forward"));
  EXPECT_THAT(reasons(plan),
              ElementsAre(MatchesRegex("op order: op l1.forward .c1. reads l0.out of an earlier "
                                       "step, not of op l0.forward")));
}

TEST(VerifyMemoryTest, OpsThatDoNotDependOnEachOtherMayRunInAnyOrder) {
  const Program program = training({4, 4});
  ScheduledProgram plan = legal(program, buckets_of(program, {{"l1", "l0"}}));
  move(plan, run_of(plan, "l0.update"), run_of(plan, "l1.update"));
  EXPECT_THAT(reasons(plan), IsEmpty());
}

}  // namespace
}  // namespace dovetail::schedule::verify_test

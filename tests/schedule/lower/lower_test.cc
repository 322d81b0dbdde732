// What lower emits, read as commands.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/lower/lower.h"

#include <gtest/gtest.h>

#include <sstream>

#include "base/error.h"
#include "schedule/describe.h"
#include "schedule/policies/policies.h"
#include "schedule/visit.h"
#include "tests/support/programs.h"

namespace dovetail::schedule {
namespace {

using dovetail::testing::us;

// One word per command: "0:l1.backward", "1:wait3".
std::string command_words(const ScheduledProgram& program) {
  std::ostringstream out;
  for (const Command& command : program.roles.front().commands) {
    out << command.stream << ':';
    visit(
        command.action, [&](const RunOp& run) { out << program.program.op(run.op).name; },
        [&](const Communicate& run) { out << to_string(run.kind) << run.bucket.value(); },
        [&](const Copy& copy) {
          out << (copy.direction == CopyDirection::Pack ? "pack" : "unpack") << copy.bucket;
        },
        [&](const RecordEvent& record) { out << "record" << record.event; },
        [&](const WaitEvent& wait) { out << "wait" << wait.event; },
        [&](const Scale& scale) { out << "scale" << scale.bucket << 'x' << scale.factor; },
        [&](const Release& release) { out << "release" << release.bucket; });
    out << ' ';
  }
  return out.str();
}

Program two_layers() {
  return dovetail::testing::chain(
      {{us(1), us(1), Bytes(400), us(1)}, {us(1), us(1), Bytes(800), us(1)}});
}

std::string lowered(const std::string& policy) {
  const Program program = two_layers();
  return command_words(lower(program, make_schedule(program, parse_policy(policy))).program);
}

TEST(LowerTest, LaunchesABucketAfterItsProducerAndWaitsBeforeItsFirstReader) {
  EXPECT_EQ(lowered("per-tensor"),
            "0:l0.forward 0:l1.forward "
            "0:l1.backward 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:l0.backward 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:wait1 0:l1.update 0:wait3 0:l0.update ");
}

TEST(LowerTest, PL2WaitsForAllBucketsAtTheEndOfBackwardWhenAsked) {
  EXPECT_EQ(lowered("per-tensor:wait=end-of-backward"),
            "0:l0.forward 0:l1.forward "
            "0:l1.backward 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:l0.backward 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:wait1 0:wait3 0:l1.update 0:l0.update ");
}

// The first reader waits for the last collective of the stream, so the second wait is not needed.
TEST(LowerTest, AWholeStreamWaitStandsForLaterOnesToo) {
  EXPECT_EQ(lowered("per-tensor:scope=whole-stream"),
            "0:l0.forward 0:l1.forward "
            "0:l1.backward 0:record0 1:wait0 1:all-reduce0 1:record1 "
            "0:l0.backward 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:wait3 0:l1.update 0:l0.update ");
}

// P5: it reduces, then scales by 1/2, behind each producer.
TEST(LowerTest, TheNaiveProgramReducesOnTheComputeStream) {
  EXPECT_EQ(lowered("naive"),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:all-reduce0 0:scale0x1/2 "
            "0:l0.backward 0:all-reduce1 0:scale1x1/2 0:l1.update 0:l0.update ");
}

TEST(LowerTest, CopyModePacksAfterTheProducerAndUnpacksAfterTheWait) {
  EXPECT_EQ(lowered("one-bucket:mode=copy"),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:pack0 0:l0.backward 0:pack0 "
            "0:record0 1:wait0 1:all-reduce0 1:record1 0:wait1 0:unpack0 0:l1.update 0:l0.update ");
}

TEST(LowerTest, WithoutOverlapTheCollectiveFollowsBackward) {
  EXPECT_EQ(lowered("no-overlap-per-tensor"),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:l0.backward "
            "0:record0 1:wait0 1:all-reduce0 1:record1 0:record2 1:wait2 1:all-reduce1 1:record3 "
            "0:wait1 0:l1.update 0:wait3 0:l0.update ");
}

TEST(LowerTest, NeverLaunchesABucketBeforeTheOneListedBeforeIt) {
  const Program program = two_layers();
  Schedule schedule = make_schedule(program, parse_policy("per-tensor"));
  std::swap(schedule.buckets[0], schedule.buckets[1]);
  EXPECT_EQ(command_words(lower(program, schedule).program),
            "0:l0.forward 0:l1.forward 0:l1.backward 0:l0.backward "
            "0:record0 1:wait0 1:all-reduce1 1:record1 0:record2 1:wait2 1:all-reduce0 1:record3 "
            "0:wait3 0:l1.update 0:wait1 0:l0.update ");
}

TEST(LowerTest, PadsABucketToAMultiple) {
  const Program program = two_layers();
  Schedule schedule = make_schedule(program, parse_policy("one-bucket"));
  schedule.buckets[0].pad_to = Bytes(1000);
  const ScheduledProgram result = lower(program, schedule).program;
  EXPECT_EQ(result.buckets[0].payload, Bytes(1200));
  EXPECT_EQ(result.buckets[0].size, Bytes(2000));
  EXPECT_EQ(result.buckets[0].members[1].offset, Bytes(800));
}

// P27: each member fills whole chunks, so the bucket holds the sum of their rounded sizes: 800 bytes
// fill four chunks of 256, 400 bytes two.
TEST(LowerTest, P27EachGradientStartsAtAMultipleOfTheAlignment) {
  const Program program = two_layers();
  Schedule schedule = make_schedule(program, parse_policy("one-bucket"));
  schedule.buckets[0].align_to = schedule.buckets[0].pad_to = Bytes(256);
  const ScheduledProgram result = lower(program, schedule).program;
  EXPECT_EQ(result.buckets[0].payload, Bytes(1200));
  EXPECT_EQ(result.buckets[0].members[0].offset, Bytes(0));
  EXPECT_EQ(result.buckets[0].members[1].offset, Bytes(1024));
  EXPECT_EQ(result.buckets[0].size, Bytes(1536));
}

// Alignments that cut elements are rounded up to whole ones: 6 bytes and f32 make 12.
TEST(LowerTest, AlignmentNeverCutsAnElement) {
  const Program program = two_layers();
  Schedule schedule = make_schedule(program, parse_policy("one-bucket"));
  schedule.buckets[0].align_to = Bytes(6);
  const ScheduledProgram result = lower(program, schedule).program;
  EXPECT_EQ(result.buckets[0].members[1].offset, Bytes(804));
}

TEST(LowerTest, ReportsWhatEachPassDid) {
  const Program program = two_layers();
  const auto report = lower(program, make_schedule(program, parse_policy("per-tensor"))).report;
  ASSERT_EQ(report.size(), 4u);
  EXPECT_EQ(to_string(report[0]), "lay out: 2 gradients in 2 buckets, 1.17 KiB, padding 0 B");
  EXPECT_EQ(to_string(report[1]), "launch: 1 of 2 collectives before backward ends");
  EXPECT_EQ(to_string(report[2]), "wait: 2 buckets at first use, 0 at end of backward");
  EXPECT_EQ(to_string(report[3]), "emit: 16 commands on 2 streams");
}

TEST(LowerTest, RefusesWhatCannotBeExpressed) {
  const Program program = two_layers();
  Schedule empty = make_schedule(program, parse_policy("per-tensor"));
  empty.buckets[0].gradients.clear();
  EXPECT_THROW(lower(program, empty), InputError);
  Schedule not_owed = make_schedule(program, parse_policy("per-tensor"));
  not_owed.buckets[0].gradients[0] = program.tensors[0].id;
  EXPECT_THROW(lower(program, not_owed), InputError);
  Schedule twice = make_schedule(program, parse_policy("per-tensor"));
  twice.buckets[1].id = twice.buckets[0].id;
  EXPECT_THROW(lower(program, twice), InputError);
}

}  // namespace
}  // namespace dovetail::schedule

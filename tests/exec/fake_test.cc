// The fake backend under the run loop, against hand-made timelines.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/fake/fake_backend.h"

#include "base/error.h"
#include "exec/measured_trace.h"
#include "exec/run.h"
#include "schedule/visit.h"
#include "tests/exec/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace dovetail::exec::fake {
namespace {

using schedule::BucketMode;
using schedule::Command;
using schedule::Communicate;
using schedule::Copy;
using schedule::InlineStream;
using schedule::RecordEvent;
using schedule::RunOp;
using schedule::ScheduledProgram;
using schedule::WaitEvent;
using testing::find_command;
using testing::PlanOptions;
using testing::two_buckets;
using traces::Span;
using traces::Trace;

// Forward 10 us each, backward 20 us each, updates 5 us each, bucket 0 takes 15 us, bucket 1 25 us,
// copies 2 us.
Duration duration(const Command& command) {
  return schedule::visit(
      command.action,
      [](const RunOp& run) {
        if (run.op <= testing::kForward2) return from_us(10);
        return run.op <= testing::kBackward1 ? from_us(20) : from_us(5);
      },
      [](const Communicate& run) { return run.bucket == BucketId{0} ? from_us(15) : from_us(25); },
      [](const Copy&) { return from_us(2); }, [](const RecordEvent&) { return Duration{}; },
      [](const WaitEvent&) { return Duration{}; },
      [](const schedule::Scale&) { return from_us(1); },
      [](const schedule::Release&) { return Duration{}; });
}

Trace play(const ScheduledProgram& plan, Durations durations, std::int32_t steps = 1) {
  FakeBackend fake(std::move(durations));
  const RankResult result = run(plan, Rank{0}, fake, {.warmup = 0, .steps = steps});
  return measured_trace(plan, std::vector<std::vector<Timing>>{result.timings}, {});
}

// "name start..end" in whole microseconds, in trace order.
std::vector<std::string> lines(const Trace& trace) {
  std::vector<std::string> text;
  for (const Span& span : trace.spans) {
    text.push_back(trace.command(span.command).name + ' ' +
                   std::to_string(static_cast<int>(to_us(span.start))) + ".." +
                   std::to_string(static_cast<int>(to_us(span.end))));
  }
  return text;
}

TEST(FakeBackendTest, OverlapsCollectivesWithBackward) {
  // Expectation: backward of layer 2 ends at 40, bucket 0 runs 40..55 under the backward of layer
  // 1, which ends at 60; bucket 1 runs 60..85. The first update finds bucket 0 done and
  // runs 60..65, the second stands 65..85 and runs 85..90. Launches cost nothing.
  const Trace trace = play(two_buckets({.ranks = 1}), {.duration = duration, .issue = {}});
  EXPECT_THAT(lines(trace),
              ::testing::ElementsAre("l1.forward 0..10", "l2.forward 10..20", "l2.backward 20..40",
                                     "l1.backward 40..60", "l2.update 60..65",
                                     "wait bucket 1 65..85", "l1.update 85..90",
                                     "all-reduce bucket 0 40..55", "all-reduce bucket 1 60..85"));
}

TEST(FakeBackendTest, IssuingTakesTimeFromTheComputeStream) {
  // Expectation: three commands per launch at 1 us each. Launch 0 takes 40..43 and its collective,
  // the second of the three, starts at 42. Backward of layer 1 runs 43..63, launch 1 63..66.
  const auto one_us = [](const Command&) { return from_us(1); };
  const Trace trace = play(two_buckets({.ranks = 1}), {.duration = duration, .issue = one_us});
  EXPECT_THAT(lines(trace),
              ::testing::IsSupersetOf({"enqueue bucket 0 40..43", "l1.backward 43..63",
                                       "all-reduce bucket 0 42..57", "enqueue bucket 1 63..66",
                                       "all-reduce bucket 1 65..90"}));
}

TEST(FakeBackendTest, InlineCollectivesAndCopiesRunOnTheComputeStream) {
  // Expectation: 40 pack 42 bucket 0 57 backward 77 pack 79 bucket 1 104 unpack 106 update 111
  // unpack 113 update 118.
  PlanOptions options = {.ranks = 1, .mode = BucketMode::Copy, .stream = InlineStream{}};
  const Trace trace = play(two_buckets(options), {.duration = duration, .issue = {}});
  EXPECT_THAT(lines(trace),
              ::testing::ElementsAre(
                  "l1.forward 0..10", "l2.forward 10..20", "l2.backward 20..40",
                  "pack bucket 0 40..42", "all-reduce bucket 0 42..57", "l1.backward 57..77",
                  "pack bucket 1 77..79", "all-reduce bucket 1 79..104", "unpack bucket 0 104..106",
                  "l2.update 106..111", "unpack bucket 1 111..113", "l1.update 113..118"));
}

TEST(FakeBackendTest, StepsFollowEachOther) {
  // Expectation: each step takes 90 us (first test), so step 2 begins at 180.
  const Trace trace = play(two_buckets({.ranks = 1}), {.duration = duration, .issue = {}}, 3);
  EXPECT_EQ(trace.steps, 3);
  const auto third = std::find_if(trace.spans.begin(), trace.spans.end(),
                                  [](const Span& span) { return span.step == 2; });
  ASSERT_NE(third, trace.spans.end());
  EXPECT_EQ(third->start, Instant(from_us(180)));
}

TEST(FakeBackendTest, AWaitForAnEventThatNobodyRecordsIsAnInputError) {
  ScheduledProgram plan = two_buckets({.ranks = 1});
  std::erase_if(plan.roles[0].commands, [](const Command& command) {
    return std::holds_alternative<RecordEvent>(command.action) && command.stream == StreamId{1};
  });
  FakeBackend fake({.duration = duration, .issue = {}});
  EXPECT_THROW(run(plan, Rank{0}, fake, {.warmup = 0, .steps = 1}), InputError);
}

}  // namespace
}  // namespace dovetail::exec::fake

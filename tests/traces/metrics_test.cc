// Tests of traces/metrics.h, each with its hand calculation.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/metrics.h"

#include "base/error.h"

#include "tests/traces/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace dovetail::traces {
namespace {

using sample::at;
using sample::Builder;
using sample::us;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(TraceTest, FindsACommandByItsIdWhereIdsHaveGaps) {
  Trace trace =
      Builder().compute(3, SpanPhase::Forward, "a").compute(8, SpanPhase::Forward, "b").build();
  EXPECT_EQ(trace.command(CommandId{3}).name, "a");
  EXPECT_EQ(trace.command(CommandId{8}).name, "b");
  EXPECT_THAT([&] { static_cast<void>(trace.command(CommandId{5})); },
              ThrowsMessage<CheckError>(HasSubstr("no command with id 5")));
}

TEST(MetricsTest, CutsTheComputeStreamIntoActivitiesThatSumToTheStep) {
  // Expectation: forward 10, backward 3 x 10, updates 3 x 5, stalls 45..50 and 55..65: 70 in all.
  const StepReport report = step_report(sample::predicted(), 0);
  EXPECT_EQ(report.step_time, us(70));
  EXPECT_EQ(report.breakdown[Activity::Forward], us(10));
  EXPECT_EQ(report.breakdown[Activity::Backward], us(30));
  EXPECT_EQ(report.breakdown[Activity::Optimizer], us(15));
  EXPECT_EQ(report.breakdown[Activity::Stall], us(15));
  EXPECT_EQ(report.breakdown[Activity::Idle], us(0));
  EXPECT_EQ(report.breakdown.total(), us(70));
  EXPECT_EQ(report.compute_busy, us(55));
}

TEST(MetricsTest, CountsCommunicationAsExposedWhereNoComputeRuns) {
  // Expectation: collectives 20..65; compute 0..45, 50..55, 65..70; so 45..50 and 55..65 are
  // exposed, and 30 of 45 us are overlapped.
  const StepReport report = step_report(sample::predicted(), 0);
  EXPECT_EQ(report.communication, us(45));
  EXPECT_EQ(report.exposed, us(15));
  EXPECT_DOUBLE_EQ(report.overlap_ratio().value(), 30.0 / 45.0);
}

TEST(MetricsTest, ListsBucketsWithTheirExposedPart) {
  // Expectation: bucket 0 runs 20..35 under backward; bucket 1 35..50 of which 45..50 is exposed;
  // bucket 2 50..65 of which 55..65 is.
  const StepReport report = step_report(sample::predicted(), 0);
  ASSERT_EQ(report.buckets.size(), 3U);
  EXPECT_EQ(report.buckets[1], (BucketRow{CommandId{5}, BucketId{1}, "all-reduce bucket 1", mib(2),
                                          us(35), us(35), us(50), us(5)}));
  EXPECT_EQ(report.buckets[0].exposed, us(0));
  EXPECT_EQ(report.buckets[2].exposed, us(10));
}

TEST(MetricsTest, ListsEachStallOfTheComputeStream) {
  const StepReport report = step_report(sample::predicted(), 0);
  EXPECT_THAT(report.stalls,
              ElementsAre(StallRow{CommandId{10}, BucketId{1}, "wait bucket 1", us(45), us(5)},
                          StallRow{CommandId{11}, BucketId{2}, "wait bucket 2", us(55), us(10)}));
}

// What the device ran for a command is told beside it, and a kernel that seems to outlast its step
// (another clock) makes no step longer.
TEST(MetricsTest, KernelsAreCountedByNoMetric) {
  Trace trace = sample::predicted();
  const StepReport before = step_report(trace, 0);
  trace.streams.push_back({StreamId{2}, "compute kernels"});
  trace.commands.push_back(
      {CommandId{12}, SpanKind::Kernel, SpanPhase::Forward, "gemm", std::nullopt, Bytes(0)});
  trace.spans.push_back({CommandId{12}, Rank{0}, StreamId{2}, 0, at(0), at(90), std::nullopt});
  const StepReport after = step_report(trace, 0);
  EXPECT_EQ(after.step_time, before.step_time);
  EXPECT_EQ(after.breakdown, before.breakdown);
  EXPECT_EQ(after.communication, before.communication);
  EXPECT_EQ(after.exposed, before.exposed);
}

TEST(MetricsTest, MeasuresAStepFromTheEarliestStartToTheLatestEndOfAllRanks) {
  // Expectation: rank 1 starts first at 2, rank 0 ends last at 30: 28 us. Rank 0 idles 2..5.
  const Trace trace = Builder()
                          .compute(0, SpanPhase::Forward, "f")
                          .ran({.command = 0, .rank = 0, .from = 5, .to = 30})
                          .ran({.command = 0, .rank = 1, .from = 2, .to = 20})
                          .build();
  const StepReport report = step_report(trace, 0);
  EXPECT_EQ(report.start, at(2));
  EXPECT_EQ(report.step_time, us(28));
  EXPECT_EQ(report.rank, Rank{0});
  EXPECT_EQ(report.breakdown[Activity::Idle], us(3));
  // Seen from rank 1: busy 18, idle 10 after its end.
  EXPECT_EQ(step_report(trace, 0, Rank{1}).breakdown[Activity::Idle], us(10));
}

TEST(MetricsTest, TakesTheLowestOfEquallySlowRanks) {
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "f");
  builder.ran({.command = 0, .rank = 0, .from = 0, .to = 4});
  builder.ran({.command = 0, .rank = 1, .from = 0, .to = 9});
  builder.ran({.command = 0, .rank = 2, .from = 3, .to = 9});
  EXPECT_EQ(step_report(builder.build(), 0).rank, Rank{1});
}

TEST(MetricsTest, SeparatesTransferFromWaitingForTheLastRank) {
  // Expectation, rank 0 in step 2: bucket 1 begins at 35, rank 1 arrives at 40, so 35..40 is no
  // transfer. Communication 20..70 = 50; transfer 20..35 and 40..70 = 45. Compute
  // 0..45, 55..60, 70..75: exposed 45..55 and 60..70 = 20, all of it transfer.
  const StepReport report = step_report(sample::measured(), 2, Rank{0});
  EXPECT_EQ(report.communication, us(50));
  EXPECT_EQ(report.transfer, us(45));
  EXPECT_EQ(report.exposed, us(20));
  EXPECT_EQ(report.exposed_transfer, us(20));
}

TEST(MetricsTest, LeavesTransferOpenWhereOneStartIsUnknown) {
  Builder builder;
  builder.bucket(0, SpanKind::Collective, 0).bucket(1, SpanKind::Collective, 1);
  builder.ran({.command = 0, .stream = 1, .from = 0, .to = 4, .transfer = 1});
  builder.ran({.command = 1, .stream = 1, .from = 4, .to = 9});
  const StepReport report = step_report(builder.build(), 0);
  EXPECT_EQ(report.transfer, std::nullopt);
  EXPECT_EQ(report.exposed_transfer, std::nullopt);
  EXPECT_EQ(report.communication, us(9));
}

TEST(MetricsTest, CountsAMomentOfTwoCollectivesOnce) {
  // Expectation: 0..10 on one stream and 5..12 on another are 12 us of communication, not 17.
  Builder builder;
  builder.bucket(0, SpanKind::Collective, 0).bucket(1, SpanKind::Collective, 1);
  builder.ran({.command = 0, .stream = 1, .from = 0, .to = 10});
  builder.ran({.command = 1, .stream = 2, .from = 5, .to = 12});
  const StepReport report = step_report(builder.build(), 0);
  EXPECT_EQ(report.communication, us(12));
  EXPECT_EQ(report.exposed, us(12));
}

TEST(MetricsTest, HidesCommunicationUnderCopiesEnqueuesAndTheNextStepsCompute) {
  // Expectation: collective 0..20; pack 0..3, enqueue 3..5, and compute of step 1 at 12..30 cover
  // 13 us; 5..12 is exposed and idle. Busy counts step 0 alone: 5. Of the window, 0..20, the forward
  // of step 1 takes 8.
  Builder builder;
  builder.bucket(0, SpanKind::Collective, 0).bucket(1, SpanKind::Copy, 0);
  builder.bucket(2, SpanKind::Enqueue, 0).compute(3, SpanPhase::Forward, "f");
  builder.ran({.command = 0, .stream = 1, .from = 0, .to = 20});
  builder.ran({.command = 1, .from = 0, .to = 3}).ran({.command = 2, .from = 3, .to = 5});
  builder.ran({.command = 3, .step = 1, .from = 12, .to = 30});
  const StepReport report = step_report(builder.build(), 0);
  EXPECT_EQ(report.exposed, us(7));
  EXPECT_EQ(report.compute_busy, us(5));
  EXPECT_EQ(report.breakdown[Activity::Copy], us(3));
  EXPECT_EQ(report.breakdown[Activity::Enqueue], us(2));
  EXPECT_EQ(report.breakdown[Activity::Forward], us(8));
  EXPECT_EQ(report.breakdown[Activity::Idle], us(7));
}

TEST(MetricsTest, TakesAnInlineCollectiveAsExposed) {
  // Expectation: a collective on stream 0 itself is communication with no compute beside it.
  Builder builder;
  builder.compute(0, SpanPhase::Backward, "b").bucket(1, SpanKind::Collective, 0);
  builder.ran({.command = 0, .from = 0, .to = 6}).ran({.command = 1, .from = 6, .to = 10});
  const StepReport report = step_report(builder.build(), 0);
  EXPECT_EQ(report.exposed, us(4));
  EXPECT_EQ(report.breakdown[Activity::Collective], us(4));
  EXPECT_EQ(report.overlap_ratio(), 0.0);
}

TEST(MetricsTest, DoesNotBeginAStepWithTheWaitOfACommunicationStream) {
  // Expectation: stream 1 stands at its next wait from 8 on, but step 1 begins at 10.
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "f").bucket(1, SpanKind::Wait, 0);
  builder.ran({.command = 0, .step = 0, .from = 0, .to = 10});
  builder.ran({.command = 0, .step = 1, .from = 10, .to = 25});
  builder.ran({.command = 1, .stream = 1, .step = 1, .from = 8, .to = 25});
  EXPECT_THAT(step_times(builder.build()), ElementsAre(us(10), us(15)));
}

TEST(MetricsTest, HasNoOverlapRatioWithoutCommunication) {
  const Trace trace =
      Builder().compute(0, SpanPhase::Forward, "f").ran({.command = 0, .from = 0, .to = 4}).build();
  EXPECT_EQ(step_report(trace, 0).overlap_ratio(), std::nullopt);
}

TEST(MetricsTest, PicksTheStepWithTheLowerMedianTime) {
  // Expectation: times 86, 71, 76, so step 2; its slowest rank is 1, which ends at 276.
  const Trace trace = sample::measured();
  EXPECT_THAT(step_times(trace), ElementsAre(us(86), us(71), us(76)));
  EXPECT_EQ(median_step(trace).step, 2);
  EXPECT_EQ(median_step(trace).rank, Rank{1});
  EXPECT_EQ(median_step(trace).start, at(200));
}

TEST(MetricsTest, PicksTheFirstOfEqualMedianSteps) {
  // Expectation: times 9, 4, 4, 9: the lower median is the 2nd of 4 4 9 9, so 4, first seen in
  // step 1.
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "f");
  builder.ran({.command = 0, .step = 0, .from = 0, .to = 9});
  builder.ran({.command = 0, .step = 1, .from = 9, .to = 13});
  builder.ran({.command = 0, .step = 2, .from = 13, .to = 17});
  builder.ran({.command = 0, .step = 3, .from = 17, .to = 26});
  EXPECT_EQ(median_step_index(builder.build()), 1);
}

// Rank 1 stalls for step 1 from 6 on, while rank 0 works on step 0 until 10; rank 0 begins step 1
// after a gap of 1 us. Steps end at 10 and 21: 10 and 11 us, gap included and nothing counted twice.
// Measured, each step begins behind a barrier and with its own first span: 10 and 15.
TEST(MetricsTest, SimulatedStepsLieEndToEnd) {
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "f").bucket(1, SpanKind::Wait, 0);
  builder.ran({.command = 0, .step = 0, .from = 0, .to = 10});
  builder.ran({.command = 0, .step = 1, .from = 11, .to = 20});
  builder.ran({.command = 0, .rank = 1, .step = 0, .from = 0, .to = 6});
  builder.ran({.command = 1, .rank = 1, .step = 1, .from = 6, .to = 12});
  builder.ran({.command = 0, .rank = 1, .step = 1, .from = 12, .to = 21});
  Trace trace = builder.build();
  EXPECT_THAT(step_times(trace), ElementsAre(us(10), us(11)));
  const StepReport report = step_report(trace, 1);
  EXPECT_EQ(report.start, at(10));
  EXPECT_EQ(report.breakdown[Activity::Stall], us(2));
  EXPECT_EQ(report.breakdown[Activity::Forward], us(9));
  EXPECT_EQ(report.breakdown[Activity::Idle], us(0));
  trace.provenance.origin = Origin::Measured;
  EXPECT_THAT(step_times(trace), ElementsAre(us(10), us(15)));
}

TEST(MetricsTest, TakesQuantilesByNearestRank) {
  // Expectation for 1..20 us: p10 is the 2nd, the median the 10th, p90 the 18th smallest. For 1..5:
  // ceil(0.5) = 1st, ceil(2.5) = 3rd, ceil(4.5) = 5th. The quickest fifth: 1..4, then 1; of 1..7 us one value and
  // two fifths of the second, (1 + 0.8) / 1.4 = 1.285714 us.
  std::vector<Duration> values;
  for (int i = 20; i >= 1; --i) values.push_back(us(i));
  EXPECT_EQ(spread(values), (Spread{us(10), us(2), us(18), us(1), Duration(2500)}));
  values.erase(values.begin(), values.begin() + 15);
  EXPECT_EQ(spread(values), (Spread{us(3), us(1), us(5), us(1), us(1)}));
  EXPECT_EQ(spread(std::vector{us(7), us(6), us(5), us(4), us(3), us(2), us(1)}).quick,
            Duration(1285));
  EXPECT_EQ(spread(std::vector{us(7)}), (Spread{us(7), us(7), us(7), us(7), us(7)}));
}

TEST(MetricsTest, RefusesAStepThatIsNotThere) {
  EXPECT_THAT([&] { static_cast<void>(step_report(sample::predicted(), 1)); },
              ThrowsMessage<CheckError>(HasSubstr("step 1 of 1")));
}

TEST(MetricsTest, RefusesOverlappingSpansOnTheComputeStream) {
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "f");
  builder.ran({.command = 0, .from = 0, .to = 10}).ran({.command = 0, .from = 1, .to = 10});
  EXPECT_THAT([&] { static_cast<void>(step_report(builder.build(), 0)); },
              ThrowsMessage<CheckError>(HasSubstr("overlapping spans on rank 0")));
}

}  // namespace
}  // namespace dovetail::traces

// Tests of traces/compare.h.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/compare.h"
#include "base/json.h"

#include "tests/traces/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace dovetail::traces {
namespace {

using sample::Builder;
using sample::us;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string text_of(const Comparison& comparison) {
  std::ostringstream out;
  print(out, comparison);
  return out.str();
}

TEST(CompareTest, ComparesTheMedianStepsFromTheSlowestMeasuredRank) {
  // Expectation: step 2 (76 us), rank 1 ends last; the folded prediction has rank 0 only (70 us).
  const Comparison result = compare(sample::predicted(), sample::measured());
  EXPECT_EQ(result.measured.report.step, 2);
  EXPECT_EQ(result.measured.report.rank, Rank{1});
  EXPECT_EQ(result.predicted.report.rank, Rank{0});
  EXPECT_EQ(result.step_time(), (Pair{us(70), us(76)}));
  EXPECT_DOUBLE_EQ(result.step_time().error().value(), -6.0 / 76.0);
  // Nearest rank of 71, 76, 86.
  EXPECT_EQ(result.measured.step_times, (Spread{us(76), us(71), us(86), us(71), us(71)}));
}

TEST(CompareTest, MissesNoPredictionOfKernels) {
  Trace measured = sample::measured();
  measured.streams.push_back({StreamId{2}, "compute kernels"});
  measured.commands.push_back(
      {CommandId{12}, SpanKind::Kernel, SpanPhase::Forward, "gemm", std::nullopt, Bytes(0)});
  measured.spans.push_back(
      {CommandId{12}, Rank{1}, StreamId{2}, 2, sample::at(200), sample::at(205), std::nullopt});
  EXPECT_THAT(compare(sample::predicted(), measured).unmatched, IsEmpty());
}

TEST(CompareTest, AttributesTheWholeDifferenceToActivities) {
  // Expectation: backward 30 against 40, updates 15 against 16, stalls 15 against 10: -10 - 1 + 5 =
  // -6 = 70 - 76.
  const Comparison result = compare(sample::predicted(), sample::measured());
  EXPECT_EQ(result.activity(Activity::Forward).difference(), us(0));
  EXPECT_EQ(result.activity(Activity::Backward), (Pair{us(30), us(40)}));
  EXPECT_EQ(result.activity(Activity::Optimizer), (Pair{us(15), us(16)}));
  EXPECT_EQ(result.activity(Activity::Stall), (Pair{us(15), us(10)}));
  Duration sum{};
  for (const Activity activity : kAllOf<Activity>) sum += result.activity(activity).difference();
  EXPECT_EQ(sum, us(-6));
}

TEST(CompareTest, ComparesCommunicationAndItsExposedPart) {
  // Expectation, rank 1: collectives 20..35, 40..55, 55..70; compute 0..60, 70..76: 60..70 exposed.
  const Comparison result = compare(sample::predicted(), sample::measured());
  EXPECT_EQ(result.communication(), (Pair{us(45), us(45)}));
  EXPECT_EQ(result.exposed(), (Pair{us(15), us(10)}));
  EXPECT_EQ(result.transfer(), (Pair{us(45), us(45)}));
  EXPECT_EQ(result.exposed_transfer(), (Pair{us(15), us(10)}));
}

TEST(CompareTest, JoinsBucketsAndOpsOnTheirCommand) {
  // Expectation: bucket 1 starts at 35 as predicted, at 40 as measured on rank 1, and ends 5 later.
  const Comparison result = compare(sample::predicted(), sample::measured());
  ASSERT_EQ(result.buckets.size(), 3U);
  EXPECT_EQ(result.buckets[1], (BucketComparison{CommandId{5}, BucketId{1}, "all-reduce bucket 1",
                                                 mib(2), Pair{us(35), us(40)}, Pair{us(50), us(55)},
                                                 Pair{us(15), us(15)}, Pair{us(5), us(0)}}));
  ASSERT_EQ(result.ops.size(), 7U);
  EXPECT_EQ(result.ops[2], (OpComparison{CommandId{2}, "layer1.backward", Activity::Backward,
                                         Pair{us(10), us(20)}}));
  EXPECT_THAT(result.unmatched, IsEmpty());
}

TEST(CompareTest, ComparesATraceWithItselfWithoutAnyDifference) {
  const Comparison result = compare(sample::measured(), sample::measured());
  EXPECT_EQ(result.predicted, result.measured);
  for (const BucketComparison& bucket : result.buckets) {
    EXPECT_EQ(bucket.start.difference(), us(0));
    EXPECT_EQ(bucket.end.difference(), us(0));
  }
  EXPECT_THAT(result.unmatched, IsEmpty());
  EXPECT_THAT(result.notes, IsEmpty());
}

TEST(CompareTest, TakesTheSameRankWhereThePredictionTracesIt) {
  // Expectation: the slowest measured rank is 0; the predicted rank 0 took 9, rank 1 12.
  Builder predicted;
  Builder measured;
  for (Builder* builder : {&predicted, &measured}) builder->compute(0, SpanPhase::Forward, "f");
  predicted.ran({.command = 0, .rank = 0, .from = 0, .to = 9});
  predicted.ran({.command = 0, .rank = 1, .from = 0, .to = 12});
  measured.ran({.command = 0, .rank = 0, .from = 0, .to = 11});
  measured.ran({.command = 0, .rank = 1, .from = 0, .to = 10});
  const Comparison result = compare(predicted.build(), measured.build());
  EXPECT_EQ(result.activity(Activity::Forward), (Pair{us(9), us(11)}));
  // The predicted step lasts until its slowest rank ends: rank 0 idles 3 us of it.
  EXPECT_EQ(result.activity(Activity::Idle), (Pair{us(3), us(0)}));
  EXPECT_EQ(result.step_time(), (Pair{us(12), us(11)}));
}

TEST(CompareTest, TakesTheLastTracedRankBeforeOneThatIsFolded) {
  // A pipeline of two stages with two ranks each, folded to ranks 0 (9 us) and 2 (12 us).
  // Expectation: the slowest measured rank is 1, with 14 us; it is like rank 0.
  Builder predicted;
  Builder measured;
  for (Builder* builder : {&predicted, &measured}) builder->compute(0, SpanPhase::Forward, "f");
  predicted.ran({.command = 0, .rank = 0, .from = 0, .to = 9});
  predicted.ran({.command = 0, .rank = 2, .from = 0, .to = 12});
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    measured.ran({.command = 0, .rank = rank, .from = 0, .to = rank == 1 ? 14 : 11});
  }
  const Comparison result = compare(predicted.build(), measured.build());
  EXPECT_EQ(result.activity(Activity::Forward), (Pair{us(9), us(14)}));
}

TEST(CompareTest, ListsCommandsWithoutCounterpart) {
  // Expectation: command 1 ran only in the prediction, 2 only in the measurement, 3 is another op.
  Builder predicted;
  Builder measured;
  predicted.compute(1, SpanPhase::Forward, "a").compute(3, SpanPhase::Backward, "b");
  measured.compute(2, SpanPhase::Forward, "c").compute(3, SpanPhase::Backward, "d");
  predicted.ran({.command = 1, .from = 0, .to = 5}).ran({.command = 3, .from = 5, .to = 9});
  measured.ran({.command = 2, .from = 0, .to = 5}).ran({.command = 3, .from = 5, .to = 9});
  const Comparison result = compare(predicted.build(), measured.build());
  EXPECT_THAT(result.unmatched,
              ElementsAre(Unmatched{CommandId{1}, Rank{0}, "a", Mismatch::OnlyPredicted},
                          Unmatched{CommandId{2}, Rank{0}, "c", Mismatch::OnlyMeasured},
                          Unmatched{CommandId{3}, Rank{0}, "b", Mismatch::DifferentCommand}));
  EXPECT_THAT(text_of(result), HasSubstr("without counterpart: 3\n"
                                         "  command 1, rank 0, \"a\": only predicted\n"
                                         "  command 2, rank 0, \"c\": only measured\n"));
}

TEST(CompareTest, TakesAMissingWaitAsNoStall) {
  // Expectation: the measured stream never stood, so stalls are 4 against 0 and nothing is missing.
  Builder predicted;
  Builder measured;
  for (Builder* builder : {&predicted, &measured}) {
    builder->compute(0, SpanPhase::Backward, "b").bucket(1, SpanKind::Wait, 0);
    builder->ran({.command = 0, .from = 0, .to = 5});
  }
  predicted.ran({.command = 1, .from = 5, .to = 9});
  const Comparison result = compare(predicted.build(), measured.build());
  EXPECT_THAT(result.unmatched, IsEmpty());
  EXPECT_EQ(result.activity(Activity::Stall), (Pair{us(4), us(0)}));
  EXPECT_EQ(result.activity(Activity::Stall).error(), std::nullopt);
}

TEST(CompareTest, ListsACollectiveOfAnotherBucketButNotAWaitForOne) {
  // Expectation: the measured collective 1 moved bucket 1, not 0; what wait 2 waited for is words.
  Builder predicted;
  Builder measured;
  predicted.bucket(1, SpanKind::Collective, 0).bucket(2, SpanKind::Wait, 0);
  measured.bucket(1, SpanKind::Collective, 1).bucket(2, SpanKind::Wait, 1);
  for (Builder* builder : {&predicted, &measured}) {
    builder->ran({.command = 1, .stream = 1, .from = 0, .to = 5});
    builder->ran({.command = 2, .from = 0, .to = 5});
  }
  EXPECT_THAT(compare(predicted.build(), measured.build()).unmatched,
              ElementsAre(Unmatched{CommandId{1}, Rank{0}, "all-reduce bucket 0",
                                    Mismatch::DifferentCommand}));
}

TEST(CompareTest, NotesThatTheTracesBelongToDifferentJobs) {
  Trace other = sample::measured();
  other.world_size = 4;
  other.provenance.policy = "naive";
  const Comparison result = compare(sample::predicted(), other);
  EXPECT_THAT(result.notes, ElementsAre("world size: 2 predicted, 4 measured",
                                        "policy: torch-ddp:cap=3MiB predicted, naive measured"));
  EXPECT_THAT(text_of(result), HasSubstr("NOTE       world size: 2 predicted, 4 measured\n"));
}

TEST(CompareTest, GivesAllNumbersAsJson) {
  const auto json =
      nlohmann::json::parse(to_json(compare(sample::predicted(), sample::measured())));
  EXPECT_EQ(json.at("schema"), "dovetail.comparison/1");
  EXPECT_EQ(json.at("step_time").at("difference_us"), -6);
  EXPECT_EQ(json.at("attribution").at("backward").at("measured_us"), 40);
  EXPECT_TRUE(json.at("attribution").at("idle").at("error_percent").is_null());
  EXPECT_EQ(json.at("buckets").size(), 3U);
  EXPECT_EQ(json.at("measured").at("provenance").at("notes").at("date"), "2025-01-31");
}

}  // namespace
}  // namespace dovetail::traces

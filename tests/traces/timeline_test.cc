// Tests of traces/timeline.h.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/timeline.h"

#include "tests/traces/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::traces {
namespace {

using sample::Builder;
using sample::us;
using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(TimelineTest, DrawsTheExampleOfTheHeader) {
  EXPECT_THAT(timeline(sample::predicted(), {.column = us(5)}),
              EndsWith("\ns0 FFBBBBBBOwOwwO\ns1 ....000111222\n"));
}

TEST(TimelineTest, NamesRanksWhereThereAreSeveralAndShowsTheMedianStep) {
  // Expectation: step 2 (see sample.h); 76 us are 15 columns and one of 1 us, which rank 1 fills.
  const std::string text = timeline(sample::measured(), {.column = us(5)});
  EXPECT_THAT(text, ::testing::StartsWith("measured step 2; a column is 5 us; F forward"));
  EXPECT_THAT(text, EndsWith("\nr0 s0 FFBBBBBBOwwOwwO\n"
                             "r0 s1 ....0001111222\n"
                             "r1 s0 FFBBBBBBBBOOwwOO\n"
                             "r1 s1 ....000.111222\n"));
}

TEST(TimelineTest, ShowsInEachColumnWhatFilledMostOfIt) {
  // Expectation, columns of 10 us: 0..10 is F 4 + F 2 against B 4; 10..20 idles 6 of 10; 20..30 is
  // half work, half nothing, where work wins; 30..34, the cut column, is O.
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "f").compute(1, SpanPhase::Backward, "b");
  builder.compute(2, SpanPhase::Optimizer, "o");
  builder.ran({.command = 0, .from = 0, .to = 4}).ran({.command = 1, .from = 4, .to = 8});
  builder.ran({.command = 0, .from = 8, .to = 10}).ran({.command = 1, .from = 10, .to = 14});
  builder.ran({.command = 1, .from = 20, .to = 25}).ran({.command = 2, .from = 31, .to = 34});
  EXPECT_THAT(timeline(builder.build(), {.column = us(10)}), EndsWith("\ns0 F.BO\n"));
}

TEST(TimelineTest, ShowsCopiesEnqueuesAndWaits) {
  // Expectation: a wait is a stall on the compute stream only.
  Builder builder;
  builder.bucket(0, SpanKind::Copy, 0).bucket(1, SpanKind::Enqueue, 0);
  builder.bucket(2, SpanKind::Wait, 0).bucket(3, SpanKind::Collective, 0);
  builder.ran({.command = 0, .from = 0, .to = 1}).ran({.command = 1, .from = 1, .to = 2});
  builder.ran({.command = 2, .from = 2, .to = 5});
  builder.ran({.command = 2, .stream = 1, .from = 0, .to = 2});
  builder.ran({.command = 3, .stream = 1, .from = 2, .to = 5});
  EXPECT_THAT(timeline(builder.build(), {.column = us(1)}), EndsWith("\ns0 cewww\ns1 ..000\n"));
}

TEST(TimelineTest, ShowsTheLastDigitOfABucketAndExplainsWhatItDraws) {
  Builder builder;
  builder.bucket(0, SpanKind::Collective, 9).bucket(1, SpanKind::Collective, 10);
  builder.bucket(2, SpanKind::Collective, 35).bucket(3, SpanKind::Collective, 37);
  for (int i = 0; i < 4; ++i) builder.ran({.command = i, .stream = 1, .from = i, .to = i + 1});
  EXPECT_EQ(timeline(builder.build(), {.column = us(1)}),
            "predicted step 0; a column is 1 us; 0-9 last digit of the bucket\ns1 9057\n");
}

TEST(TimelineTest, NamesTheBucketsThatNoColumnShows) {
  // Expectation: in the one column of 10 us bucket 0 travels for 6 us, buckets 1 and 11 for 2 each.
  Builder builder;
  builder.bucket(0, SpanKind::Collective, 1).bucket(1, SpanKind::Collective, 0);
  builder.bucket(2, SpanKind::Collective, 11);
  builder.ran({.command = 0, .stream = 1, .from = 0, .to = 2});
  builder.ran({.command = 1, .stream = 1, .from = 2, .to = 8});
  builder.ran({.command = 2, .stream = 1, .from = 8, .to = 10});
  EXPECT_THAT(timeline(builder.build(), {.column = us(10)}),
              EndsWith("\ns1 0\ntoo short to be drawn: buckets 1, 11\n"));
}

TEST(TimelineTest, ChoosesTheSmallestRoundColumnThatFits) {
  // Expectation: 70 us in 100 columns are 1 us each; in 40 columns 2 us (35); in 34, 5 us (14).
  EXPECT_THAT(timeline(sample::predicted()), HasSubstr("a column is 1 us;"));
  EXPECT_THAT(timeline(sample::predicted(), {.columns = 40}), HasSubstr("a column is 2 us;"));
  EXPECT_THAT(timeline(sample::predicted(), {.columns = 34}), HasSubstr("a column is 5 us;"));
}

TEST(TimelineTest, ShowsAllStepsOnRequest) {
  // Expectation: step 0 fills 0..30, step 1 50..60.
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "f");
  builder.ran({.command = 0, .step = 0, .from = 0, .to = 30});
  builder.ran({.command = 0, .step = 1, .from = 50, .to = 60});
  const std::string text = timeline(builder.build(), {.steps = Steps::All, .column = us(10)});
  EXPECT_THAT(text, ::testing::StartsWith("predicted steps 0 to 1; a column is 10 us;"));
  EXPECT_THAT(text, EndsWith("\ns0 FFF..F\n"));
}

}  // namespace
}  // namespace dovetail::traces

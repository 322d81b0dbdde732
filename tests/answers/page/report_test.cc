// Causes of stalls and timelines, calculated by hand, and what names can do to a page: nothing.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/page/report.h"
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "answers/page/page.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "sim/simulate.h"
#include "tests/support/programs.h"
#include "tests/traces/sample.h"

namespace dovetail::report {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;
using ::testing::Not;
using traces::SpanKind;
using traces::SpanPhase;
using traces::Trace;
using traces::sample::Builder;
using traces::sample::us;

const std::string kHostile =
    "</script><script>alert(1)</script><!--<img src=x onerror='alert(1)'>&amp; @TITLE@ "
    "\xff\xe2\x80\xa8";

// Columns of 5 us:
//   s0 BBBBwwwwwwwwwwO     the stall, 20 to 70, is on bucket 1
//   s1 ..000000.11111      bucket 1 begins at 45, and its last rank comes at 55
Trace one_stall() {
  Builder builder;
  builder.compute(0, SpanPhase::Backward, "layer.backward")
      .compute(1, SpanPhase::Optimizer, "layer.update");
  builder.bucket(2, SpanKind::Collective, 0, mib(1)).bucket(3, SpanKind::Collective, 1, mib(2));
  builder.bucket(4, SpanKind::Wait, 1);
  builder.ran({.command = 0, .from = 0, .to = 20}).ran({.command = 4, .from = 20, .to = 70});
  builder.ran({.command = 1, .from = 70, .to = 75});
  builder.ran({.command = 2, .stream = 1, .from = 10, .to = 40, .transfer = 10});
  builder.ran({.command = 3, .stream = 1, .from = 45, .to = 70, .transfer = 55});
  return builder.build();
}

// Expectation: 20..40 behind bucket 0, 40..45 nothing is in flight, 45..55 until the last rank came, 55..70
// its own transfer.
TEST(CausesTest, AStallIsCutByWhatItWaitedFor) {
  const Timeline line = timeline(one_stall(), {.title = "x"});
  EXPECT_EQ(line.stalls[StallCause::Behind], us(20));
  EXPECT_EQ(line.stalls[StallCause::NotLaunched], us(5));
  EXPECT_EQ(line.stalls[StallCause::OtherRank], us(10));
  EXPECT_EQ(line.stalls[StallCause::OwnTransfer], us(15));
  EXPECT_EQ(line.stalls.total(), line.report.breakdown[traces::Activity::Stall]);
}

TEST(CausesTest, AreToldTheLongestFirst) {
  const Timeline line = timeline(one_stall(), {.title = "x"});
  const auto stall = std::ranges::find(line.spans, "stall", &TimelineSpan::what);
  ASSERT_NE(stall, line.spans.end());
  EXPECT_EQ(stall->why,
            "waits for bucket 1: 20 us behind other buckets in the queue, 15 us its own transfer, "
            "10 us until "
            "the last rank had come, 5 us not launched yet, or already done");
}

TEST(CausesTest, AWaitWithoutABucketIsForAnotherStage) {
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "f").compute(1, SpanPhase::Backward, "b");
  builder.trace().commands.push_back({CommandId{2}, SpanKind::Wait, SpanPhase::Communication,
                                      "wait for send 3", std::nullopt, Bytes(0)});
  builder.ran({.command = 0, .from = 0, .to = 10}).ran({.command = 2, .from = 10, .to = 25});
  builder.ran({.command = 1, .from = 25, .to = 30});
  const Timeline line = timeline(builder.build(), {.title = "x"});
  EXPECT_EQ(line.stalls[StallCause::OtherStage], us(15));
}

// The stall, 10 to 25, until 20 for a stage that still computes: that is bubble, the rest is what it sends.
TEST(TimelineTest, TheBubbleOfAStallStandsAlone) {
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "f").compute(1, SpanPhase::Backward, "b");
  builder.trace().commands.push_back({CommandId{2}, SpanKind::Wait, SpanPhase::Communication,
                                      "wait for x.recv.0-1", std::nullopt, Bytes(0)});
  builder.ran({.command = 0, .from = 0, .to = 10}).ran({.command = 2, .from = 10, .to = 25});
  builder.ran({.command = 1, .from = 25, .to = 30});
  using traces::sample::at;
  const Timeline line =
      timeline(builder.build(), {.title = "x", .bubbles = {{Rank{0}, {{at(10), at(20)}}}}});
  EXPECT_EQ(line.bubble, us(10));
  std::vector<std::string> parts;
  for (const TimelineSpan& span : line.spans) {
    parts.push_back(span.what + " " + to_string(span.start) + " to " + to_string(span.end));
  }
  EXPECT_THAT(parts, ::testing::ElementsAre("forward 0 ns to 10 us", "bubble 10 us to 20 us",
                                            "stall 20 us to 25 us", "backward 25 us to 30 us"));
  EXPECT_THAT(line.spans[1].why, ::testing::StartsWith("waits for x.recv.0-1: 15 us"));
}

// Where something is in flight on both ranks the sum of the causes is the stall of the compared rank.
TEST(CausesTest, AddUpToTheStallOfTheSlowestRank) {
  for (const Trace& trace : {traces::sample::predicted(), traces::sample::measured()}) {
    const Timeline line = timeline(trace, {.title = "x"});
    EXPECT_EQ(line.stalls.total(), line.report.breakdown[traces::Activity::Stall]);
    EXPECT_GT(line.stalls.total(), Duration{});
  }
}

// 6,000 pairs of 1 us, then one op of 500 us: a thousandth of the step is 12.5 us, and 13 of them are drawn as one.
TEST(TimelineTest, WhatIsTooShortToBeSeenIsDrawnAsOne) {
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "f").compute(1, SpanPhase::Backward, "b");
  builder.compute(2, SpanPhase::Optimizer, "update");
  for (int at = 0; at < 12'000; at += 2) {
    builder.ran({.command = 0, .from = at, .to = at + 1});
    builder.ran({.command = 1, .from = at + 1, .to = at + 2});
  }
  EXPECT_EQ(timeline(builder.build(), {.title = "x"}).spans.size(), 12'000);
  builder.ran({.command = 2, .from = 12'000, .to = 12'500});
  const Timeline line = timeline(builder.build(), {.title = "x"});
  ASSERT_EQ(line.spans.size(), 12'000 / 13 + 2);
  EXPECT_EQ(line.spans.front().name, "13 too short to be drawn: f to f");
  EXPECT_EQ(line.spans.front().what, "forward");
  EXPECT_EQ(line.spans[1].what, "backward");
  EXPECT_EQ(line.spans[1].start, us(13));
  EXPECT_EQ(line.spans[1].end, us(26));
  EXPECT_EQ(line.spans.back().name, "update");
  EXPECT_EQ(line.spans.back().end - line.spans.back().start, us(500));
}

TEST(TimelineTest, AGapOfACommunicationStreamHasItsCause) {
  const Timeline line = timeline(one_stall(), {.title = "x"});
  std::vector<std::pair<Duration, Duration>> gaps;
  for (const TimelineSpan& span : line.spans) {
    if (span.what != "gap") continue;
    gaps.emplace_back(span.start, span.end);
    EXPECT_THAT(span.why, HasSubstr("bucket"));
  }
  EXPECT_THAT(gaps, ::testing::ElementsAre(std::pair(us(0), us(10)), std::pair(us(40), us(45))));
}

// Bucket 0 from 10 on, behind the first op; the update waits for it. Rank 3 is not shown.
TEST(TimelineTest, TheCriticalPathLiesOnTheRowsOfItsStreams) {
  const Trace trace = one_stall();
  const auto link = [](traces::LinkKind kind, int command, int rank, int stream, int from, int to) {
    return traces::PathLink{kind,
                            CommandId{command},
                            Rank{rank},
                            StreamId{stream},
                            0,
                            traces::sample::at(from),
                            traces::sample::at(to)};
  };
  const traces::CriticalPath path{{{link(traces::LinkKind::Compute, 0, 0, 0, 0, 20),
                                    link(traces::LinkKind::Transfer, 2, 0, 1, 20, 40),
                                    link(traces::LinkKind::Transfer, 3, 0, 1, 40, 70),
                                    link(traces::LinkKind::Compute, 1, 3, 0, 70, 75)}}};
  const Timeline line = timeline(trace, {.title = "x", .path = &path});
  ASSERT_EQ(line.path.size(), 3U);
  EXPECT_EQ(line.path[0].row, 0U);
  EXPECT_EQ(line.path[1].row, 1U);
  EXPECT_EQ(line.path[1].what, "rank 0 transfer, buckets 0, 1");
  EXPECT_EQ(line.path[1].start, us(20));
  EXPECT_EQ(line.path[1].end, us(70));
  EXPECT_EQ(line.path[2].row, std::nullopt);
  EXPECT_TRUE(timeline(trace, {.title = "x"}).path.empty());
}

TEST(TimelineTest, AGradientIsReadyWhenTheOpThatWritesItEnds) {
  // Backward runs l1 from 20 to 50 us and l0 from 50 to 60; one bucket holds both gradients.
  using testing::us;
  const schedule::Program program =
      testing::chain({{us(10), us(10), Bytes(4000), us(5)}, {us(10), us(30), Bytes(8000), us(5)}});
  const models::Costs costs = testing::costs_of({.collective = testing::line(us(20), 1)}, program);
  const schedule::ScheduledProgram lowered =
      schedule::lower(program,
                      schedule::make_schedule(program, schedule::parse_policy("one-bucket")))
          .program;
  const Timeline line =
      timeline(sim::simulate(lowered, costs), {.title = "x", .program = &lowered});
  ASSERT_EQ(line.buckets.size(), 1U);
  const auto& gradients = line.buckets[0].gradients;
  ASSERT_EQ(gradients.size(), 2U);
  EXPECT_EQ(gradients[0].ready, us(50));
  EXPECT_EQ(gradients[1].ready, us(60));
  EXPECT_EQ(gradients[0].bytes, Bytes(8000));
  EXPECT_EQ(line.report.step_time, traces::median_step(sim::simulate(lowered, costs)).step_time);
}

TEST(ReportTest, TheFlatRangeReachesFromTheBestToTheFirstThatIsOverOnePercentSlower) {
  // Expectation: the best is 100 at 4 MiB; 101 is within 1 %, 102 is not, and 100.5 beyond it does not count.
  Curve curve{"threshold", "x", {}};
  for (const auto& [size, step] : std::vector<std::pair<int, int>>{
           {1, 1005}, {2, 1020}, {3, 1010}, {4, 1000}, {5, 1009}, {6, 1011}}) {
    curve.points.push_back(
        {.threshold = mib(size), .buckets = 1, .step = us(step), .exposed = {}, .policy = "x"});
  }
  EXPECT_EQ(flat_range(curve), (FlatRange{mib(3), mib(5)}));
}

Report hostile_report() {
  Report report;
  report.title = kHostile;
  report.command = kHostile;
  report.facts = {{kHostile, kHostile}};
  report.assumptions = {{.text = kHostile}};
  Trace trace = one_stall();
  for (traces::CommandInfo& command : trace.commands) command.name = kHostile;
  trace.provenance.machine = kHostile;
  report.timelines.push_back(timeline(trace, {.title = kHostile}));
  report.results.push_back(ordered_json({{"kind", "explore"}, {"workload", "</script>"}}).dump());
  return report;
}

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t found = 0;
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1))
    ++found;
  return found;
}

TEST(PageTest, NamesCannotBecomeMarkup) {
  Report plain;
  plain.title = "x";
  const std::string harmless = page(to_json(plain));
  const std::string hostile = page(to_json(hostile_report()));
  for (const std::string_view tag : {"<script", "</script", "<!--", "<img", "<title"}) {
    EXPECT_EQ(count(hostile, tag), count(harmless, tag)) << tag;
  }
  EXPECT_THAT(hostile, HasSubstr("<title>&lt;/script&gt;&lt;script&gt;alert(1)"));
}

TEST(PageTest, TheFiguresInItAreTheReport) {
  const ordered_json report = to_json(hostile_report());
  const std::string text = page(report);
  const std::string_view begin = "<script type=\"application/json\" id=\"report\">";
  const std::size_t from = text.find(begin) + begin.size();
  const ordered_json read =
      ordered_json::parse(text.substr(from, text.find("</script>", from) - from));
  // Bytes that are no UTF-8 are replaced, everything else is as it was.
  EXPECT_EQ(read.at("timelines")[0].at("step_us"), 75.0);
  EXPECT_EQ(read.at("results")[0].at("workload"), "</script>");
  EXPECT_EQ(read.at("title").get<std::string>().substr(0, 20), kHostile.substr(0, 20));
  EXPECT_EQ(read.size(), report.size());
}

TEST(PageTest, LoadsNothing) {
  const std::string text = page(to_json(Report{}));
  EXPECT_THAT(text, HasSubstr("default-src 'none'"));
  for (const char* const word :
       {"<link", "src=\"", "url(http", "@import", "fetch(", "XMLHttpRequest"}) {
    EXPECT_THAT(text, Not(HasSubstr(word)));
  }
}

}  // namespace
}  // namespace dovetail::report

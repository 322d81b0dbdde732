// Tests of traces/perfetto.h: the text is parsed again and held against the importer's rules.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/perfetto.h"
#include "base/json.h"

#include "base/random.h"
#include "tests/support/cases.h"
#include "tests/support/perfetto_rules.h"
#include "tests/traces/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace dovetail::traces {
namespace {

using nlohmann::json;
using sample::Builder;
using testing::PerfettoRules;

json parsed(const std::vector<const Trace*>& traces, const PerfettoOptions& options = {}) {
  return json::parse(perfetto_json(traces, options));
}

std::vector<json> events(const json& document, const std::string& phase) {
  std::vector<json> result;
  for (const json& event : document.at("traceEvents")) {
    if (event.at("ph") == phase) result.push_back(event);
  }
  return result;
}

// Slices of what ran, without those of steps and phases.
std::vector<json> spans(const json& document) {
  std::vector<json> result = events(document, "X");
  std::erase_if(result, [](const json& event) { return !event.at("args").contains("command"); });
  return result;
}

std::vector<json> of_category(const std::vector<json>& events, const std::string& category) {
  std::vector<json> result;
  for (const json& event : events) {
    if (event.at("cat") == category) result.push_back(event);
  }
  return result;
}

std::int64_t ns(const json& us) { return PerfettoRules::ns(us); }

// [[us, value], ...] of one process.
json counter(const json& document, const std::string& name, const std::string& unit, int pid = 1) {
  json points = json::array();
  for (const json& event : events(document, "C")) {
    if (event.at("pid") != pid || event.at("name") != name) continue;
    points.push_back({event.at("ts"), event.at("args").at(unit)});
  }
  return points;
}

void expect_importable(const json& document) {
  EXPECT_THAT(PerfettoRules::problems(document), ::testing::IsEmpty());
}

TEST(PerfettoTest, PutsPredictedAndMeasuredProcessesOfARankSideBySide) {
  const Trace predicted = sample::predicted();
  const Trace measured = sample::measured();
  const json document = parsed({&predicted, &measured});
  std::vector<std::string> names;
  for (const json& event : events(document, "M")) {
    if (event.at("name") != "process_name") continue;
    EXPECT_EQ(event.at("pid"), static_cast<int>(names.size()) + 1);
    names.push_back(event.at("args").at("name"));
  }
  EXPECT_THAT(names,
              ::testing::ElementsAre("rank 0 predicted", "rank 0 measured", "rank 1 measured"));
  expect_importable(document);
  // Every span of every step is there.
  EXPECT_EQ(spans(document).size(), predicted.spans.size() + measured.spans.size());
}

TEST(PerfettoTest, NamesTracksAfterStreamsAndKeepsThemInOrder) {
  const Trace trace = sample::predicted();
  const json document = parsed({&trace});
  std::map<int, std::string> names;
  std::map<int, int> order;
  for (const json& event : events(document, "M")) {
    if (event.at("name") == "thread_name") names[event.at("tid")] = event.at("args").at("name");
    if (event.at("name") == "thread_sort_index") {
      order[event.at("tid")] = event.at("args").at("sort_index");
    }
  }
  EXPECT_EQ(names, (std::map<int, std::string>{
                       {1001, "steps"}, {1002, "phases"}, {1003, "compute"}, {1004, "comm0"}}));
  EXPECT_EQ(order, (std::map<int, int>{{1001, 0}, {1002, 1}, {1003, 2}, {1004, 3}}));
}

// The chain of the sample: layer2's backward, the three collectives, the last update.
CriticalPath path_of_the_sample() {
  std::vector<PathLink> chain;
  const auto link = [&](LinkKind kind, int command, int stream, int from, int to) {
    chain.push_back(
        {kind, CommandId{command}, Rank{0}, StreamId{stream}, 0, sample::at(from), sample::at(to)});
  };
  link(LinkKind::Compute, 0, 0, 0, 10);
  link(LinkKind::Compute, 1, 0, 10, 20);
  for (const int i : {0, 1, 2}) link(LinkKind::Transfer, 4 + i, 1, 20 + 15 * i, 35 + 15 * i);
  link(LinkKind::Compute, 9, 0, 65, 70);
  return {{chain}};
}

TEST(PerfettoTest, DrawsTheCriticalPathAsATrackAboveTheStreams) {
  const Trace predicted = sample::predicted();
  const Trace measured = sample::measured();
  const CriticalPath path = path_of_the_sample();
  const std::array<const CriticalPath*, 2> paths = {&path, nullptr};
  const json document = parsed({&predicted, &measured}, {.paths = paths});
  expect_importable(document);
  std::map<int, std::string> names;
  for (const json& event : events(document, "M")) {
    if (event.at("name") == "thread_name") names[event.at("tid")] = event.at("args").at("name");
  }
  EXPECT_EQ(names.at(1003), "critical path");
  EXPECT_EQ(names.at(1004), "compute");
  EXPECT_EQ(names.at(2003), "compute");  // of the measured trace nobody knows it
  const std::vector<json> links = of_category(events(document, "X"), "critical path");
  ASSERT_EQ(links.size(), 6U);
  EXPECT_EQ(links[3].at("name"), "all-reduce bucket 1");
  EXPECT_EQ(links[3].at("args").at("kind"), "transfer");
  EXPECT_EQ(ns(links[3].at("ts")), 235'000);  // the median step is moved to 200
  EXPECT_EQ(ns(links[3].at("dur")), 15'000);
  Duration sum{};
  for (const json& link : links) sum += Duration(ns(link.at("dur")));
  EXPECT_EQ(sum, sample::us(70));
}

TEST(PerfettoTest, ShowsAllStepsWithTheMedianOnesSideBySide) {
  // Expectation: the measured median step, 2, begins at 200 us, the predicted one at 0: it is moved there.
  // Bucket 1 of rank 1 starts at 240 us, of the prediction at 35.
  const Trace predicted = sample::predicted();
  const Trace measured = sample::measured();
  for (const auto& [alignment, moved] :
       {std::pair{Alignment::MedianSteps, 200.0}, std::pair{Alignment::AsGiven, 0.0}}) {
    const json document = parsed({&predicted, &measured}, {.alignment = alignment});
    expect_importable(document);
    std::map<std::pair<int, int>, json> found;  // process and step
    for (const json& event : spans(document)) {
      if (event.at("args").at("command") == 5) {
        found[{event.at("pid"), event.at("args").at("step")}] = event;
      }
    }
    ASSERT_EQ(found.size(), 7U);
    EXPECT_EQ(found.at({1, 0}).at("ts"), 35.0 + moved);
    const json& event = found.at({3, 2});
    EXPECT_EQ(event.at("ts"), 240.0);
    EXPECT_EQ(event.at("dur"), 15.0);
    EXPECT_EQ(event.at("args").at("transfer_start_us"), 240.0);
    EXPECT_EQ(event.at("args").at("bucket"), 1);
    EXPECT_EQ(event.at("args").at("size_bytes"), 2 << 20);
    EXPECT_EQ(document.at("otherData").at("traces")[0].at("shifted_us"), moved);
  }
}

TEST(PerfettoTest, DrawsStepsAndPhasesOverTheOps) {
  // Expectation (sample.h): forward 0..10, backward 10..40, optimizer 40..70, all of one step.
  const Trace predicted = sample::predicted();
  const json document = parsed({&predicted});
  std::vector<std::tuple<std::string, double, double>> drawn;
  for (const json& event : events(document, "X")) {
    if (event.at("cat") == "phase" || event.at("cat") == "step") {
      drawn.emplace_back(event.at("name"), event.at("ts"), event.at("dur"));
    }
  }
  EXPECT_THAT(drawn, ::testing::ElementsAre(
                         std::tuple("step 0", 0.0, 70.0), std::tuple("forward", 0.0, 10.0),
                         std::tuple("backward", 10.0, 30.0), std::tuple("optimizer", 40.0, 30.0)));
  const json step = of_category(events(document, "X"), "step").at(0).at("args");
  EXPECT_EQ(step.at("step_us"), 70.0);
  EXPECT_EQ(step.at("exposed_us"), to_us(median_step(predicted).exposed));
  EXPECT_EQ(step.at("median"), "yes");
}

TEST(PerfettoTest, SaysWhatATraceIsAboveItsSteps) {
  Trace trace = sample::predicted();
  trace.world_size = 4096;
  trace.provenance.notes["note 1"] = "uncalibrated";
  const json about = of_category(events(parsed({&trace}), "X"), "trace").at(0);
  EXPECT_EQ(about.at("name"), "predicted: torch-ddp:cap=3MiB");
  EXPECT_EQ(about.at("args").at("notes").at("note 1"), "uncalibrated");
  EXPECT_EQ(about.at("args").at("world_size"), 4096);
  EXPECT_THAT(about.at("args").at("ranks_left_out"), ::testing::HasSubstr("of their kind"));
}

TEST(PerfettoTest, NamesTheGradientsOfABucketAndWhoWroteThem) {
  const Trace trace = sample::predicted();
  const json collective = of_category(spans(parsed({&trace})), "collective").at(1);
  const json tensors = collective.at("args").at("tensors");
  ASSERT_EQ(tensors.size(), 1U);
  EXPECT_EQ(tensors[0].at("name"), "layer1.grad");
  EXPECT_EQ(tensors[0].at("size_bytes"), 2 << 20);
  EXPECT_EQ(tensors[0].at("produced_by"), "layer1.backward");
}

TEST(PerfettoTest, CountsBytesInFlightLinkUseAndExposedCommunication) {
  // Expectation: buckets of 1, 2 and 3 MiB in flight 20..35, 35..50, 50..65; of two ranks the link
  // carries as much, so it is used at 69.905, 139.810 and 209.715 GB/s. Compute stands still at 45..50
  // and 55..65.
  const Trace trace = sample::predicted();
  const json document = parsed({&trace});
  const auto mib_ = [](int n) { return n * 1048576.0; };
  EXPECT_EQ(counter(document, "in flight", "bytes"),
            (json{{0.0, 0.0}, {20.0, mib_(1)}, {35.0, mib_(2)}, {50.0, mib_(3)}, {65.0, 0.0}}));
  EXPECT_EQ(counter(document, "link use", "GB/s"),
            (json{{0.0, 0.0}, {20.0, 69.905}, {35.0, 139.81}, {50.0, 209.715}, {65.0, 0.0}}));
  EXPECT_EQ(counter(document, "exposed communication of the step", "us"),
            (json{{0.0, 0.0}, {50.0, 5.0}, {65.0, 15.0}}));
}

TEST(PerfettoTest, ExposedCommunicationOfTheMeasuredStepsIsThatOfTheReport) {
  const Trace trace = sample::measured();
  const json document = parsed({&trace});
  for (int step = 0; step < 3; ++step) {
    const StepReport report = step_report(trace, step);
    const Duration end = report.start.time_since_epoch() + report.step_time;
    double last = -1;
    for (const json& point :
         counter(document, "exposed communication of the step", "us", report.rank.value + 1)) {
      if (ns(point[0]) < end.count()) last = point[1];
    }
    EXPECT_EQ(last, to_us(report.exposed)) << step;
  }
  // Rank 0 waits for rank 1 in bucket 1 of step 2 at 235..240: bytes in flight, and the link unused.
  const json flight = counter(document, "in flight", "bytes");
  const json link = counter(document, "link use", "GB/s");
  EXPECT_THAT(flight, ::testing::Contains(json{235.0, 2097152.0}));
  EXPECT_THAT(link, ::testing::Contains(json{235.0, 0.0}));
  EXPECT_THAT(link, ::testing::Contains(json{240.0, 139.81}));
}

TEST(PerfettoTest, ShowsTheSmClockOfRankZeroWhereItWasMeasured) {
  Trace trace = sample::measured();
  EXPECT_TRUE(counter(parsed({&trace}), "SM clock", "MHz").empty());
  trace.provenance.notes[kSmClockNote] = "1980";
  EXPECT_EQ(counter(parsed({&trace}), "SM clock", "MHz"), json::array({{276.0, 1980.0}}));
  EXPECT_TRUE(counter(parsed({&trace}), "SM clock", "MHz", 2).empty());
  trace.provenance.notes[kSmClockNote] = "fast";
  EXPECT_TRUE(counter(parsed({&trace}), "SM clock", "MHz").empty());
}

TEST(PerfettoTest, LeavesOutTheUseOfALinkThatNobodyKnows) {
  Trace trace = sample::predicted();
  for (CommandInfo& command : trace.commands) command.bus_bytes = Bytes(0);
  const json document = parsed({&trace});
  EXPECT_TRUE(counter(document, "link use", "GB/s").empty());
  EXPECT_EQ(counter(document, "in flight", "bytes").size(), 5U);
}

TEST(PerfettoTest, KeepsEveryNanosecond) {
  Trace trace = Builder().compute(0, SpanPhase::Forward, "f").ran({.command = 0}).build();
  trace.spans[0].start = Instant(Duration(1));
  trace.spans[0].end = Instant(Duration(1234568));
  const std::array traces = {&std::as_const(trace)};
  EXPECT_THAT(perfetto_json(traces, {.alignment = Alignment::AsGiven}),
              ::testing::HasSubstr("\"ts\":0.001,\"dur\":1234.567,"));
}

TEST(PerfettoTest, DrawsAnArrowFromACollectiveToTheStallThatItEnds) {
  // Expectation: two stalls, 45..50 and 55..65, end with buckets 1 and 2; arrows 1 ns before.
  const Trace trace = sample::predicted();
  const json document = parsed({&trace});
  const auto starts = of_category(events(document, "s"), "wait");
  const auto ends = of_category(events(document, "f"), "wait");
  ASSERT_EQ(starts.size(), 2U);
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_EQ(ns(starts[0].at("ts")), 49999);
  EXPECT_EQ(starts[0].at("tid"), 1004);
  EXPECT_EQ(ns(ends[1].at("ts")), 64999);
  EXPECT_EQ(ends[1].at("tid"), 1003);
}

TEST(PerfettoTest, DrawsArrowsFromAGradientsOpAndFromTheLaunchToTheCollective) {
  // Expectation: the op writes its gradient until 20 us; it is enqueued until 22, and travels from 25 on.
  Builder builder;
  builder.compute(0, SpanPhase::Backward, "b").bucket(1, SpanKind::Enqueue, 0);
  builder.bucket(2, SpanKind::Collective, 0, mib(1)).after(1);
  builder.carries({{"g", mib(1), CommandId{0}}, {"h", mib(1), CommandId{0}}});
  builder.ran({.command = 0, .from = 0, .to = 20}).ran({.command = 1, .from = 20, .to = 22});
  builder.ran({.command = 2, .stream = 1, .from = 25, .to = 40, .transfer = 30});
  const Trace trace = builder.build();
  const json document = parsed({&trace});
  expect_importable(document);
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> arrows;
  for (const json& event : events(document, "s")) {
    EXPECT_EQ(event.at("tid"), 1003);
    arrows[event.at("name")].first = ns(event.at("ts"));
  }
  for (const json& event : events(document, "f")) {
    EXPECT_EQ(event.at("tid"), 1004);
    arrows[event.at("name")].second = ns(event.at("ts"));
  }
  EXPECT_EQ(arrows, (std::map<std::string, std::pair<std::int64_t, std::int64_t>>{
                        {"gradient ready", {19999, 25000}}, {"launch", {21999, 25000}}}));
  EXPECT_EQ(events(document, "s").size(), 2U);
}

TEST(PerfettoTest, FindsWhatAnImporterWouldNotTake) {
  const Trace trace = sample::predicted();
  const json good = parsed({&trace});
  const auto first = [&](const std::string& phase) {
    std::size_t at = 0;
    while (good["traceEvents"][at]["ph"] != phase) ++at;
    return at;
  };
  const auto expect_found = [&](const std::string& what, const auto& damage) {
    json bad = good;
    damage(bad["traceEvents"]);
    EXPECT_THAT(PerfettoRules::problems(bad), ::testing::Contains(::testing::HasSubstr(what)));
  };
  expect_found("time before 0", [&](json& all) { all[first("C")]["ts"] = -1; });
  expect_found("process without a name", [&](json& all) { all[first("X")]["pid"] = 9; });
  expect_found("track without a name", [&](json& all) { all[first("X")]["tid"] = 9; });
  expect_found("two tracks of one id", [&](json& all) { all.push_back(all[2]); });
  expect_found("two processes of one name", [&](json& all) { all.push_back(all[0]); });
  // The step is cut to 15 us, the one before it on its track lasts longer.
  expect_found("slices overlap partly", [&](json& all) { all[first("X")]["dur"] = 15; });
  expect_found("slice that ends before", [&](json& all) { all[first("X")]["dur"] = -1; });
  expect_found("arrow outside any slice", [&](json& all) { all[first("s")]["ts"] = 1e6; });
  expect_found("arrow without a begin", [&](json& all) { all[first("f")]["id"] = 99; });
  expect_found("arrow without a begin", [&](json& all) { all[first("s")]["ts"] = 64; });
  expect_found("arrow without an end", [&](json& all) { all[first("f")]["name"] = "other"; });
  expect_found("arrow that ends twice", [&](json& all) { all.push_back(all[first("f")]); });
  expect_found("bind to the next slice", [&](json& all) { all[first("f")].erase("bp"); });
  expect_found("two arrows of one id", [&](json& all) { all.push_back(all[first("s")]); });
  expect_found("counter without a unit", [&](json& all) { all[first("C")]["args"] = {{"", 1.0}}; });
  expect_found("counter without one value",
               [&](json& all) { all[first("C")]["args"] = json::object(); });
  expect_found("counter below 0", [&](json& all) { all[first("C")]["args"] = {{"us", "x"}}; });
}

TEST(PerfettoTest, CarriesTheProvenanceOfEachTrace) {
  const Trace predicted = sample::predicted();
  const Trace measured = sample::measured();
  const json data = parsed({&predicted, &measured}).at("otherData").at("traces");
  ASSERT_EQ(data.size(), 2U);
  EXPECT_EQ(data[0].at("provenance").at("origin"), "simulated");
  EXPECT_EQ(data[0].at("median_step"), 0);
  EXPECT_EQ(data[1].at("label"), "measured");
  EXPECT_EQ(data[1].at("median_step"), 2);
  EXPECT_EQ(data[1].at("provenance").at("notes").at("date"), "2025-01-31");
}

TEST(PerfettoTest, TellsSeveralPredictionsApart) {
  const Trace one = sample::predicted();
  Trace two = sample::predicted();
  two.provenance.policy = "naive";
  Trace three = two;
  three.provenance.machine = "one-desktop";
  const Trace four = three;
  std::set<std::string> names;
  const json document = parsed({&one, &two, &three, &four});
  expect_importable(document);
  for (const json& event : events(document, "M")) {
    if (event.at("name") == "process_name") names.insert(event.at("args").at("name"));
  }
  EXPECT_EQ(names, (std::set<std::string>{"rank 0 predicted torch-ddp:cap=3MiB",
                                          "rank 0 predicted naive on two-laptops",
                                          "rank 0 predicted naive on one-desktop trace 3",
                                          "rank 0 predicted naive on one-desktop trace 4"}));
}

TEST(PerfettoTest, StaysImportableForRandomTraces) {
  for (std::uint64_t seed = 0; seed < testing::cases(100U); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Builder builder;
    for (int i = 0; i < 4; ++i) {
      builder.bucket(2 * i, SpanKind::Collective, i, mib(i + 1)).after(2 * i + 1);
      builder.carries({{"g", mib(1), CommandId{2 * ((i + 1) % 4) + 1}}});
      builder.bucket(2 * i + 1, SpanKind::Wait, i).after(2 * i);
    }
    for (int rank = 0; rank < 2; ++rank) {
      for (int stream = 0; stream < 2; ++stream) {
        std::int64_t now = 0;
        for (int i = 0; i < 8; ++i) {
          const std::int64_t from = now + random.between(0, 3);
          now = from + random.between(0, 5);
          const int command = 2 * static_cast<int>(random.between(0, 3)) + (stream == 0 ? 1 : 0);
          builder.ran(
              {.command = command, .rank = rank, .stream = stream, .from = from, .to = now});
        }
      }
    }
    const Trace trace = builder.build();
    expect_importable(parsed({&trace}));
    expect_importable(parsed({&trace}, {.compute = ComputeWork::AnyStream}));
  }
}

TEST(PerfettoTest, WritesAnEmptyDocumentForNoTraces) {
  EXPECT_TRUE(parsed({}).at("traceEvents").empty());
}

}  // namespace
}  // namespace dovetail::traces

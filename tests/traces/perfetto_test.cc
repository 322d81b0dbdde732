// Tests of traces/perfetto.h: the text is parsed again and held against the importer's rules.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/perfetto.h"

#include "base/random.h"
#include "tests/traces/sample.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::traces {
namespace {

using nlohmann::json;
using sample::Builder;
using Track = std::pair<int, int>;
using Slice = std::pair<std::int64_t, std::int64_t>;  // start and end in ns

json parsed(const std::vector<const Trace*>& traces, Steps steps = Steps::Median) {
  return json::parse(perfetto_json(traces, {.steps = steps}));
}

std::vector<json> events(const json& document, const std::string& phase) {
  std::vector<json> result;
  for (const json& event : document.at("traceEvents")) {
    if (event.at("ph") == phase) result.push_back(event);
  }
  return result;
}

std::int64_t ns(const json& us) { return std::llround(us.get<double>() * 1000); }

// Every "X" event by track, each field checked.
std::map<Track, std::vector<Slice>> slices(const json& document) {
  std::map<Track, std::vector<Slice>> result;
  for (const json& event : events(document, "X")) {
    EXPECT_TRUE(event.at("name").is_string());
    EXPECT_TRUE(event.at("args").at("command").is_number_integer());
    EXPECT_GE(ns(event.at("ts")), 0);
    EXPECT_GE(ns(event.at("dur")), 0);
    const std::int64_t start = ns(event.at("ts"));
    result[{event.at("pid"), event.at("tid")}].push_back({start, start + ns(event.at("dur"))});
  }
  return result;
}

// What Perfetto's importer asks for.
void expect_importable(const json& document) {
  const auto tracks = slices(document);
  for (const auto& [track, unsorted] : tracks) {
    std::vector<Slice> sorted = unsorted;
    std::ranges::sort(sorted);
    for (std::size_t i = 1; i < sorted.size(); ++i)
      EXPECT_LE(sorted[i - 1].second, sorted[i].first);
  }
  std::map<std::int64_t, std::int64_t> begun;
  for (const json& event : document.at("traceEvents")) {
    if (event.at("ph") != "s" && event.at("ph") != "f") continue;
    const std::int64_t ts = ns(event.at("ts"));
    const auto& track = tracks.at({event.at("pid"), event.at("tid")});
    EXPECT_EQ(1, std::ranges::count_if(track, [&](const Slice& slice) {
                return slice.first <= ts && ts < slice.second;
              }));
    const auto id = event.at("id").get<std::int64_t>();
    if (event.at("ph") == "s") {
      EXPECT_TRUE(begun.emplace(id, ts).second);
    } else {
      EXPECT_EQ(event.at("bp"), "e");
      EXPECT_LE(begun.at(id), ts);
    }
  }
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
  // 12 spans were predicted; the median step has 12 on rank 0 and 11, without a wait, on rank 1.
  EXPECT_EQ(events(document, "X").size(), 35U);
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
  EXPECT_EQ(names, (std::map<int, std::string>{{1001, "compute"}, {1002, "comm0"}}));
  EXPECT_EQ(order, (std::map<int, int>{{1001, 0}, {1002, 1}}));
}

TEST(PerfettoTest, MovesTheMedianStepToZeroAndKeepsTimesOtherwise) {
  // Expectation: step 2 begins at 200 us. Bucket 1 of rank 1 starts at 240 us.
  const Trace trace = sample::measured();
  for (const auto& [steps, start] :
       {std::pair{Steps::Median, 40.0}, std::pair{Steps::All, 240.0}}) {
    int found = 0;
    for (const json& event : events(parsed({&trace}, steps), "X")) {
      if (event.at("pid") != 2 || event.at("args").at("command") != 5) continue;
      if (event.at("args").at("step") != 2) continue;
      EXPECT_EQ(event.at("ts"), start);
      EXPECT_EQ(event.at("dur"), 15.0);
      EXPECT_EQ(event.at("args").at("transfer_start_us"), start);
      EXPECT_EQ(event.at("args").at("bucket"), 1);
      EXPECT_EQ(event.at("args").at("size_bytes"), 2 << 20);
      ++found;
    }
    EXPECT_EQ(found, 1);
  }
}

TEST(PerfettoTest, KeepsEveryNanosecond) {
  Trace trace = Builder().compute(0, SpanPhase::Forward, "f").ran({.command = 0}).build();
  trace.spans[0].start = Instant(Duration(1));
  trace.spans[0].end = Instant(Duration(1234568));
  const std::array traces = {&std::as_const(trace)};
  EXPECT_THAT(perfetto_json(traces, {.steps = Steps::All}),
              ::testing::HasSubstr("\"ts\":0.001,\"dur\":1234.567,"));
}

TEST(PerfettoTest, DrawsAnArrowFromACollectiveToTheStallThatItEnds) {
  // Expectation: two stalls, 45..50 and 55..65, end with buckets 1 and 2; arrows 1 ns before.
  const Trace trace = sample::predicted();
  const json document = parsed({&trace});
  const auto starts = events(document, "s");
  const auto ends = events(document, "f");
  ASSERT_EQ(starts.size(), 2U);
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_EQ(ns(starts[0].at("ts")), 49999);
  EXPECT_EQ(starts[0].at("tid"), 1002);
  EXPECT_EQ(ns(ends[1].at("ts")), 64999);
  EXPECT_EQ(ends[1].at("tid"), 1001);
}

TEST(PerfettoTest, CarriesTheProvenanceOfEachTrace) {
  const Trace predicted = sample::predicted();
  const Trace measured = sample::measured();
  const json data = parsed({&predicted, &measured}).at("otherData").at("traces");
  ASSERT_EQ(data.size(), 2U);
  EXPECT_EQ(data[0].at("provenance").at("origin"), "simulated");
  EXPECT_EQ(data[0].at("shown_step"), 0);
  EXPECT_EQ(data[1].at("label"), "measured");
  EXPECT_EQ(data[1].at("shown_step"), 2);
  EXPECT_EQ(data[1].at("provenance").at("notes").at("date"), "2025-01-31");
}

TEST(PerfettoTest, TellsTwoPredictionsApartByTheirPolicy) {
  const Trace one = sample::predicted();
  Trace two = sample::predicted();
  two.provenance.policy = "naive";
  std::set<std::string> names;
  for (const json& event : events(parsed({&one, &two}), "M")) {
    if (event.at("name") == "process_name") names.insert(event.at("args").at("name"));
  }
  EXPECT_EQ(names, (std::set<std::string>{"rank 0 predicted torch-ddp:cap=3MiB",
                                          "rank 0 predicted naive"}));
}

TEST(PerfettoTest, CutsAWaitThatBeganBeforeItsStep) {
  // Expectation: stream 1 waits 6..25; the median step 1 begins at 10, so the wait shows 0..15.
  Builder builder;
  builder.compute(0, SpanPhase::Forward, "f").bucket(1, SpanKind::Wait, 0);
  builder.ran({.command = 0, .step = 0, .from = 0, .to = 20});
  builder.ran({.command = 0, .step = 1, .from = 20, .to = 35});
  builder.ran({.command = 1, .stream = 1, .step = 1, .from = 16, .to = 35});
  const Trace trace = builder.build();
  const json document = parsed({&trace});
  ASSERT_EQ(events(document, "X").size(), 2U);
  EXPECT_EQ(events(document, "X")[1].at("ts"), 0.0);
  EXPECT_EQ(events(document, "X")[1].at("dur"), 15.0);
}

TEST(PerfettoTest, StaysImportableForRandomTraces) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Builder builder;
    for (int i = 0; i < 4; ++i) {
      builder.bucket(2 * i, SpanKind::Collective, i).bucket(2 * i + 1, SpanKind::Wait, i);
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
    expect_importable(parsed({&trace}, Steps::All));
    expect_importable(parsed({&trace}, Steps::Median));
  }
}

TEST(PerfettoTest, WritesAnEmptyDocumentForNoTraces) {
  EXPECT_TRUE(parsed({}).at("traceEvents").empty());
}

}  // namespace
}  // namespace dovetail::traces

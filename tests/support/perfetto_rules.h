// What the importer of Perfetto asks of a Chrome JSON trace, as a list of what it would drop, move aside or
// count as an error.
//
// It follows src/trace_processor/importers/json of Perfetto: events are sorted by time, stably; each
// track holds a stack of open slices; a slice that outlasts the one below it is an error; an arrow binds
// to the slice on top; its end needs a begin with its id, name and category before it; a counter is a
// number under a unit, on a process. Two rules of our own: every track and process has a name, and the
// times of a counter do not fall. The tests plant a fault for each rule (tests/traces/perfetto_test.cc).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json.h"

namespace dovetail::testing {

class PerfettoRules {
 public:
  using Json = nlohmann::json;

  static std::vector<std::string> problems(const Json& document) {
    PerfettoRules rules;
    rules.read(document);
    return std::move(rules.problems_);
  }

  static std::int64_t ns(const Json& us) { return std::llround(us.get<double>() * 1000); }

 private:
  using Track = std::pair<std::int64_t, std::int64_t>;
  struct Arrow {
    std::int64_t at = 0;
    bool ended = false;
  };

  void expect(bool fact, const std::string& what, const Json& event) {
    if (!fact) problems_.push_back(what + ": " + event.dump());
  }

  void read(const Json& document) {
    std::vector<const Json*> events;
    for (const Json& event : document.at("traceEvents")) {
      if (event.at("ph") == "M") {
        read_name(event);
      } else {
        expect(ns(event.at("ts")) >= 0, "time before 0", event);
        events.push_back(&event);
      }
    }
    std::ranges::stable_sort(events, {}, [](const Json* event) { return ns(event->at("ts")); });
    for (const Json* event : events) read_event(*event);
    for (const auto& [id, arrow] : arrows_) {
      if (!arrow.ended) problems_.push_back("arrow without an end: " + std::get<0>(id));
    }
  }

  void read_name(const Json& event) {
    const std::int64_t pid = event.at("pid");
    const std::string name = event.at("name");
    if (name == "process_name") {
      expect(names_.insert(event.at("args").at("name")).second, "two processes of one name", event);
      processes_.insert(pid);
    } else if (name == "thread_name") {
      const std::int64_t tid = event.at("tid");
      expect(tids_.insert(tid).second, "two tracks of one id", event);
      tracks_.insert({pid, tid});
    }
  }

  void read_event(const Json& event) {
    const std::string phase = event.at("ph");
    const Track track = {event.at("pid"), event.at("tid")};
    expect(processes_.contains(track.first), "process without a name", event);
    expect(tracks_.contains(track), "track without a name", event);
    const std::int64_t at = ns(event.at("ts"));
    std::vector<std::int64_t>& open = open_[track];
    while (!open.empty() && open.back() <= at) open.pop_back();
    if (phase == "X") {
      const std::int64_t end = at + ns(event.at("dur"));
      expect(end >= at, "slice that ends before it begins", event);
      expect(open.empty() || end <= open.back(), "slices overlap partly", event);
      if (end > at) open.push_back(end);
    } else if (phase == "C") {
      read_counter(event, at);
    } else {
      expect(phase == "s" || phase == "f", "unknown kind of event", event);
      expect(!open.empty(), "arrow outside any slice", event);
      read_arrow(event, at);
    }
  }

  void read_arrow(const Json& event, std::int64_t at) {
    const auto id =
        std::tuple(event.at("name").get<std::string>(), event.at("cat").get<std::string>(),
                   event.at("id").get<std::int64_t>());
    if (event.at("ph") == "s") {
      expect(arrows_.emplace(id, Arrow{.at = at}).second, "two arrows of one id", event);
      return;
    }
    expect(event.value("bp", "") == "e", "arrow that would bind to the next slice", event);
    const auto begun = arrows_.find(id);
    expect(begun != arrows_.end(), "arrow without a begin", event);
    if (begun == arrows_.end()) return;
    expect(!begun->second.ended, "arrow that ends twice", event);
    begun->second.ended = true;
  }

  void read_counter(const Json& event, std::int64_t at) {
    const Json& args = event.at("args");
    expect(args.is_object() && args.size() == 1, "counter without one value", event);
    for (const auto& [unit, value] : args.items()) {
      expect(!unit.empty(), "counter without a unit", event);
      expect(value.is_number() && value.get<double>() >= 0, "counter below 0", event);
      std::int64_t& last = counters_[{event.at("pid"), event.at("name").get<std::string>() + unit}];
      expect(last <= at, "times of a counter fall", event);
      last = at;
    }
  }

  std::vector<std::string> problems_;
  std::set<std::string> names_;
  std::set<std::int64_t> processes_, tids_;
  std::set<Track> tracks_;
  std::map<Track, std::vector<std::int64_t>> open_;  // ends, the innermost last
  std::map<std::tuple<std::string, std::string, std::int64_t>, Arrow> arrows_;
  std::map<std::pair<std::int64_t, std::string>, std::int64_t> counters_;
};

}  // namespace dovetail::testing

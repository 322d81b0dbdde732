// Chrome JSON trace events, appended to one text by hand: processes, tracks, slices, arrows, counters.
//
//   {"ph":"X","pid":1,"tid":1003,"ts":20.000,"dur":15.000,"name":"...","cat":"...","args":{...}}
//
// Times are microseconds from where the file begins. Process ids count from 1; track ids are unique over
// all processes and differ from every process id: a viewer takes equal ids for a main thread and moves
// it to the top.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace dovetail::traces {

// A track of a process; its number is its place from the top.
struct TrackId {
  std::int64_t process = 0;
  std::int64_t number = 0;
};

class PerfettoEvents {
 public:
  void reserve(std::size_t characters) { text_.reserve(characters); }

  void name_process(TrackId any, std::string_view name);
  void name_track(TrackId track, std::string_view name);

  // `args` is what stands between the braces, as "\"step\":1".
  struct Slice {
    std::string_view name;
    std::string_view category;
    Duration start{};
    Duration length{};
    std::string_view args;
  };
  void slice(TrackId track, const Slice& slice);

  // The slices in which an arrow begins and ends were written before it. REQUIRES: from <= to.
  struct End {
    TrackId track;
    Duration at{};
  };
  void arrow(std::string_view name, std::string_view category, const End& from, const End& to);

  // A viewer calls it "NAME UNIT".
  void counter(TrackId any, std::string_view name, std::string_view unit, Duration at,
               double value);

  [[nodiscard]] std::string take() { return std::move(text_); }

 private:
  void begin(char phase, TrackId track);
  void metadata(TrackId track, std::string_view what, std::string_view key, std::string_view value);
  void name_metadata(TrackId track, std::string_view what, std::string_view name);
  void sort_index(TrackId track, std::string_view what, std::int64_t index);

  std::string text_;
  std::int64_t arrows_ = 0;
};

}  // namespace dovetail::traces

// Finds accesses to device memory that nothing orders.
//
// Every stream is a lane and counts its work; a clock says, per lane, up to which count everything
// is known to have happened. Work on a lane continues the lane's clock, an event carries the clock
// of its record, and a wait merges it in: Lamport's happens-before with Mattern's vector clocks, as
// thread sanitizers use them. An access is checked when it is enqueued, so a race is found whether
// or not this run's order shows it.
//
//   lane 0: write x (0:1)                 record e = {0:1}
//   lane 1: wait e -> {0:1}   read x      ordered: clock[0] >= 1
//   lane 2:                   read x      race: clock[0] = 0 < 1
//
// Numbers of lanes that ended are used again, so an access of a destroyed stream may count as
// ordered before its successor's.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::emulated {

using Clock = std::vector<std::uint64_t>;  // by lane
void merge(Clock& into, const Clock& from);

enum class AccessKind { Read, Write };
struct Access {
  const void* data = nullptr;
  std::size_t bytes = 0;
  AccessKind kind = AccessKind::Read;
};
inline Access reads(const void* data, std::size_t bytes) { return {data, bytes, AccessKind::Read}; }
inline Access writes(const void* data, std::size_t bytes) {
  return {data, bytes, AccessKind::Write};
}

// Not synchronised: the machine's lock holds (machine.h).
class Races {
 public:
  std::size_t new_lane();
  void end_lane(std::size_t lane);
  // Counts one more piece of work on the lane, in its own clock.
  void tick(std::size_t lane, Clock& clock);
  // What the work at this clock touches. Returns a sentence per race.
  std::vector<std::string> touch(const std::vector<Access>& accesses, std::size_t lane,
                                 const Clock& clock, std::string_view name);
  // Of everything enqueued so far.
  [[nodiscard]] const Clock& now() const { return counts_; }
  // The range was freed.
  void forget(const void* data, std::size_t bytes);

 private:
  struct Seen {
    std::size_t lane = 0;
    std::uint64_t count = 0;  // 0: never
    std::string name;
  };
  struct Cell {
    std::uintptr_t end = 0;
    Seen write;
    std::vector<Seen> reads;  // one per lane, the latest
  };
  void split(std::uintptr_t at);
  void touch_range(const Access& access, const Seen& now, const Clock& clock,
                   std::vector<std::string>& found);
  void check(Cell& cell, const Access& access, const Seen& now, const Clock& clock,
             std::vector<std::string>& found) const;

  std::vector<std::uint64_t> counts_;     // by lane
  std::vector<std::size_t> free_;         // lanes
  std::map<std::uintptr_t, Cell> cells_;  // by first byte; they do not overlap
};

}  // namespace dovetail::emulated

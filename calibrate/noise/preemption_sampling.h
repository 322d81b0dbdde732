// When the reference load looks whether its core is there, and what the moments that it saw say.
//
//   PreemptionSampler moments(seed, begin_ns);
//   sleep_until(moments.due_ns());                      the next moment
//   ticks.push_back(moments.woke(now_ns(), waited_ns, work_ns));
//   traces::CoreRecord record = record_of(ticks, begin_ns, end_ns);
//
// Time is divided into cells. There is one moment in each, anywhere in it with the same probability, so the
// share of the cells' time whose moment found the core away is an unbiased estimate of the share of time in
// which it was: for preemptions shorter and longer than a cell, and nothing periodic can hide between the
// moments. A cell lasts 16 ms while the core is seldom away, else 4 ms, or as much longer as looking would
// cost more than kMostCost: waking up is nearly all that the reference load costs, and what it costs differs from
// machine to machine and from hour to hour. How long a cell is follows from earlier ones only, before its
// moment is drawn, so each of them stands for its own time and the estimate stays unbiased.
//
// How long a preemption was. When a moment finds the core away, the end of the preemption is when the thread
// wakes up. Its beginning lies in the gap since the core was last seen. Three cases, best first:
//   - the rank's own thread stood in the run queue meanwhile: the system counted how long, and says so once
//     the thread runs again, mostly at the next moment;
//   - many preemptions were met: how often there are preemptions of each length is fitted to all of them at once
//     (maximum likelihood for interval-censored lengths, by expectation maximisation as in emission
//     tomography: Shepp and Vardi 1982), and the expected beginning is taken under that;
//   - else it began as long ago as it still lasted, at most in the middle of the gap.
//
//   cells     |      .   |  .       |       .  |     .    |     . moments
//   core      ..........................####.............      found: left over 2, gap 5
//   core      ...###.......................................    not found
//
// What is shorter than a cell may lie between two moments. It stays in the times of the ops that it hit, and
// in `unseen` of the record, which is the estimated share without what was found.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/random.h"
#include "base/units.h"
#include "traces/disturbances.h"

#include <cstdint>
#include <span>

namespace dovetail::testbed {

inline constexpr Duration kShortCell = std::chrono::milliseconds(4);
inline constexpr Duration kLongCell = std::chrono::milliseconds(16);
// The share of a core that looking may take.
inline constexpr double kMostCost = 0.0045;
// A wake-up within kOnTime is in time.
inline constexpr Duration kOnTime = std::chrono::microseconds(150);
// Where a thread stood in the run queue for a smaller share of the time, nobody looks: schedstat is dear.
inline constexpr double kOwnWaits = 0.125;

// One moment: when the thread should have woken up, when it did, how long its cell was, how much longer the
// cells were that passed until then, how long the rank's thread stood in the run queue (waits that ended since
// the moment before), and how long known work took (0: not run this time).
struct Tick {
  std::int64_t due_ns = 0;
  std::int64_t woke_ns = 0;
  std::int64_t cell_ns = kShortCell.count();
  std::int64_t passed_ns = 0;
  std::int64_t waited_ns = 0;
  std::int64_t work_ns = 0;
  friend bool operator==(const Tick&, const Tick&) = default;
};

// The core was away at that moment.
bool is_late(const Tick& tick);

class PreemptionSampler {
 public:
  PreemptionSampler(std::uint64_t seed, std::int64_t begin_ns);

  // The next moment.
  [[nodiscard]] std::int64_t due_ns() const { return due_ns_; }
  // The thread woke up for it. REQUIRES: woke_ns >= due_ns().
  Tick woke(std::int64_t woke_ns, std::int64_t waited_ns, std::int64_t work_ns);
  // One moment takes so much processor time: from the next cell on they are as long as kMostCost asks.
  void costs(double moment_ns);

 private:
  void draw();
  // So long a time, of which so large a share was taken.
  void remember(double length_ns, double taken);

  Random random_;
  std::int64_t begin_ns_;  // of the cell
  std::int64_t cell_ns_ = kShortCell.count();
  std::int64_t short_cell_ns_ = kShortCell.count();
  std::int64_t due_ns_ = 0;
  double lately_ = 0.5;  // the share taken in about the last second; at first nothing is known
};

// What ticks say about the time from `begin_ns` to `end_ns`.
traces::CoreRecord record_of(std::span<const Tick> ticks, std::int64_t begin_ns,
                             std::int64_t end_ns);

}  // namespace dovetail::testbed

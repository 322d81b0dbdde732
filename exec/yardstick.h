// The yardstick: how much of its core a rank really had, measured beside everything that it does.
//
//   Yardstick yardstick;                       // a thread on the cores of the calling one
//   ... measure ...
//   traces::CoreRecord record = yardstick.record(begin_ns, now_ns());
//
// A thread of its own sleeps until given moments, one in each period of 4 ms at a random place in it, and
// notes when it really woke up. If the core is away at that moment, it wakes up late, by what was left
// of the absence. So the share of moments that found the core away is an unbiased estimate of the share
// of time in which it was, for absences longer and shorter than a period; and since the moments are
// random, nothing periodic can hide between them. Every fourth time it also runs 10 us of known work,
// whose time tells what the core lost while it was there.
//
// The thread has real-time priority where the system allows it (else it asks for quick wake-ups), so
// programs that compete at ordinary priority do not delay it. They show in the time that the rank's own
// thread, the one that made the yardstick, stood in the run queue (/proc/.../schedstat), which is read at
// every moment. Where that is known it also tells how long an absence was; a core that the hypervisor took
// leaves no trace there. Then the beginning of an absence lies between the last moment when the core was
// there and the first when it was away, and the middle is right on average for absences longer than a
// period; shorter ones are lengthened so that all of them add up to the share.
//
// What it does not see: ordinary programs while the rank's own thread waits for communication, and waits
// under half a millisecond, which the rank's own communication threads cause. Its own processor time is
// known (cost()) and reported.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/backend.h"
#include "exec/exchange.h"
#include "traces/disturbances.h"

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace dovetail::exec {

// One moment: when the thread should have woken up, when it did, how many later moments had passed by
// then, how long the rank's thread stood in the run queue since the moment before, and how long known work
// took (0: not run this time).
struct Tick {
  std::int64_t due_ns = 0;
  std::int64_t woke_ns = 0;
  std::int64_t passed = 0;
  std::int64_t waited_ns = 0;
  std::int64_t work_ns = 0;
  friend bool operator==(const Tick&, const Tick&) = default;
};

// What ticks say about the time from `begin_ns` to `end_ns`. A wake-up within kOnTime is in time.
inline constexpr Duration kOnTime = std::chrono::microseconds(150);
// Shorter waits in the run queue are our own communication threads.
inline constexpr Duration kOwnWaits = std::chrono::microseconds(500);
traces::CoreRecord record_of(std::span<const Tick> ticks, std::int64_t begin_ns,
                             std::int64_t end_ns, Duration period);

class Yardstick {
 public:
  static constexpr Duration kPeriod = std::chrono::milliseconds(4);

  // For the calling thread.
  explicit Yardstick(std::uint64_t seed);
  ~Yardstick();
  Yardstick(const Yardstick&) = delete;
  Yardstick& operator=(const Yardstick&) = delete;

  [[nodiscard]] traces::CoreRecord record(std::int64_t begin_ns, std::int64_t end_ns) const;
  // Processor time that the thread itself has used.
  [[nodiscard]] Duration cost() const { return Duration(cost_ns_.load()); }
  // "" or why the thread has no real-time priority.
  [[nodiscard]] std::string warning() const;

 private:
  void watch(std::uint64_t seed);

  mutable std::mutex mutex_;
  std::vector<Tick> ticks_;
  std::string warning_;
  std::int32_t core_ = 0;
  std::atomic<std::int64_t> cost_ns_ = 0;
  std::atomic<bool> done_ = false;
  int schedstat_ = -1;  // of the rank's thread; -1: this kernel does not tell
  std::thread thread_;
};

// Which steps met an absence that took at least kDisturbed of them, on any rank; on every rank. `record`
// is of the time from `begin_ns` on.
inline constexpr double kDisturbed = 0.01;
std::vector<bool> disturbed_steps(const Exchange& exchange, std::span<const Timing> timings,
                                  const traces::CoreRecord& record, std::int64_t begin_ns);

// The records of all ranks, on every rank.
traces::Disturbances share_records(const Exchange& exchange, const traces::CoreRecord& mine);

}  // namespace dovetail::exec

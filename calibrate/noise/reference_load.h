// The reference load: how much of its core a rank really had, measured beside everything that it does.
//
//   ReferenceLoad load;                                 // a thread on the cores of the calling one
//   ... measure ...
//   traces::CoreRecord record = load.record(begin_ns, now_ns());
//
// A thread of its own sleeps until given moments at random places in time and notes when it really woke up.
// If the core is away at that moment, it wakes up late, by what was left of the preemption. preemption_sampling.h says how
// the moments are chosen and what follows from them. About every 50 ms it also runs 10 us of known work,
// whose time tells what the core lost while it was there.
//
// The thread has real-time priority where the system allows it (else it asks for quick wake-ups), so
// programs that compete at ordinary priority do not delay it. They show in the time that the rank's own
// thread, the one that made the reference load, stood in the run queue (/proc/.../schedstat). Where that is
// known it also tells how long a preemption was; a core that the hypervisor took leaves no trace there.
//
// Cost. A wake-up takes 15 to 25 us of processor time on a virtual machine, nearly all of it for setting
// the timer and for its interrupt, a quarter of that on bare metal. So it is done seldom where the core is
// seldom away and never oftener than kMostCost allows, by what it has cost so far, and whatever else a wake-up did is avoided: schedstat, which the system formats as text, is
// read only where the processor time of the rank's thread says that it may have stood in the queue.
//
// What it does not see: ordinary programs while the rank's own thread waits for communication, and waits
// in less than an eighth of the time. Its own processor time is known (cost()) and reported.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "calibrate/noise/preemption_sampling.h"
#include "exec/backend.h"
#include "exec/exchange.h"
#include "traces/disturbances.h"

#include <ctime>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace dovetail::testbed {

// How long a thread stands in the run queue behind other programs: what other threads of its own process ran
// meanwhile is not counted, as if all of them shared its core. Made by that thread, asked by another one.
class RunQueueWait {
 public:
  RunQueueWait();
  ~RunQueueWait();
  RunQueueWait(const RunQueueWait&) = delete;
  RunQueueWait& operator=(const RunQueueWait&) = delete;

  // Waits that ended since the last call; 0 where it is unknown. Unless `closely`, also where the thread ran for
  // so much of the time that the rest cannot matter (kOwnWaits).
  std::int64_t since_last(std::int64_t now_ns, bool closely);

 private:
  [[nodiscard]] std::int64_t total() const;

  int schedstat_;    // -1: this kernel does not tell
  clockid_t clock_;  // processor time of the thread
  std::int64_t last_ns_ = 0;
  std::int64_t last_ran_ns_ = 0;
  std::int64_t last_total_ = 0;
  std::int64_t last_others_ran_ = 0;  // processor time of the other threads, at that reading
  std::int64_t passed_over_ = 0;      // at most so much of the total, since it was last read
};

class ReferenceLoad {
 public:
  // For the calling thread.
  explicit ReferenceLoad(std::uint64_t seed);
  ~ReferenceLoad();
  ReferenceLoad(const ReferenceLoad&) = delete;
  ReferenceLoad& operator=(const ReferenceLoad&) = delete;

  [[nodiscard]] traces::CoreRecord record(std::int64_t begin_ns, std::int64_t end_ns) const;
  // Processor time that the thread itself has used.
  [[nodiscard]] Duration cost() const;
  // "" or why the thread has no real-time priority.
  [[nodiscard]] std::string warning() const;

 private:
  void watch(std::uint64_t seed);

  mutable std::mutex mutex_;
  std::vector<Tick> ticks_;
  std::string warning_;
  std::int32_t core_ = 0;
  std::atomic<bool> done_ = false;
  RunQueueWait waiting_;  // of the rank's thread
  std::thread thread_;
  clockid_t clock_;  // its processor time
};

// Which steps met a preemption that took at least kDisturbed of them, on any rank; on every rank. `record`
// is of the time from `begin_ns` on.
inline constexpr double kDisturbed = 0.01;
std::vector<bool> disturbed_steps(const exec::Exchange& exchange,
                                  std::span<const exec::Timing> timings,
                                  const traces::CoreRecord& record, std::int64_t begin_ns);

// The records of all ranks, on every rank.
traces::Disturbances share_records(const exec::Exchange& exchange, const traces::CoreRecord& mine);

}  // namespace dovetail::testbed

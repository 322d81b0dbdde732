// The ranks of a fake job: where they meet in virtual time, and when their cores are away.
//
//   FakeWorld world({{{.start = from_us(100), .length = from_us(50)}}, {}}, from_us(20));
//   FakeBackend rank0({.duration = ...}, world, Rank{0});            each rank on a thread of its own
//
// While a core is away its rank computes nothing, and none of its collectives begins or ends; one in
// flight goes on for `shield` and then stands still too. That is what the simulator plays
// (sim/absences.h), and tests hold the two against each other.
//
// Virtual times do not depend on how the threads are scheduled. All ranks meet in the same order.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "traces/disturbances.h"

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <vector>

namespace dovetail::exec::fake {

class FakeWorld {
 public:
  // By rank; each by time and apart. Times count from virtual time 0.
  FakeWorld(const std::vector<std::vector<traces::Taken>>& away, Duration shield);

  // Blocks until every rank has come with its own time; returns the latest.
  std::int64_t meet(std::int64_t time_ns);
  // How far a rank has come, over all its backends, which run in turn. For the rank's own thread.
  [[nodiscard]] std::int64_t& reached(Rank rank) {
    return reached_ns_.at(static_cast<std::size_t>(rank.value));
  }
  // When work ends that a rank begins at `start_ns`.
  [[nodiscard]] std::int64_t computed(Rank rank, std::int64_t start_ns, Duration work) const;
  // When a collective ends whose last rank came at `start_ns`.
  [[nodiscard]] std::int64_t transferred(std::int64_t start_ns, Duration work) const;

 private:
  struct Preemption {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };
  // The earliest moment from `time` on when the core of every rank is there.
  [[nodiscard]] std::int64_t all_there(std::int64_t time) const;

  std::vector<std::vector<Preemption>> away_;  // by rank
  std::vector<Preemption> silent_;             // when some rank is away beyond the shield: merged

  std::vector<std::int64_t> reached_ns_;  // by rank

  std::mutex mutex_;
  std::condition_variable met_;
  std::size_t arrived_ = 0;
  std::int64_t generation_ = 0;
  std::int64_t latest_ns_ = 0;
  std::int64_t result_ns_ = 0;  // of the generation before
};

}  // namespace dovetail::exec::fake

// What the fake backends of a job share: where ranks meet in collectives, and the preemptions of
// each rank, around which work is stretched.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/fake/fake_world.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace dovetail::exec::fake {
namespace {

// When `work` is done that goes on from `start` except within the pauses.
template <class Pauses>
std::int64_t end_of(const Pauses& pauses, std::int64_t start, std::int64_t work) {
  auto pause = std::partition_point(pauses.begin(), pauses.end(),
                                    [start](const auto& one) { return one.end <= start; });
  std::int64_t now = start;
  for (; pause != pauses.end(); ++pause) {
    const std::int64_t done = now + work;
    if (done <= pause->begin) break;
    work -= std::max<std::int64_t>(0, pause->begin - now);
    now = pause->end;
  }
  return now + work;
}

}  // namespace

FakeWorld::FakeWorld(const std::vector<std::vector<traces::Taken>>& away, Duration shield)
    : reached_ns_(away.size(), 0), latest_ns_(std::numeric_limits<std::int64_t>::min()) {
  std::vector<Preemption> silent;
  for (const std::vector<traces::Taken>& of_rank : away) {
    std::vector<Preemption> preemptions;
    for (const traces::Taken& taken : of_rank) {
      const Preemption preemption = {.begin = taken.start.count(),
                                     .end = (taken.start + taken.length).count()};
      preemptions.push_back(preemption);
      if (taken.length > shield) {
        silent.push_back({.begin = preemption.begin + shield.count(), .end = preemption.end});
      }
    }
    away_.push_back(std::move(preemptions));
  }
  std::sort(silent.begin(), silent.end(),
            [](const Preemption& a, const Preemption& b) { return a.begin < b.begin; });
  for (const Preemption& one : silent) {
    if (!silent_.empty() && one.begin <= silent_.back().end) {
      silent_.back().end = std::max(silent_.back().end, one.end);
    } else {
      silent_.push_back(one);
    }
  }
}

std::int64_t FakeWorld::meet(std::int64_t time_ns) {
  std::unique_lock lock(mutex_);
  latest_ns_ = std::max(latest_ns_, time_ns);
  if (++arrived_ == away_.size()) {
    result_ns_ = std::exchange(latest_ns_, std::numeric_limits<std::int64_t>::min());
    arrived_ = 0;
    ++generation_;
    met_.notify_all();
    return result_ns_;
  }
  const std::int64_t mine = generation_;
  met_.wait(lock, [&] { return generation_ != mine; });
  return result_ns_;
}

std::int64_t FakeWorld::computed(Rank rank, std::int64_t start_ns, Duration work) const {
  return end_of(away_.at(static_cast<std::size_t>(rank.value)), start_ns, work.count());
}

std::int64_t FakeWorld::all_there(std::int64_t time) const {
  for (bool moved = true; moved;) {
    moved = false;
    for (const std::vector<Preemption>& of_rank : away_) {
      const auto preemption =
          std::partition_point(of_rank.begin(), of_rank.end(),
                               [time](const Preemption& one) { return one.end <= time; });
      if (preemption == of_rank.end() || preemption->begin > time) continue;
      time = preemption->end;
      moved = true;
    }
  }
  return time;
}

std::int64_t FakeWorld::transferred(std::int64_t start_ns, Duration work) const {
  return all_there(end_of(silent_, all_there(start_ns), work.count()));
}

}  // namespace dovetail::exec::fake

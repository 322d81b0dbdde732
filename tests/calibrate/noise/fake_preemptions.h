// Preemptions of a core in virtual time, and what a reference load would note of them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/random.h"
#include "base/units.h"
#include "calibrate/noise/preemption_sampling.h"
#include "traces/disturbances.h"

namespace dovetail::testing {

// Bursts as scripts/campaigns/disturb.sh makes them, in 1000 s.
inline std::vector<traces::Taken> bursts(double share, Duration burst, std::uint64_t seed) {
  std::vector<traces::Taken> all;
  if (share <= 0) return all;
  Random random(seed);
  const double pause = static_cast<double>(burst.count()) * (1 - share) / share;
  Duration time{};
  while (time < std::chrono::seconds(1000)) {
    time += Duration(std::llround(pause * (0.5 + random.uniform())));
    all.push_back({.start = time, .length = burst});
    time += burst;
  }
  return all;
}

// What a reference load's thread would note on that core.
inline std::vector<testbed::Tick> ticks_of(const std::vector<traces::Taken>& away,
                                           std::int64_t end_ns, std::uint64_t seed,
                                           double cost_ns = 0) {
  constexpr std::int64_t kWakeUp = 5'000;
  testbed::PreemptionSampler moments(seed, 0);
  moments.costs(cost_ns);
  std::vector<testbed::Tick> ticks;
  auto next = away.begin();
  while (moments.due_ns() < end_ns) {
    const std::int64_t due = moments.due_ns();
    std::int64_t woke = due + kWakeUp;
    const auto end_of = [](const traces::Taken& taken) {
      return (taken.start + taken.length).count();
    };
    while (next != away.end() && end_of(*next) <= due) ++next;
    if (next != away.end() && next->start.count() <= due) woke = end_of(*next) + kWakeUp;
    ticks.push_back(moments.woke(woke, 0, 0));
  }
  return ticks;
}

}  // namespace dovetail::testing

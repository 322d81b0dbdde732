// Standing in the way of one's own communication thread.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/calibrate/shield.h"

#include "exec/calibrate/collectives.h"
#include "exec/clock.h"

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <thread>
#include <vector>

namespace dovetail::exec::calibrate {
namespace {

constexpr Duration kAway = std::chrono::milliseconds(60);
constexpr Duration kBefore = std::chrono::milliseconds(5);
constexpr Duration kLongEnough = kBefore + kAway;
constexpr int kRepetitions = 7;
constexpr int kQuietRepetitions = 10;
constexpr int kIntruder = 3;  // priority, above those of launch::RealTime

// Above the yardstick and all that the rank does. False where the system refuses.
bool set_realtime(bool wanted) {
  sched_param parameters{};
  parameters.sched_priority = wanted ? kIntruder : 0;
  return sched_setscheduler(0, wanted ? SCHED_FIFO : SCHED_OTHER, &parameters) == 0;
}

// From when until when on this rank's core; nothing where the system refuses.
struct Stood {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
};

Stood stand_in_the_way() {
  if (!set_realtime(true)) return {};
  Stood stood = {.begin_ns = now_ns(), .end_ns = 0};
  while (now_ns() < stood.begin_ns + kAway.count()) {
  }
  stood.end_ns = now_ns();
  set_realtime(false);
  return stood;
}

struct Attempt {
  Duration took{};             // from the last arrival to the last completion
  std::vector<Duration> away;  // the absences of all ranks meanwhile, ours included
};

Attempt one(Rig& rig, const cpu::CollectiveCall& call, bool hindered) {
  rig.exchange().barrier();
  rig.enqueue(call, 1);
  Stood stood;
  if (hindered && rig.exchange().rank == Rank{0}) {
    std::this_thread::sleep_for(kBefore);
    stood = stand_in_the_way();
  }
  const std::vector<Timing> timings = rig.drain();
  std::vector<std::int64_t> mine = {timings.front().start_ns, timings.back().end_ns};
  // Of our own absence we know more than the yardstick.
  if (stood.end_ns > stood.begin_ns) mine.push_back(stood.end_ns - stood.begin_ns);
  for (const traces::Taken& taken : rig.yardstick().record(mine[0], mine[1]).taken) {
    const std::int64_t start_ns = mine[0] + taken.start.count();
    const bool is_own = start_ns < stood.end_ns && start_ns + taken.length.count() > stood.begin_ns;
    if (!is_own) mine.push_back(taken.length.count());
  }
  std::int64_t arrived = std::numeric_limits<std::int64_t>::min();
  std::int64_t done = arrived;
  Attempt attempt;
  for (const std::vector<std::int64_t>& of_rank : share(rig.exchange(), mine)) {
    arrived = std::max(arrived, of_rank.at(0));
    done = std::max(done, of_rank.at(1));
    for (std::size_t i = 2; i < of_rank.size(); ++i) attempt.away.emplace_back(of_rank[i]);
  }
  attempt.took = Duration(done - arrived);
  return attempt;
}

}  // namespace

Duration shield_explaining(Duration extra, std::span<const Duration> away) {
  const auto lost = [away](Duration shield) {
    Duration sum{};
    for (const Duration length : away) sum += std::max(Duration{}, length - shield);
    return sum;
  };
  Duration low{};
  Duration high = away.empty() ? Duration{} : *std::max_element(away.begin(), away.end());
  while (high - low > std::chrono::microseconds(1)) {
    const Duration middle = (low + high) / 2;
    (lost(middle) > extra ? low : high) = middle;
  }
  return high;
}

Duration measure_shield(Rig& rig) {
  const std::int64_t may = set_realtime(true) && set_realtime(false) ? 1 : 0;
  for (const std::vector<std::int64_t>& of_rank : share(rig.exchange(), std::vector{may})) {
    if (of_rank.at(0) == 0) return {};
  }
  for (Bytes bytes = mib(1); bytes <= mib(64); bytes = bytes * 2) {
    const cpu::CollectiveCall call = {.kind = schedule::Collective::AllReduce,
                                      .op = schedule::ReduceOp::Sum,
                                      .data = rig.buffer(bytes),
                                      .shard = {},
                                      .label = "calibration"};
    one(rig, call, false);
    Duration alone = one(rig, call, false).took;
    if (alone < kLongEnough) continue;
    for (int i = 1; i < kQuietRepetitions; ++i) alone = std::min(alone, one(rig, call, false).took);
    std::vector<std::int64_t> shields;
    for (int i = 0; i < kRepetitions; ++i) {
      const Attempt hindered = one(rig, call, true);
      shields.push_back(shield_explaining(hindered.took - alone, hindered.away).count());
    }
    return spread_of(std::move(shields)).median;
  }
  return {};
}

}  // namespace dovetail::exec::calibrate

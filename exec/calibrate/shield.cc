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
#include <thread>

namespace dovetail::exec::calibrate {
namespace {

constexpr Duration kAway = std::chrono::milliseconds(60);
constexpr Duration kBefore = std::chrono::milliseconds(20);
constexpr Duration kLongEnough = std::chrono::milliseconds(150);
constexpr int kRepetitions = 7;
constexpr int kQuietRepetitions = 4;

// Above the yardstick and all ordinary threads. False where the system refuses.
bool set_realtime(bool wanted) {
  sched_param parameters{};
  parameters.sched_priority = wanted ? 2 : 0;
  return sched_setscheduler(0, wanted ? SCHED_FIFO : SCHED_OTHER, &parameters) == 0;
}

void stand_in_the_way() {
  if (!set_realtime(true)) return;
  const std::int64_t until = now_ns() + kAway.count();
  while (now_ns() < until) {
  }
  set_realtime(false);
}

// One all-reduce, from its last arrival to its last completion.
Duration one(Rig& rig, const cpu::CollectiveCall& call, bool hindered) {
  rig.exchange().barrier();
  rig.enqueue(call, 1);
  if (hindered && rig.exchange().rank == Rank{0}) {
    std::this_thread::sleep_for(kBefore);
    stand_in_the_way();
  }
  const std::vector<Timing> timings = rig.drain();
  const std::vector<std::int64_t> mine = {timings.front().start_ns, timings.back().end_ns};
  std::int64_t arrived = std::numeric_limits<std::int64_t>::min();
  std::int64_t done = arrived;
  for (const std::vector<std::int64_t>& of_rank : share(rig.exchange(), mine)) {
    arrived = std::max(arrived, of_rank.at(0));
    done = std::max(done, of_rank.at(1));
  }
  return Duration(done - arrived);
}

}  // namespace

Duration measure_shield(Rig& rig) {
  const std::int64_t may = set_realtime(true) && set_realtime(false) ? 1 : 0;
  for (const std::vector<std::int64_t>& of_rank : share(rig.exchange(), std::vector{may})) {
    if (of_rank.at(0) == 0) return {};
  }
  for (Bytes bytes = mib(4); bytes <= mib(64); bytes = bytes * 2) {
    const cpu::CollectiveCall call = {.kind = schedule::Collective::AllReduce,
                                      .op = schedule::ReduceOp::Sum,
                                      .data = rig.buffer(bytes),
                                      .shard = {},
                                      .label = "calibration"};
    one(rig, call, false);
    Duration quiet = one(rig, call, false);
    for (int i = 1; i < kQuietRepetitions; ++i) quiet = std::min(quiet, one(rig, call, false));
    if (quiet < kLongEnough) continue;
    // Other absences only lengthen: the shortest delay is the one that met none.
    Duration hindered = one(rig, call, true);
    for (int i = 1; i < kRepetitions; ++i) hindered = std::min(hindered, one(rig, call, true));
    return std::clamp(kAway - (hindered - quiet), Duration{}, kAway);
  }
  return {};
}

}  // namespace dovetail::exec::calibrate

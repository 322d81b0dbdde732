// Measures how long the network goes on sending while a rank is preempted, by preempting our own
// communication thread in the middle of an all-reduce and looking at what the all-reduce did not
// lose.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cpu/network_shield.h"

#include "calibrate/cpu/collectives.h"
#include "exec/clock.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace dovetail::calibrate {
namespace {

constexpr Duration kAway = std::chrono::milliseconds(60);
// From the start of the all-reduce.
constexpr std::array kMoments = {std::chrono::milliseconds(2), std::chrono::milliseconds(8),
                                 std::chrono::milliseconds(15), std::chrono::milliseconds(22),
                                 std::chrono::milliseconds(30)};
constexpr Duration kLongEnough = kMoments.back() + kAway / 2;
constexpr std::size_t kCalm = 2 * kMoments.size();  // attempts without another preemption
constexpr std::size_t kFewCalm = kCalm / 2;
// Of all other preemptions together; the reference load also sees the rank's own communication thread.
constexpr Duration kCalmAway = std::chrono::milliseconds(5);
constexpr std::size_t kMostAttempts = 8 * kMoments.size();
constexpr int kQuietRepetitions = 10;
constexpr int kIntruder = 3;  // priority, above those of launch::RealTime

// Above the reference load and all that the rank does. False where the system refuses.
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
  Stood stood = {.begin_ns = exec::now_ns(), .end_ns = 0};
  while (exec::now_ns() < stood.begin_ns + kAway.count()) {
  }
  stood.end_ns = exec::now_ns();
  set_realtime(false);
  return stood;
}

struct Attempt {
  Duration took{};             // from the last arrival to the last completion
  std::vector<Duration> away;  // the preemptions of all ranks meanwhile, ours included
  Duration others{};           // the sum of those that are not ours
};

// `hindered_at`: after its start; absent: not at all.
Attempt one(Rig& rig, const exec::cpu::CollectiveCall& call, std::optional<Duration> hindered_at) {
  rig.exchange().barrier();
  rig.enqueue(call, 1);
  Stood stood;
  if (hindered_at && rig.exchange().rank == Rank{0}) {
    std::this_thread::sleep_for(*hindered_at);
    stood = stand_in_the_way();
  }
  const std::vector<exec::Timing> timings = rig.drain();
  // Start, end, and our own preemption, of which we know more than the reference load; then the others.
  std::vector<std::int64_t> mine = {timings.front().start_ns, timings.back().end_ns,
                                    stood.end_ns - stood.begin_ns};
  for (const traces::Taken& taken : rig.reference_load().record(mine[0], mine[1]).taken) {
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
    if (of_rank.at(2) > 0) attempt.away.emplace_back(of_rank[2]);
    for (std::size_t i = 3; i < of_rank.size(); ++i) {
      attempt.away.emplace_back(of_rank[i]);
      attempt.others += attempt.away.back();
    }
  }
  attempt.took = Duration(done - arrived);
  return attempt;
}

// Over those moments of which there are attempts.
Duration mean_of_medians(std::span<std::vector<std::int64_t>> moments) {
  Duration sum{};
  int count = 0;
  for (std::vector<std::int64_t>& attempts : moments) {
    if (attempts.empty()) continue;
    sum += spread_of(std::move(attempts)).median;
    ++count;
  }
  return count == 0 ? sum : sum / count;
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
    const exec::cpu::CollectiveCall call = {.kind = schedule::Collective::AllReduce,
                                            .op = schedule::ReduceOp::Sum,
                                            .data = rig.buffer(bytes),
                                            .shard = {},
                                            .label = "calibration"};
    Duration alone = Duration::max();  // of attempts that a preemption may have met
    for (int i = 0; i < kQuietRepetitions; ++i) {
      alone = std::min(alone, one(rig, call, std::nullopt).took);
      if (alone < kLongEnough) break;
    }
    if (alone < kLongEnough) continue;
    std::array<std::vector<std::int64_t>, kMoments.size()> calm;
    std::vector<std::int64_t> all;
    std::size_t calm_ones = 0;
    for (std::size_t i = 0; i < kMostAttempts && calm_ones < kCalm; ++i) {
      const std::size_t moment = i % kMoments.size();
      const Attempt hindered = one(rig, call, kMoments.at(moment));
      all.push_back(shield_explaining(hindered.took - alone, hindered.away).count());
      if (hindered.others > kCalmAway) continue;
      calm.at(moment).push_back(all.back());
      ++calm_ones;
    }
    return calm_ones < kFewCalm ? spread_of(std::move(all)).median : mean_of_medians(calm);
  }
  return {};
}

}  // namespace dovetail::calibrate

// Preempts the thread that communicates in the middle of an all-reduce, from the compute thread of the same core, and
// looks at what the all-reduce did not lose.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/network_shield.h"

#include "base/error.h"
#include "calibrate/probes.h"
#include "exec/clock.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
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

// One all-reduce, launched before an op that does nothing.
class LongTransfer {
 public:
  LongTransfer(const Lab& lab, Bytes bytes)
      : lab_(lab), plan_(plan_of(lab, bytes)), backend_(lab.make_backend(plan_)) {}

  // `hindered_at`: after its start; absent: not at all.
  Attempt one(std::optional<Duration> hindered_at);

 private:
  static constexpr OpId kMeanwhile{0};
  static schedule::ScheduledProgram plan_of(const Lab& lab, Bytes bytes) {
    schedule::Program program;
    program.name = "long transfer";
    program.world_size = lab.ranks;
    schedule::Op op;
    op.id = kMeanwhile;
    op.name = "meanwhile";
    op.work = moving(kib(4));
    program.ops.push_back(op);
    return contention_plan(
        program,
        {.ranks = lab.ranks, .bytes = bytes, .count = 1, .head_start = lab.options.head_start});
  }
  std::vector<exec::Timing> run(const std::function<void(OpId)>& before_op) {
    HostTimer timer(*backend_, {.pause = lab_.options.pause, .before_op = before_op});
    std::vector<exec::Timing> timings =
        exec::run(plan_, lab_.exchange.rank, timer, {.warmup = 0, .steps = 1}).timings;
    std::erase_if(timings, [this](const exec::Timing& timing) {
      return timing.stream == schedule::kComputeStream || !carriers_.contains(timing.command);
    });
    if (timings.empty()) throw DeviceError("the backend gave no timing of a collective");
    return timings;
  }

  const Lab& lab_;
  schedule::ScheduledProgram plan_;
  std::unique_ptr<exec::Backend> backend_;
  std::map<CommandId, StreamId> carriers_ = commands_of<schedule::Communicate>(lab_, plan_);
};

Attempt LongTransfer::one(std::optional<Duration> hindered_at) {
  Stood stood;
  const bool hinders = hindered_at && lab_.exchange.rank == Rank{0};
  const exec::Timing timing = run([&](OpId op) {
                                if (op != kMeanwhile || !hinders) return;
                                std::this_thread::sleep_for(*hindered_at);
                                stood = stand_in_the_way();
                              }).front();
  // Start, end, and our own preemption, of which we know more than the reference load; then the others.
  std::vector<std::int64_t> mine = {timing.start_ns, timing.end_ns, stood.end_ns - stood.begin_ns};
  for (const traces::Taken& taken : lab_.load->record(mine[0], mine[1]).taken) {
    const std::int64_t start_ns = mine[0] + taken.start.count();
    const bool is_own = start_ns < stood.end_ns && start_ns + taken.length.count() > stood.begin_ns;
    if (!is_own) mine.push_back(taken.length.count());
  }
  std::int64_t arrived = std::numeric_limits<std::int64_t>::min();
  std::int64_t done = arrived;
  Attempt attempt;
  for (const std::vector<std::int64_t>& of_rank : share(lab_.exchange, mine)) {
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
    sum += quantiles_of(std::move(attempts)).median;
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

Duration measure_shield(const Lab& lab) {
  const std::int64_t may = set_realtime(true) && set_realtime(false) ? 1 : 0;
  for (const std::vector<std::int64_t>& of_rank : share(lab.exchange, std::vector{may})) {
    if (of_rank.at(0) == 0) return {};
  }
  for (Bytes bytes = mib(1); bytes <= mib(64); bytes = bytes * 2) {
    LongTransfer transfer(lab, bytes);
    Duration alone = Duration::max();  // of attempts that a preemption may have met
    for (int i = 0; i < kQuietRepetitions; ++i) {
      alone = std::min(alone, transfer.one(std::nullopt).took);
      if (alone < kLongEnough) break;
    }
    if (alone < kLongEnough) continue;
    std::array<std::vector<std::int64_t>, kMoments.size()> calm;
    std::vector<std::int64_t> all;
    std::size_t calm_ones = 0;
    for (std::size_t i = 0; i < kMostAttempts && calm_ones < kCalm; ++i) {
      const std::size_t moment = i % kMoments.size();
      const Attempt hindered = transfer.one(kMoments.at(moment));
      all.push_back(shield_explaining(hindered.took - alone, hindered.away).count());
      if (hindered.others > kCalmAway) continue;
      calm.at(moment).push_back(all.back());
      ++calm_ones;
    }
    return calm_ones < kFewCalm ? quantiles_of(std::move(all)).median : mean_of_medians(calm);
  }
  return {};
}

}  // namespace dovetail::calibrate

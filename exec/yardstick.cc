// Sleeping until random moments, and what waking up late means.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/yardstick.h"

#include "base/random.h"
#include "exec/clock.h"
#include "exec/launch/affinity.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>
#include <ctime>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>

namespace dovetail::exec {
namespace {

constexpr std::int64_t kWorkEvery = 4;
constexpr int kWorkSteps = 8'000;  // about 10 us
constexpr double kMostUnnoticed = 0.25;
constexpr double kMillion = 1e6;

// A chain that no compiler or processor can shorten: each number needs the one before.
std::uint64_t known_work(std::uint64_t value) {
  for (int i = 0; i < kWorkSteps; ++i) {
    value ^= value << 13;
    value ^= value >> 7;
    value ^= value << 17;
  }
  return value;
}

void sleep_until(std::int64_t due_ns) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  const timespec due = {.tv_sec = due_ns / kSecond, .tv_nsec = due_ns % kSecond};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, nullptr) != 0) {
  }
}

std::int64_t own_cpu_ns() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

// Of the calling thread, for others to read.
int open_schedstat() {
  const std::string path = "/proc/self/task/" + std::to_string(gettid()) + "/schedstat";
  return open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

// The second of its three numbers: time in the run queue so far. 0 where it is unknown.
std::int64_t run_queue_wait(int schedstat) {
  std::array<char, 96> text{};
  if (schedstat < 0 || pread(schedstat, text.data(), text.size() - 1, 0) <= 0) return 0;
  char* rest = nullptr;
  std::strtoll(text.data(), &rest, 10);
  return std::strtoll(rest, nullptr, 10);
}

// How quick known work was (the 10th percentile), and how much longer it took in the mean.
void note_work(std::vector<std::int64_t> works, traces::CoreRecord& record) {
  if (works.size() < 10) return;
  std::sort(works.begin(), works.end());
  record.quickest = Duration(works[works.size() / 10]);
  const auto quickest = static_cast<double>(record.quickest.count());
  // What was interrupted is late, not slow: it is left out beyond three times the quickest.
  double sum = 0;
  std::size_t count = 0;
  for (const std::int64_t work : works) {
    if (static_cast<double>(work) > 3 * quickest) break;
    sum += static_cast<double>(work);
    ++count;
  }
  record.slowdown = std::max(0.0, sum / static_cast<double>(count) / quickest - 1);
}

// Makes the intervals longer towards their starts until they add up to `share` of the time.
void stretch_to(double share, traces::CoreRecord& record) {
  const double seen = traces::share_taken(record);
  if (seen <= 0 || share <= seen) return;
  const double factor = share / seen;
  Duration free_from{};
  Duration lacking{};  // where there was no room
  for (traces::Taken& taken : record.taken) {
    const Duration longer(std::llround(static_cast<double>(taken.length.count()) * factor));
    const Duration end = taken.start + taken.length;
    const Duration wanted = end - longer - lacking;
    taken.start = std::max(free_from, wanted);
    lacking = taken.start - wanted;
    taken.length = end - taken.start;
    free_from = end;
  }
}

}  // namespace

traces::CoreRecord record_of(std::span<const Tick> ticks, std::int64_t begin_ns,
                             std::int64_t end_ns, Duration period) {
  traces::CoreRecord record;
  record.watched = Duration(end_ns - begin_ns);
  std::vector<std::int64_t> works;
  std::int64_t free_ns = begin_ns;  // the core was there; or further back than we look
  std::int64_t moments = 0;
  std::int64_t away = 0;       // moments that found the core away
  std::int64_t late = 0;       // wake-ups
  std::int64_t explained = 0;  // of those, by waits in the run queue, which tell of the others too
  std::int64_t late_ns = 0;
  for (const Tick& tick : ticks) {
    if (tick.woke_ns <= begin_ns) continue;
    if (tick.due_ns >= end_ns) break;
    if (tick.work_ns > 0) works.push_back(tick.work_ns);
    moments += 1 + tick.passed;
    const std::int64_t woke_ns = std::min(tick.woke_ns, end_ns);
    const std::int64_t due_ns = std::clamp(tick.due_ns, free_ns, woke_ns);
    std::int64_t start_ns = woke_ns;
    if (tick.woke_ns - tick.due_ns > kOnTime.count()) {
      away += 1 + tick.passed;
      late_ns += tick.woke_ns - tick.due_ns - kOnTime.count();
      ++late;
      start_ns = due_ns - (due_ns - free_ns) / 2;
      if (tick.waited_ns >= woke_ns - due_ns) {
        start_ns = woke_ns - tick.waited_ns;
        ++explained;
      }
    } else if (tick.waited_ns > kOwnWaits.count()) {
      start_ns = woke_ns - tick.waited_ns;
    }
    start_ns = std::max(start_ns, free_ns);
    if (start_ns < woke_ns) {
      record.taken.push_back(
          {.start = Duration(start_ns - begin_ns), .length = Duration(woke_ns - start_ns)});
    }
    free_ns = std::max(free_ns, woke_ns);
  }
  if (moments > 0 && 2 * explained <= late && traces::typical_burst(record) < 2 * period) {
    // Of an absence of length L the last kOnTime are not noticed, and what is late is so by half of the rest
    // on average.
    const double rest =
        late == 0 ? 0 : 2 * static_cast<double>(late_ns) / static_cast<double>(late);
    const double unnoticed =
        rest == 0 ? 0 : std::min(kMostUnnoticed, static_cast<double>(kOnTime.count()) / rest);
    stretch_to(static_cast<double>(away) / static_cast<double>(moments) * (1 + unnoticed), record);
  }
  note_work(std::move(works), record);
  return record;
}

Yardstick::Yardstick(std::uint64_t seed)
    : schedstat_(open_schedstat()), thread_([this, seed] { watch(seed); }) {}

Yardstick::~Yardstick() {
  done_ = true;
  thread_.join();
  if (schedstat_ >= 0) close(schedstat_);
}

void Yardstick::watch(std::uint64_t seed) {
  std::string warning = launch::use_realtime_priority();
  if (!warning.empty()) static_cast<void>(launch::ask_for_quick_wakeups());
  {
    const std::lock_guard lock(mutex_);
    warning_ = std::move(warning);
    core_ = sched_getcpu();
    ticks_.reserve(1 << 16);  // four minutes
  }
  Random random(seed);
  const std::int64_t origin_ns = now_ns();
  std::uint64_t value = 1;
  std::int64_t cell = 0;
  std::int64_t waited = run_queue_wait(schedstat_);
  const auto moment_in = [&](std::int64_t which) {
    return origin_ns + which * kPeriod.count() + random.between(0, kPeriod.count() - 1);
  };
  std::int64_t due_ns = moment_in(cell);
  for (std::int64_t number = 0; !done_; ++number) {
    sleep_until(due_ns);
    Tick tick = {.due_ns = due_ns, .woke_ns = now_ns(), .passed = 0, .waited_ns = 0, .work_ns = 0};
    const std::int64_t wait = run_queue_wait(schedstat_);
    tick.waited_ns = wait - waited;
    waited = wait;
    if (number % kWorkEvery == 0) {
      const std::int64_t start = now_ns();
      value = known_work(value);
      tick.work_ns = now_ns() - start + static_cast<std::int64_t>(value == 0);
    }
    due_ns = moment_in(++cell);
    while (due_ns <= tick.woke_ns) {
      ++tick.passed;
      due_ns = moment_in(++cell);
    }
    {
      const std::lock_guard lock(mutex_);
      ticks_.push_back(tick);
    }
    cost_ns_ = own_cpu_ns();
  }
}

traces::CoreRecord Yardstick::record(std::int64_t begin_ns, std::int64_t end_ns) const {
  std::vector<Tick> ticks;
  std::int32_t core = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto first =
        std::partition_point(ticks_.begin(), ticks_.end(),
                             [begin_ns](const Tick& tick) { return tick.woke_ns <= begin_ns; });
    ticks.assign(first, ticks_.end());
    core = core_;
  }
  traces::CoreRecord record = record_of(ticks, begin_ns, end_ns, kPeriod);
  record.core = core;
  return record;
}

std::string Yardstick::warning() const {
  const std::lock_guard lock(mutex_);
  return warning_;
}

std::vector<bool> disturbed_steps(const Exchange& exchange, std::span<const Timing> timings,
                                  const traces::CoreRecord& record, std::int64_t begin_ns) {
  struct Window {
    std::int64_t start = std::numeric_limits<std::int64_t>::max();
    std::int64_t end = 0;
  };
  std::map<std::int32_t, Window> windows;  // of the compute stream
  for (const Timing& timing : timings) {
    if (timing.stream != schedule::kComputeStream) continue;
    Window& window = windows[timing.step];
    window.start = std::min(window.start, timing.start_ns);
    window.end = std::max(window.end, timing.end_ns);
  }
  std::vector<std::int64_t> mine;
  for (const auto& [step, window] : windows) {
    const Duration taken = traces::taken_within(record, Duration(window.start - begin_ns),
                                                Duration(window.end - begin_ns));
    const auto length = static_cast<double>(window.end - window.start);
    mine.push_back(static_cast<double>(taken.count()) >= kDisturbed * length ? 1 : 0);
  }
  std::vector<bool> disturbed(mine.size(), false);
  for (const std::vector<std::int64_t>& of_rank : share(exchange, mine)) {
    for (std::size_t i = 0; i < disturbed.size(); ++i) {
      disturbed[i] = disturbed[i] || of_rank.at(i) == 1;
    }
  }
  return disturbed;
}

traces::Disturbances share_records(const Exchange& exchange, const traces::CoreRecord& mine) {
  std::vector<std::int64_t> numbers = {mine.core, mine.watched.count(),
                                       std::llround(mine.slowdown * kMillion),
                                       mine.quickest.count()};
  for (const traces::Taken& taken : mine.taken) {
    numbers.push_back(taken.start.count());
    numbers.push_back(taken.length.count());
  }
  traces::Disturbances all;
  for (const std::vector<std::int64_t>& of_rank : share(exchange, numbers)) {
    traces::CoreRecord record = {.core = static_cast<std::int32_t>(of_rank.at(0)),
                                 .watched = Duration(of_rank.at(1)),
                                 .taken = {},
                                 .slowdown = static_cast<double>(of_rank.at(2)) / kMillion,
                                 .quickest = Duration(of_rank.at(3))};
    for (std::size_t i = 4; i + 1 < of_rank.size(); i += 2) {
      record.taken.push_back({.start = Duration(of_rank[i]), .length = Duration(of_rank[i + 1])});
    }
    all.push_back(std::move(record));
  }
  return all;
}

}  // namespace dovetail::exec

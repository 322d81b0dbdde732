// A thread beside each rank that sleeps until random moments and notes how late it woke up: late
// means that another program had the core.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/noise/reference_load.h"

#include "exec/clock.h"
#include "exec/launch/affinity.h"

#include <fcntl.h>
#include <pthread.h>
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

namespace dovetail::testbed {
namespace {

constexpr std::int64_t kWorkEveryNs = 50'000'000;
constexpr int kWorkSteps = 8'000;  // about 10 us
// So many moments tell what one of them costs.
constexpr std::int64_t kEnoughMoments = 64;
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

// What this clock says; 0 where it is the clock of a thread that ended.
std::int64_t read_clock(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return time.tv_sec * 1'000'000'000 + time.tv_nsec;
}

clockid_t processor_clock_of(pthread_t thread) {
  clockid_t clock = CLOCK_THREAD_CPUTIME_ID;
  static_cast<void>(pthread_getcpuclockid(thread, &clock));
  return clock;
}

// Of the calling thread, for others to read.
int open_schedstat() {
  const std::string path = "/proc/self/task/" + std::to_string(gettid()) + "/schedstat";
  return open(path.c_str(), O_RDONLY | O_CLOEXEC);
}

}  // namespace

RunQueueWait::RunQueueWait()
    : schedstat_(open_schedstat()), clock_(processor_clock_of(pthread_self())) {}

RunQueueWait::~RunQueueWait() {
  if (schedstat_ >= 0) close(schedstat_);
}

// The second of the three numbers in schedstat.
std::int64_t RunQueueWait::total() const {
  std::array<char, 96> text{};
  if (pread(schedstat_, text.data(), text.size() - 1, 0) <= 0) return 0;
  char* rest = nullptr;
  std::strtoll(text.data(), &rest, 10);
  return std::strtoll(rest, nullptr, 10);
}

std::int64_t RunQueueWait::since_last(std::int64_t now_ns, bool closely) {
  if (schedstat_ < 0) return 0;
  const std::int64_t ran_ns = read_clock(clock_);
  const std::int64_t past = now_ns - std::exchange(last_ns_, now_ns);
  const std::int64_t idle = past - (ran_ns - std::exchange(last_ran_ns_, ran_ns));
  // What it did not run it slept or stood in the queue.
  if (!closely && static_cast<double>(idle) <= kOwnWaits * static_cast<double>(past)) {
    passed_over_ += std::max<std::int64_t>(0, idle);
    return 0;
  }
  const std::int64_t waited = total();
  const std::int64_t others_ran = read_clock(CLOCK_PROCESS_CPUTIME_ID) - ran_ns;
  const std::int64_t queued = waited - std::exchange(last_total_, waited);
  const std::int64_t behind_others = others_ran - std::exchange(last_others_ran_, others_ran);
  // What the others ran while it was passed over is in both.
  return std::max<std::int64_t>(0,
                                queued - std::max(std::exchange(passed_over_, 0), behind_others));
}

ReferenceLoad::ReferenceLoad(std::uint64_t seed)
    : thread_([this, seed] { watch(seed); }), clock_(processor_clock_of(thread_.native_handle())) {}

ReferenceLoad::~ReferenceLoad() {
  done_ = true;
  thread_.join();
}

void ReferenceLoad::watch(std::uint64_t seed) {
  std::string warning = exec::launch::use_realtime_priority(exec::launch::RealTime::ReferenceLoad);
  if (!warning.empty()) static_cast<void>(exec::launch::ask_for_quick_wakeups());
  {
    const std::lock_guard lock(mutex_);
    warning_ = std::move(warning);
    core_ = sched_getcpu();
    ticks_.reserve(1 << 18);  // a quarter of an hour and more; pages are taken as they fill
  }
  PreemptionSampler moments(seed, exec::now_ns());
  waiting_.since_last(exec::now_ns(), false);
  const std::int64_t ran_before_ns = read_clock(CLOCK_THREAD_CPUTIME_ID);
  std::uint64_t value = 1;
  std::int64_t seen = 0;
  std::int64_t next_work_ns = 0;
  bool was_late = false;  // then the wait of the rank's thread has not been counted yet
  while (!done_) {
    sleep_until(moments.due_ns());
    const std::int64_t woke_ns = exec::now_ns();
    const std::int64_t waited_ns = waiting_.since_last(woke_ns, was_late);
    std::int64_t work_ns = 0;
    if (woke_ns >= next_work_ns) {
      const std::int64_t start_ns = exec::now_ns();
      value = known_work(value);
      const std::int64_t end_ns = exec::now_ns();
      work_ns = end_ns - start_ns + static_cast<std::int64_t>(value == 0);
      next_work_ns = end_ns + kWorkEveryNs;
      if (seen >= kEnoughMoments) {
        const std::int64_t ran_ns = read_clock(CLOCK_THREAD_CPUTIME_ID) - ran_before_ns;
        moments.costs(static_cast<double>(ran_ns) / static_cast<double>(seen));
      }
    }
    ++seen;
    const Tick tick = moments.woke(woke_ns, waited_ns, work_ns);
    was_late = is_late(tick);
    const std::lock_guard lock(mutex_);
    ticks_.push_back(tick);
  }
}

Duration ReferenceLoad::cost() const { return Duration(read_clock(clock_)); }

traces::CoreRecord ReferenceLoad::record(std::int64_t begin_ns, std::int64_t end_ns) const {
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
  traces::CoreRecord record = record_of(ticks, begin_ns, end_ns);
  record.core = core;
  return record;
}

std::string ReferenceLoad::warning() const {
  const std::lock_guard lock(mutex_);
  return warning_;
}

std::vector<bool> disturbed_steps(const exec::Exchange& exchange,
                                  std::span<const exec::Timing> timings,
                                  const traces::CoreRecord& record, std::int64_t begin_ns) {
  struct Window {
    std::int64_t start = std::numeric_limits<std::int64_t>::max();
    std::int64_t end = 0;
  };
  std::map<std::int32_t, Window> windows;  // of the compute stream
  for (const exec::Timing& timing : timings) {
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

traces::Disturbances share_records(const exec::Exchange& exchange, const traces::CoreRecord& mine) {
  std::vector<std::int64_t> numbers = {mine.core, mine.watched.count(),
                                       std::llround(mine.slowdown * kMillion),
                                       mine.quickest.count(), std::llround(mine.unseen * kMillion)};
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
                                 .quickest = Duration(of_rank.at(3)),
                                 .unseen = static_cast<double>(of_rank.at(4)) / kMillion};
    for (std::size_t i = 5; i + 1 < of_rank.size(); i += 2) {
      record.taken.push_back({.start = Duration(of_rank[i]), .length = Duration(of_rank[i + 1])});
    }
    all.push_back(std::move(record));
  }
  return all;
}

}  // namespace dovetail::testbed

// From the compute stream and the collectives backwards: what each of them stood still for, and so on.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/side_work.h"

#include "base/decimal.h"
#include "recordings/names.h"
#include "traces/intervals.h"

#include <algorithm>
#include <map>
#include <utility>

namespace dovetail::imports {
namespace {

constexpr Duration kStallTolerance = std::chrono::microseconds(4);
constexpr Duration kBehindStall = std::chrono::microseconds(15);  // after what it waited for
constexpr Duration kBehindLaunch = std::chrono::microseconds(20);

class SideWorkFinder {
 public:
  SideWorkFinder(const Recording& trace, RankTimeline& line) : trace_(trace), line_(line) {}

  void find() {
    for (GpuWork& work : line_.works) {
      work.is_aside = work.collective == kNone && work.stream != line_.compute_stream;
    }
    if (std::ranges::none_of(line_.works, &GpuWork::is_aside)) return;
    order_works();
    find_host();
    for (std::size_t w = 0; w < line_.works.size(); ++w) {
      if (!line_.works[w].is_aside) open_.push_back(static_cast<std::int32_t>(w));
    }
    // At the end of the trace nothing follows that could have stood still.
    for (const std::int32_t number : waits_) {
      if (call(number).kind != CallKind::Blocking) continue;
      const std::int32_t cause = awaited_by(call(number));
      if (cause != kNone && !computes_at(work(cause).end)) want(cause);
    }
    while (!open_.empty()) {
      const std::int32_t next = open_.back();
      open_.pop_back();
      follow(next);
    }
    set_aside_calls();
  }

 private:
  [[nodiscard]] GpuWork& work(std::int32_t number) const {
    return line_.works[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] const HostCall& call(std::int32_t number) const {
    return line_.calls[static_cast<std::size_t>(number)];
  }

  void order_works() {
    std::vector<std::int32_t> last(line_.streams.size(), kNone);
    for (std::size_t w = 0; w < line_.works.size(); ++w) {
      const GpuWork& now = line_.works[w];
      by_end_.emplace_back(now.end, static_cast<std::int32_t>(w));
      std::int32_t& before = last[static_cast<std::size_t>(now.stream)];
      before_.push_back(before);
      if (before == kNone || now.end >= work(before).end) before = static_cast<std::int32_t>(w);
    }
    std::ranges::sort(by_end_);
    for (const GpuWork& now : line_.works) {
      if (now.stream == line_.compute_stream) computing_.push_back({now.start, now.end});
    }
    computing_ = traces::union_of(std::move(computing_));
  }

  // Threads that launch what computes, and their calls that may wait.
  void find_host() {
    launches_step_.assign(trace_.threads.size(), 0);
    for (const GpuWork& now : line_.works) {
      if (!now.is_aside && now.launch != kNone) {
        launches_step_[static_cast<std::size_t>(call(now.launch).thread)] = 1;
      }
    }
    for (std::size_t c = 0; c < line_.calls.size(); ++c) {
      const HostCall& now = line_.calls[c];
      if (launches_step_[static_cast<std::size_t>(now.thread)] == 0) continue;
      if (now.kind == CallKind::Blocking || trace_.is(now.event, Is::Copy)) {
        waits_.push_back(static_cast<std::int32_t>(c));
      }
    }
  }

  [[nodiscard]] bool computes_at(Instant moment) const {
    const auto after = std::ranges::lower_bound(computing_, moment, {}, &traces::Interval::start);
    return after != computing_.begin() && std::prev(after)->end > moment;
  }

  void want(std::int32_t number) {
    GpuWork& found = work(number);
    if (!std::exchange(found.is_aside, false)) return;
    open_.push_back(number);
  }

  void follow(std::int32_t number) {
    const GpuWork& now = work(number);
    const std::int32_t before = before_[static_cast<std::size_t>(number)];
    const Instant free = before == kNone ? Instant::min() : work(before).end;
    if (before != kNone && free + kBehindLaunch >= now.start) want(before);
    if (free + kStallTolerance >= now.start) return;
    const bool is_late = now.launch != kNone && call(now.launch).end + kBehindLaunch >= now.start;
    if (!is_late) return want_ended(number, std::max(free, now.start - kBehindStall));
    want_awaited(now, free);
  }

  // What ended last before a piece of work began, on another stream.
  void want_ended(std::int32_t number, Instant from) {
    const GpuWork& now = work(number);
    auto at = std::ranges::upper_bound(by_end_, now.start + kStallTolerance, {},
                                       &std::pair<Instant, std::int32_t>::first);
    while (at != by_end_.begin()) {
      --at;
      if (at->first < from) return;
      if (work(at->second).stream == now.stream || at->second == number) continue;
      return want(at->second);
    }
  }

  // What the host waited for while the stream was empty.
  void want_awaited(const GpuWork& now, Instant free) {
    auto at = std::ranges::lower_bound(waits_, now.launch);
    while (at != waits_.begin()) {
      --at;
      const HostCall& waits = call(*at);
      if (waits.end <= free) return;
      const std::int32_t cause = awaited_by(waits);
      if (cause != kNone) return want(cause);
    }
  }

  // Of a copy that the host makes itself that copy, else what ended last before it returned, on the stream that it names.
  [[nodiscard]] std::int32_t awaited_by(const HostCall& waits) const {
    if (waits.first_work != kNone && waits.kind != CallKind::Blocking) {
      const GpuWork& own = work(waits.first_work);
      return own.end <= waits.end + kStallTolerance ? waits.first_work : kNone;
    }
    auto at = std::ranges::upper_bound(by_end_, waits.end + line_.clock.error, {},
                                       &std::pair<Instant, std::int32_t>::first);
    while (at != by_end_.begin()) {
      --at;
      if (at->first <= waits.start) return kNone;
      const bool is_named =
          waits.waits_on_stream == kNone || work(at->second).stream == waits.waits_on_stream;
      if (is_named) return at->second;
    }
    return kNone;
  }

  void set_aside_calls() {
    std::vector<char> launches(trace_.threads.size(), 0), only_aside(trace_.threads.size(), 1);
    for (const GpuWork& now : line_.works) {
      if (now.launch == kNone) continue;
      const auto thread = static_cast<std::size_t>(call(now.launch).thread);
      launches[thread] = 1;
      if (!now.is_aside) only_aside[thread] = 0;
    }
    for (HostCall& now : line_.calls) {
      const auto thread = static_cast<std::size_t>(now.thread);
      now.is_aside = launches[thread] != 0 && only_aside[thread] != 0;
    }
  }

  const Recording& trace_;
  RankTimeline& line_;
  std::vector<std::pair<Instant, std::int32_t>> by_end_;  // works
  std::vector<traces::Interval> computing_;               // of the compute stream
  std::vector<std::int32_t> before_;  // of each work, the one before it on its stream
  std::vector<char> launches_step_;   // by thread
  std::vector<std::int32_t> waits_;   // calls
  std::vector<std::int32_t> open_;    // works of the step whose own waits are not known yet
};

}  // namespace

void find_side_work(const Recording& trace, RankTimeline& line) {
  if (line.compute_stream == kNone || line.on_cpu || line.collectives.empty()) return;
  SideWorkFinder(trace, line).find();
}

std::vector<std::string> side_work_in_words(const Recording& trace, const RankTimeline& line) {
  std::map<std::int32_t, std::map<std::int32_t, Duration>> by_stream;  // and name
  for (const GpuWork& work : line.works) {
    if (!work.is_aside || work.step == kNone) continue;
    const RecordedEvent& event = trace.events[static_cast<std::size_t>(work.event)];
    by_stream[work.stream][event.name] += work.end - work.start;
  }
  Duration steps{};
  for (const TracedStep& step : line.steps) steps += step.end - step.start;
  std::vector<std::string> lines;
  for (const auto& [stream, names] : by_stream) {
    Duration all{};
    for (const auto& [name, time] : names) all += time;
    if (all * 100 < steps) continue;
    const auto most = std::ranges::max_element(names, {}, [](const auto& n) { return n.second; });
    const Duration a_step = all / std::max<std::int64_t>(1, std::ssize(line.steps));
    const std::string& name = trace.names[static_cast<std::size_t>(most->first)];
    lines.push_back("stream " + std::to_string(line.streams[static_cast<std::size_t>(stream)].id) +
                    " works " + milliseconds(a_step, 2) + " a step (" + name.substr(0, 60) +
                    ") and nothing of the step waits for it: it hides no communication and is no "
                    "compute");
  }
  return lines;
}

}  // namespace dovetail::imports

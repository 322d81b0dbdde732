// Joins the events of one rank: GPU work with the call that launched it, and calls with the step that
// they belong to.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/rank_timeline.h"

#include "base/statistics.h"
#include "recordings/names.h"
#include "recordings/timeline/collectives.h"
#include "recordings/timeline/cpu_works.h"
#include "recordings/timeline/iterations.h"
#include "recordings/timeline/side_work.h"
#include "recordings/timeline/unknowns.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace dovetail::imports {
namespace {

bool is_gpu(EventKind kind) {
  return kind == EventKind::Kernel || kind == EventKind::Memcpy || kind == EventKind::Memset;
}

CallKind call_kind(const Recording& trace, const RecordedEvent& event) {
  if (trace.is(event, Is::BlockingCall)) return CallKind::Blocking;
  if (trace.is(event, Is::WaitEventCall)) return CallKind::WaitEvent;
  return trace.is(event, Is::LaunchCall) ? CallKind::Launch : CallKind::Other;
}

// Steps of works, and places of collectives, once it is known which steps there are.
void number_works(RankTimeline& line) {
  for (GpuWork& work : line.works) work.step = kNone;
  for (std::size_t s = 0; s < line.steps.size(); ++s) {
    for (const std::int32_t number : line.steps[s].works) {
      line.works[static_cast<std::size_t>(number)].step = static_cast<std::int32_t>(s);
    }
  }
  std::vector<std::int32_t> seen(line.steps.size(), 0);
  for (TracedCollective& collective : line.collectives) {
    const std::int32_t step = line.works[static_cast<std::size_t>(collective.work)].step;
    collective.place = step == kNone ? 0 : seen[static_cast<std::size_t>(step)]++;
  }
}

class Joiner {
 public:
  Joiner(const Recording& trace, const JoinOptions& options) : trace_(trace), step_(options.step) {
    for (const std::string& part : options.collective_patterns)
      patterns_.push_back(in_lower_case(part));
    takes_args_ = patterns_.empty();
    if (patterns_.empty()) patterns_ = {"nccl", "rccl", "msccl"};
  }

  RankTimeline join() {
    line_.rank = trace_.rank;
    line_.world_size = trace_.world_size;
    if (!trace_.events.empty()) line_.origin_ns = trace_.events.front().start_ns;
    find_parents();
    find_calls();
    find_works();
    line_.unrecognised.unread = trace_.unread;
    if (line_.works.empty()) {
      find_signs_of_a_device(trace_, line_);
      if (!line_.unrecognised.tells_of_device()) add_cpu_works(trace_, line_);
    }
    if (!line_.on_cpu) {
      replace_impossible_launches();
      put_on_one_clock();
      leave_out_misplaced();
      clip_overlong();
      find_compute_stream();
      find_side_work(trace_, line_);
    }
    describe_collectives(trace_, line_);
    find_steps(step_);
    assign_steps();
    leave_out_incomplete();
    leave_out_late_first();
    number_works(line_);
    say_what_is_unknown(trace_, line_);
    line_.works.shrink_to_fit();
    line_.calls.shrink_to_fit();
    return std::move(line_);
  }

 private:
  [[nodiscard]] const RecordedEvent& event(std::int32_t index) const {
    return trace_.events[static_cast<std::size_t>(index)];
  }
  [[nodiscard]] std::string_view name(std::int32_t index) const {
    return trace_.name_of(event(index));
  }

  // Operators and annotations of a thread nest; a stack per thread finds the parent of each event.
  void find_parents() {
    line_.parent.assign(trace_.events.size(), kNone);
    std::vector<std::vector<std::int32_t>> open(trace_.threads.size());
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const RecordedEvent& now = trace_.events[i];
      if (is_gpu(now.kind) || now.kind == EventKind::Synchronisation) continue;
      auto& stack = open[static_cast<std::size_t>(now.thread)];
      while (!stack.empty() && event(stack.back()).end_ns() <= now.start_ns) stack.pop_back();
      if (!stack.empty()) line_.parent[i] = stack.back();
      if (now.kind != EventKind::RuntimeCall) stack.push_back(static_cast<std::int32_t>(i));
    }
  }

  // Calls of the threads that launch anything; a watchdog's polling is no work of the step.
  void find_calls() {
    std::vector<char> launches(trace_.threads.size(), 0);
    for (const RecordedEvent& now : trace_.events) {
      if (now.kind == EventKind::RuntimeCall && call_kind(trace_, now) == CallKind::Launch) {
        launches[static_cast<std::size_t>(now.thread)] = 1;
      }
    }
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const RecordedEvent& now = trace_.events[i];
      if (now.kind != EventKind::RuntimeCall ||
          launches[static_cast<std::size_t>(now.thread)] == 0) {
        continue;
      }
      HostCall call;
      call.start = line_.instant(now.start_ns);
      call.end = line_.instant(now.end_ns());
      call.event = static_cast<std::int32_t>(i);
      call.thread = now.thread;
      call.kind = call_kind(trace_, now);
      call.waits_on_device = trace_.is(now, Is::DeviceWait);
      // Driver calls repeat the correlation of the runtime call around them, which comes first.
      if (now.correlation >= 0) {
        call_of_.emplace(now.correlation, static_cast<std::int32_t>(line_.calls.size()));
      }
      line_.calls.push_back(call);
    }
  }

  // CUPTI's records of synchronisation have the correlation of the call, and the stream that it waited for.
  void find_awaited() {
    for (const RecordedEvent& now : trace_.events) {
      if (now.kind != EventKind::Synchronisation) continue;
      const auto found = call_of_.find(now.correlation);
      if (found == call_of_.end()) continue;
      HostCall& call = line_.calls[static_cast<std::size_t>(found->second)];
      if (trace_.is(now, Is::StreamWait)) {
        const auto stream = streams_.find(now.stream);
        if (stream != streams_.end()) call.waits_on_stream = stream->second;
      } else if (now.sync != kNone) {
        const Synchronisation& sync = trace_.syncs[static_cast<std::size_t>(now.sync)];
        const auto stream = streams_.find(static_cast<std::int32_t>(sync.waits_on_stream));
        const auto record = call_of_.find(sync.waits_on_record);
        if (stream == streams_.end() || record == call_of_.end()) continue;
        call.waits_on_stream = stream->second;
        call.waits_on_record = record->second;
      }
    }
  }

  bool is_collective(const RecordedEvent& kernel) {
    if (takes_args_ && kernel.collective != kNone) {
      const CollectiveArgs& args = trace_.collectives[static_cast<std::size_t>(kernel.collective)];
      if (collective_kind(args.kind) != CollectiveKind::Unknown) return true;
    }
    return is_named_as_collective(kernel.name);
  }

  bool is_named_as_collective(std::int32_t name_number) {
    const auto known = is_collective_.find(name_number);
    if (known != is_collective_.end()) return known->second;
    const std::string text = in_lower_case(trace_.names[static_cast<std::size_t>(name_number)]);
    const bool is = std::ranges::any_of(
        patterns_, [&](const std::string& part) { return contains(text, part); });
    is_collective_.emplace(name_number, is);
    return is;
  }

  std::int32_t stream_number(std::int32_t id) {
    const auto next = static_cast<std::int32_t>(line_.streams.size());
    const auto [entry, added] = streams_.emplace(id, next);
    if (added) line_.streams.push_back({id, false});
    return entry->second;
  }

  // The operator of a collective that launched this itself, without another operator between: record_param_comms, or what
  // stands for it. kNone: none did.
  [[nodiscard]] std::int32_t collective_around(const RecordedEvent& gpu) const {
    const auto call = call_of_.find(gpu.correlation);
    if (gpu.correlation < 0 || call == call_of_.end()) return kNone;
    std::int32_t at = line_.calls[static_cast<std::size_t>(call->second)].event;
    std::int32_t found = kNone;
    while ((at = line_.parent[static_cast<std::size_t>(at)]) != kNone) {
      if (trace_.is(at, Is::Comms)) return at;
      if (!trace_.is(at, Is::LibraryRange) && !trace_.is(at, Is::C10d)) return found;
      if (found == kNone) found = at;
    }
    return found;
  }

  // Collectives that run as kernels; their operators' copies are staging.
  void find_operators_of_kernels() {
    for (const RecordedEvent& now : trace_.events) {
      if (now.kind != EventKind::Kernel || !is_collective(now)) continue;
      const std::int32_t around = collective_around(now);
      if (around != kNone) copied_by_.emplace(around, kNone);
    }
  }

  // Copies between devices move data to another rank. Those that a collective's operator launches itself are that collective
  // done by copy engines: all of one operator are one piece of work.
  [[nodiscard]] bool is_copied_collective(const RecordedEvent& now, std::int32_t around) const {
    if (now.kind == EventKind::Kernel) return false;
    if (around == kNone) return trace_.is(now, Is::PeerCopy);
    const auto known = copied_by_.find(around);
    return known == copied_by_.end() || known->second != kNone;
  }

  void add_collective(GpuWork& work, std::int32_t number) {
    work.collective = static_cast<std::int32_t>(line_.collectives.size());
    line_.streams[static_cast<std::size_t>(work.stream)].communicates = true;
    TracedCollective collective;
    collective.work = number;
    line_.collectives.push_back(collective);
  }

  void find_works() {
    copied_by_.clear();
    find_operators_of_kernels();
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const RecordedEvent& now = trace_.events[i];
      if (!is_gpu(now.kind) || misplaced_.contains(static_cast<std::int32_t>(i))) continue;
      const std::int32_t around = now.kind == EventKind::Kernel ? kNone : collective_around(now);
      const bool is_copied = is_copied_collective(now, around);
      if (const auto first = copied_by_.find(around);
          is_copied && around != kNone && first != copied_by_.end()) {
        GpuWork& whole = line_.works[static_cast<std::size_t>(first->second)];
        whole.end = std::max(whole.end, line_.instant(now.end_ns()));
        continue;
      }
      GpuWork work;
      work.start = line_.instant(now.start_ns);
      work.end = line_.instant(now.end_ns());
      work.event = static_cast<std::int32_t>(i);
      work.stream = stream_number(now.stream);
      const auto number = static_cast<std::int32_t>(line_.works.size());
      if (const auto found = call_of_.find(now.correlation);
          now.correlation >= 0 && found != call_of_.end()) {
        work.launch = found->second;
        HostCall& call = line_.calls[static_cast<std::size_t>(work.launch)];
        if (call.first_work == kNone) call.first_work = number;
        call.kind = call.kind == CallKind::Other ? CallKind::Launch : call.kind;
      }
      if (is_copied || (now.kind == EventKind::Kernel && is_collective(now))) {
        add_collective(work, number);
        if (is_copied && around != kNone) copied_by_.emplace(around, number);
      }
      line_.works.push_back(work);
    }
    find_awaited();
  }

  std::int32_t step_at(Instant moment) const {
    const auto after = std::ranges::upper_bound(line_.steps, moment, {}, &TracedStep::start);
    if (after == line_.steps.begin()) return kNone;
    const auto step = after - 1;
    return moment < step->end ? static_cast<std::int32_t>(step - line_.steps.begin()) : kNone;
  }

  [[nodiscard]] const GpuWork& work(std::int32_t number) const {
    return line_.works[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] const HostCall& launch_of(const GpuWork& work) const {
    return line_.calls[static_cast<std::size_t>(work.launch)];
  }

  // --- the GPU's times -------------------------------------------------------------------------------

  [[nodiscard]] std::vector<LaunchedWork> launched_works() const {
    constexpr Duration kIdle = std::chrono::microseconds(20);
    constexpr Duration kLongCall = std::chrono::microseconds(50);  // it does more than launch
    std::vector<LaunchedWork> launched;
    std::optional<Instant> busy;
    for (const GpuWork& now : line_.works) {
      if (now.launch != kNone) {
        const HostCall& call = launch_of(now);
        const bool idle = busy && *busy + kIdle <= now.start && call.end - call.start < kLongCall;
        launched.push_back({call.start, now.start, idle});
      }
      busy = std::max(busy.value_or(now.end), now.end);
    }
    return launched;
  }

  // Where launches that found the GPU idle agree with the clock, a piece of work that begins before its launch is one odd record, and
  // no clock: it begins with its launch. One that ends before it, too, was launched by another call than the file names: it counts
  // as launched with the work before it on its stream.
  void replace_impossible_launches() {
    constexpr Duration kImpossible = std::chrono::microseconds(50);
    constexpr Duration kLost = std::chrono::milliseconds(1);  // leave_out_misplaced
    constexpr Duration kIdleLatency = std::chrono::microseconds(100);
    std::int64_t idle = 0;
    std::int64_t agree = 0;
    for (const LaunchedWork& launched : launched_works()) {
      if (!launched.was_idle) continue;
      ++idle;
      const Duration latency = launched.work - launched.call;
      agree += latency >= Duration{} && latency <= kIdleLatency ? 1 : 0;
    }
    if (agree < 2 || agree * 4 < idle * 3) return;
    std::int64_t odd = 0;
    std::vector<std::int32_t> before(line_.streams.size(), kNone);  // launches
    for (std::size_t w = 0; w < line_.works.size(); ++w) {
      GpuWork& now = line_.works[w];
      std::int32_t& last = before[static_cast<std::size_t>(now.stream)];
      const Duration early = now.launch == kNone ? Duration{} : launch_of(now).start - now.start;
      const bool is_odd = early > kImpossible && early <= kLost;
      if (is_odd && now.end > launch_of(now).end) {
        now.start = launch_of(now).end;
        ++odd;
      } else if (is_odd && last != kNone) {
        HostCall& named = line_.calls[static_cast<std::size_t>(now.launch)];
        if (named.first_work == static_cast<std::int32_t>(w)) named.first_work = kNone;
        now.launch = last;
        ++odd;
      }
      last = now.launch;
    }
    if (odd == 0) return;
    line_.notes.push_back(
        std::to_string(odd) +
        (odd == 1 ? " piece of GPU work begins" : " pieces of GPU work begin") +
        " before its launch, though launches onto an idle GPU agree with the "
        "clock: each counts from its launch, or as launched with the work before it");
  }

  void put_on_one_clock() {
    line_.clock = estimate_clock(launched_works(), awaited());
    if (!line_.clock.is_off()) return;
    for (GpuWork& now : line_.works) {
      now.start += line_.clock.at(now.start);
      now.end += line_.clock.at(now.end);
    }
    say_clock();
  }

  // Work that begins long before its launch, though hardly any does, has lost its time (0 in the file): the rest is joined
  // again without it.
  void leave_out_misplaced() {
    constexpr Duration kEarly = std::chrono::milliseconds(1);
    std::int64_t launched = 0;
    for (const GpuWork& now : line_.works) {
      if (now.launch == kNone) continue;
      ++launched;
      if (now.start + kEarly < launch_of(now).start) misplaced_.insert(now.event);
    }
    if (misplaced_.empty()) return;
    if (std::ssize(misplaced_) * 100 > std::max<std::int64_t>(launched, 100)) {
      misplaced_.clear();
      return;
    }
    line_.works.clear();
    line_.collectives.clear();
    line_.streams.clear();
    line_.notes.clear();
    streams_.clear();
    for (HostCall& call : line_.calls) {
      call.first_work = call.waits_on_stream = call.waits_on_record = kNone;
    }
    find_works();
    put_on_one_clock();
    line_.notes.push_back(
        std::to_string(misplaced_.size()) +
        (misplaced_.size() == 1 ? " piece of GPU work begins" : " pieces of GPU work begin") +
        " before its launch by more than a millisecond: left out");
  }

  // Calls that say what they wait for: a whole device, a stream that the trace names, their own copy. Work that such a
  // call waits for was launched before it.
  [[nodiscard]] std::vector<AwaitedWork> awaited() const {
    std::vector<AwaitedWork> result;
    std::vector<std::pair<Instant, std::int32_t>> by_launch;
    for (std::size_t w = 0; w < line_.works.size(); ++w) {
      if (line_.works[w].launch == kNone) continue;
      by_launch.emplace_back(launch_of(line_.works[w]).start, static_cast<std::int32_t>(w));
    }
    std::ranges::sort(by_launch);
    std::vector<std::optional<Instant>> ends(line_.streams.size());
    std::size_t next = 0;
    for (const HostCall& call : line_.calls) {
      for (; next < by_launch.size() && by_launch[next].first < call.start; ++next) {
        const GpuWork& now = work(by_launch[next].second);
        auto& end = ends[static_cast<std::size_t>(now.stream)];
        end = std::max(end.value_or(now.end), now.end);
      }
      if (call.kind != CallKind::Blocking) continue;
      std::optional<Instant> end;
      if (call.waits_on_device) {
        for (const auto& of_stream : ends) {
          if (of_stream) end = std::max(end.value_or(*of_stream), *of_stream);
        }
      } else if (call.waits_on_stream != kNone && call.waits_on_record == kNone) {
        end = ends[static_cast<std::size_t>(call.waits_on_stream)];
      }
      if (end) result.push_back({call.end, *end});
    }
    return result;
  }

  static std::string in_us(Duration time) {
    const std::int64_t us = time / std::chrono::microseconds(1);
    if (us < 10'000) return std::to_string(us) + " us";
    return std::to_string(us / 1000) + "." + std::to_string(us / 100 % 10) + " ms";
  }

  void say_clock() {
    const GpuClock& clock = line_.clock;
    const bool ahead = clock.offset < Duration{};
    std::string text = "the GPU's times are " + in_us(ahead ? -clock.offset : clock.offset) +
                       (ahead ? " ahead of" : " behind") +
                       " the host's in the file, give or take " + in_us(clock.error);
    if (clock.rate != 0) {
      text += ", and drift by " + std::to_string(std::llround(std::abs(clock.rate) * 1e6)) +
              " us a second";
    }
    line_.notes.push_back(text + " (no kernel begins before its launch" +
                          (clock.idle_launches == 0 ? ""
                                                    : "; " + std::to_string(clock.idle_launches) +
                                                          " launches found the GPU idle") +
                          "): they count as corrected");
  }

  // One that ends before the piece of work ahead of it on its stream does, or far inside it, shows that that end is wrong.
  // The overlap of kernels that start early (programmatic launches) is shorter, and they end later.
  void clip_overlong() {
    constexpr Duration kInside = std::chrono::microseconds(20);
    constexpr Duration kAnyway = std::chrono::milliseconds(1);
    std::vector<std::int32_t> open(line_.streams.size(), kNone);
    std::int64_t clipped = 0;
    Duration most{};
    for (std::size_t w = 0; w < line_.works.size(); ++w) {
      GpuWork& now = line_.works[w];
      std::int32_t& before = open[static_cast<std::size_t>(now.stream)];
      if (before != kNone) {
        GpuWork& last = line_.works[static_cast<std::size_t>(before)];
        const bool one_graph = last.launch != kNone && last.launch == now.launch;
        const Duration overlap = last.end - now.start;
        const bool wrong = overlap > kAnyway || (overlap > kInside && now.end <= last.end);
        if (!one_graph && wrong) {
          // Its start may lie behind: it was put behind its launch.
          last.end = std::max(last.start, now.start);
          ++clipped;
          most = std::max(most, overlap);
        }
      }
      if (before == kNone || now.end >= work(before).end) before = static_cast<std::int32_t>(w);
    }
    for (const std::int32_t last : open) clip_last(last);
    if (clipped == 0) return;
    line_.notes.push_back(std::to_string(clipped) +
                          (clipped == 1 ? " piece of GPU work ends" : " pieces of GPU work end") +
                          " after the next one on the stream began, by up to " + in_us(most) +
                          ": each counts until there");
  }

  // Nothing follows the last kernel of a stream. One that takes twenty times and a millisecond longer than any other of its
  // name and grid takes what those do. A collective may wait for as long.
  void clip_last(std::int32_t last) {
    if (last == kNone) return;
    GpuWork& now = line_.works[static_cast<std::size_t>(last)];
    const Duration own = now.end - now.start;
    const RecordedEvent& kernel = event(now.event);
    const bool can_be_wrong = kernel.kind == EventKind::Kernel && now.collective == kNone;
    if (own < std::chrono::milliseconds(1) || !can_be_wrong) return;
    std::vector<Duration> others;
    for (const GpuWork& work : line_.works) {
      const RecordedEvent& other = event(work.event);
      if (other.name != kernel.name || work.event == now.event) continue;
      if (grid_of(other) == grid_of(kernel)) others.push_back(work.end - work.start);
    }
    if (others.size() < 2) return;
    const Duration longest = std::ranges::max(others);
    if (own < longest * 20 || own < longest + std::chrono::milliseconds(1)) return;
    const Duration usual = median(std::move(others));
    now.end = now.start + usual;
    line_.notes.push_back("the last kernel of stream " +
                          std::to_string(line_.streams[static_cast<std::size_t>(now.stream)].id) +
                          " takes " + in_us(own) + ", others of its name and grid " + in_us(usual) +
                          ": it counts as one of them");
  }

  [[nodiscard]] std::array<std::int32_t, 3> grid_of(const RecordedEvent& kernel) const {
    if (kernel.kernel == kNone) return {};
    return trace_.kernels[static_cast<std::size_t>(kernel.kernel)].grid;
  }

  // The stream with most time of kernels that are no collectives: of those that autograd launched, where it launched any. A
  // loader's augmentations may take longer than the step.
  void find_compute_stream() {
    std::vector<Duration> time(line_.streams.size());
    std::vector<Duration> of_backward(line_.streams.size());
    for (const GpuWork& now : line_.works) {
      if (now.collective != kNone || event(now.event).kind != EventKind::Kernel) continue;
      time[static_cast<std::size_t>(now.stream)] += now.end - now.start;
      if (now.launch == kNone) continue;
      const std::int32_t around = line_.parent[static_cast<std::size_t>(launch_of(now).event)];
      if (enclosing(trace_, line_, around, Is::EngineFunction) != kNone) {
        of_backward[static_cast<std::size_t>(now.stream)] += now.end - now.start;
      }
    }
    const auto is_some = [](Duration sum) { return sum > Duration{}; };
    if (std::ranges::any_of(of_backward, is_some)) time = std::move(of_backward);
    const auto most = std::ranges::max_element(time);
    if (most == time.end() || *most <= Duration{}) return;
    line_.compute_stream = static_cast<std::int32_t>(most - time.begin());
  }

  // --- steps -------------------------------------------------------------------------------------------

  void find_steps(const std::string& asked) {
    Iterations found = find_iterations(trace_, line_, asked);
    line_.steps = std::move(found.steps);
    line_.is_whole_trace = found.is_whole_trace;
    line_.passes = std::move(found.passes);
    line_.accumulation = found.accumulation;
    std::vector<std::string>& notes = found.is_whole_trace ? line_.unknowns : line_.notes;
    notes.insert(notes.end(), found.notes.begin(), found.notes.end());
  }

  void assign_steps() {
    for (std::size_t i = 0; i < line_.works.size(); ++i) {
      GpuWork& work = line_.works[i];
      if (trace_.steps_are_on_device) {
        work.step = step_at(work.start);
      } else if (work.launch != kNone) {
        work.step = step_at(launch_of(work).start);
      } else if (line_.is_whole_trace) {
        work.step = 0;
      }
      if (work.step == kNone) continue;
      line_.steps[static_cast<std::size_t>(work.step)].works.push_back(
          static_cast<std::int32_t>(i));
    }
    if (trace_.steps_are_on_device) {
      launch_at_once();
      wait_between_steps();
    }
    for (TracedStep& step : line_.steps) {
      std::ranges::stable_sort(step.works, {}, [&](std::int32_t w) {
        const GpuWork& work = line_.works[static_cast<std::size_t>(w)];
        return work.launch == kNone ? work.start : launch_of(work).start;
      });
    }
  }

  // XLA's executables issue the kernels of a step from C++, or as one graph, ahead of the GPU: each counts as launched with the first of
  // its step. So a host that is late is seen between steps only; gaps within one are kept as recorded.
  void launch_at_once() {
    for (const TracedStep& step : line_.steps) {
      const std::int32_t first = first_launch(step);
      for (const std::int32_t number : step.works) {
        GpuWork& now = line_.works[static_cast<std::size_t>(number)];
        if (now.launch != kNone) now.launch = first;
      }
    }
  }

  // JAX's host waits for a step's results in no call that the trace has. Where it launches the next step within 200 us of the end of this
  // one, it is taken to have waited for that.
  void wait_between_steps() {
    constexpr Duration kSoon = std::chrono::microseconds(200);
    if (const std::int32_t first = first_launch(line_.steps.front()); first != kNone) {
      Instant& begin = line_.steps.front().start;
      begin = std::min(begin, line_.calls[static_cast<std::size_t>(first)].start);
    }
    std::vector<std::pair<std::int32_t, HostCall>> waits;  // before that call
    for (std::size_t s = 0; s + 1 < line_.steps.size(); ++s) {
      const std::int32_t launch = first_launch(line_.steps[s]);
      const std::int32_t next = first_launch(line_.steps[s + 1]);
      if (launch == kNone || next == kNone || line_.steps[s].works.empty()) continue;
      const GpuWork* last = nullptr;
      for (const std::int32_t number : line_.steps[s].works) {
        if (last == nullptr || work(number).end > last->end) last = &work(number);
      }
      HostCall wait = line_.calls[static_cast<std::size_t>(launch)];
      const Instant then = line_.calls[static_cast<std::size_t>(next)].start;
      if (last->end <= wait.end || then < last->end || then > last->end + kSoon) continue;
      wait.start = wait.end;
      wait.end = last->end;
      wait.kind = CallKind::Blocking;
      wait.first_work = kNone;
      wait.waits_on_stream = last->stream;
      wait.waits_on_record = kNone;
      waits.emplace_back(launch + 1, wait);
    }
    insert_calls(waits);
  }

  [[nodiscard]] std::int32_t first_launch(const TracedStep& step) const {
    std::int32_t first = kNone;
    for (const std::int32_t number : step.works) {
      const std::int32_t launch = work(number).launch;
      if (launch != kNone && (first == kNone || launch < first)) first = launch;
    }
    return first;
  }

  // `added`: each before the call of that number, rising.
  void insert_calls(const std::vector<std::pair<std::int32_t, HostCall>>& added) {
    std::vector<HostCall> calls;
    std::vector<std::int32_t> now_at(line_.calls.size());
    auto next = added.begin();
    for (std::size_t c = 0; c <= line_.calls.size(); ++c) {
      for (; next != added.end() && next->first == static_cast<std::int32_t>(c); ++next) {
        calls.push_back(next->second);
      }
      if (c == line_.calls.size()) break;
      now_at[c] = static_cast<std::int32_t>(calls.size());
      calls.push_back(line_.calls[c]);
    }
    const auto move = [&](std::int32_t& call) {
      if (call != kNone) call = now_at[static_cast<std::size_t>(call)];
    };
    for (HostCall& call : calls) move(call.waits_on_record);
    for (GpuWork& work : line_.works) move(work.launch);
    for (auto& [correlation, call] : call_of_) move(call);
    line_.calls = std::move(calls);
  }

  // Launches of kernels by step, and those of them whose kernel is not in the file.
  struct Launches {
    std::int64_t all = 0, lost = 0;
    [[nodiscard]] double share() const {
      return all == 0 ? 0 : static_cast<double>(lost) / static_cast<double>(all);
    }
  };

  void leave_out_incomplete() {
    if (line_.works.empty() || line_.steps.size() < 2) return;
    std::vector<Launches> launches(line_.steps.size());
    // One host of JAX launches for all devices, of which this is one.
    const std::size_t calls = trace_.steps_are_on_device ? 0 : line_.calls.size();
    for (std::size_t c = 0; c < calls; ++c) {
      const HostCall& call = line_.calls[c];
      if (!trace_.is(call.event, Is::KernelLaunch)) continue;
      const auto of = call_of_.find(event(call.event).correlation);
      if (of == call_of_.end() || of->second != static_cast<std::int32_t>(c)) continue;
      const std::int32_t step = step_at(call.start);
      if (step == kNone) continue;
      ++launches[static_cast<std::size_t>(step)].all;
      launches[static_cast<std::size_t>(step)].lost += call.first_work == kNone ? 1 : 0;
    }
    double least = 1;
    for (std::size_t s = 0; s < launches.size(); ++s) {
      if (!line_.steps[s].works.empty()) least = std::min(least, launches[s].share());
    }
    // Some runtimes report calls without kernels in every step.
    constexpr double kMore = 0.05;
    std::vector<char> out(launches.size(), 0);
    for (std::size_t s = 0; s < launches.size(); ++s) {
      const TracedStep& step = line_.steps[s];
      const bool is_whole = launches[s].share() <= least + kMore || launches[s].lost == 1;
      if (!step.works.empty() && is_whole) continue;
      out[s] = 1;
      line_.notes.push_back("left out: " + step.name +
                            (launches[s].lost == 0
                                 ? ", which launched no GPU work"
                                 : ", which launched " + std::to_string(launches[s].all) +
                                       " kernels, " + std::to_string(launches[s].lost) +
                                       " of which are not in the file"));
    }
    if (std::ranges::count(out, 0) > 0) leave_out_steps(line_, out);
  }

  // How long the first piece of work of a step on the compute stream waited behind what the GPU had to do before.
  [[nodiscard]] Duration behind(const TracedStep& step) const {
    const GpuWork* first = nullptr;
    for (const std::int32_t number : step.works) {
      const GpuWork& now = work(number);
      if (now.stream != line_.compute_stream || now.launch == kNone) continue;
      if (first == nullptr || now.start < first->start) first = &now;
    }
    return first == nullptr ? Duration{} : first->start - launch_of(*first).end;
  }

  // The GPU was busy with older steps when the trace began and is not usually that far behind: what the first step took
  // is not what a step takes.
  void leave_out_late_first() {
    if (line_.steps.size() < 2 || line_.is_whole_trace) return;
    const TracedStep& first = line_.steps.front();
    const Duration late = behind(first);
    const Duration step = line_.steps[1].start - first.start;
    if (late * 20 < step || late < std::chrono::milliseconds(1)) return;
    std::vector<Duration> others;
    for (std::size_t s = 1; s < line_.steps.size(); ++s) others.push_back(behind(line_.steps[s]));
    std::ranges::sort(others);
    const bool is_usual = others[others.size() / 2] * 2 >= late;
    line_.notes.push_back("the GPU was " + in_us(late) + " behind the host when " + first.name +
                          " began, with work of before" +
                          (is_usual ? "" : ": that step is left out"));
    if (is_usual) return;
    std::vector<char> out(line_.steps.size(), 0);
    out.front() = 1;
    leave_out_steps(line_, out);
  }

  const Recording& trace_;
  std::string step_;  // name that was asked for
  RankTimeline line_;
  std::vector<std::string> patterns_;
  bool takes_args_ = true;  // kernels with args of a collective are collectives
  std::unordered_map<std::int64_t, std::int32_t> call_of_;  // by correlation
  std::unordered_map<std::int32_t, std::int32_t> streams_;  // by the id of the file
  std::unordered_map<std::int32_t, bool> is_collective_;
  std::unordered_set<std::int32_t> misplaced_;  // events
  // By operator of a collective: the work that its copies are; kNone where a kernel does it.
  std::unordered_map<std::int32_t, std::int32_t> copied_by_;
};

}  // namespace

void leave_out_steps(RankTimeline& line, const std::vector<char>& out) {
  std::vector<TracedStep> kept;
  for (std::size_t s = 0; s < line.steps.size(); ++s) {
    if (out[s] == 0) {
      kept.push_back(std::move(line.steps[s]));
    } else if (!kept.empty()) {
      kept.back().is_before_gap = true;
    }
  }
  line.steps = std::move(kept);
  number_works(line);
}

RankTimeline join(const Recording& trace, const JoinOptions& options) {
  return Joiner(trace, options).join();
}

std::int32_t enclosing(const Recording& trace, const RankTimeline& line, std::int32_t event,
                       Is kind) {
  for (std::int32_t at = event; at != kNone; at = line.parent[static_cast<std::size_t>(at)]) {
    const RecordedEvent& now = trace.events[static_cast<std::size_t>(at)];
    if (now.kind != EventKind::RuntimeCall && trace.is(now, kind)) return at;
  }
  return kNone;
}

}  // namespace dovetail::imports

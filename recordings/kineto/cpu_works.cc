// Cuts the time of the computing thread at the begins of its operators, takes waits for collectives out, and puts works and
// calls in order of time.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/kineto/cpu_works.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

namespace dovetail::imports {
namespace {

constexpr Duration kShortestWait = std::chrono::microseconds(50);

class CpuWorks {
 public:
  CpuWorks(const KinetoTrace& trace, RankTimeline& line) : trace_(trace), line_(line) {}

  void add() {
    find_events();
    // Of annotations and collectives only nobody can tell what they overlap with.
    if (operators_.size() < 2 * collectives_.size() || main_ == kNone) {
      line_.unrecognised.cpu_collectives = std::ssize(collectives_);
      return;
    }
    if (collectives_.empty()) return;
    find_waits();
    cut_main_thread();
    add_other_threads();
    add_collectives();
    put_in_order();
    line_.on_cpu = true;
    line_.compute_stream = stream_of(main_);
  }

 private:
  // A wait of the computing thread for the collective that ended in it.
  struct Wait {
    Instant start, end;
    std::int32_t collective = kNone;  // event
  };

  // What a collective and the operator that called it have in common.
  using Kind = std::pair<CollectiveKind, bool>;
  [[nodiscard]] Kind kind_of(std::int32_t number) const {
    const std::string_view name = trace_.name_of(event(number));
    return {collective_kind(name), is_barrier(name)};
  }

  [[nodiscard]] const TraceEvent& event(std::int32_t number) const {
    return trace_.events[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] Instant start_of(std::int32_t number) const {
    return line_.instant(event(number).start_ns);
  }
  [[nodiscard]] Instant end_of(std::int32_t number) const {
    return line_.instant(event(number).end_ns());
  }

  void find_events() {
    std::vector<std::int64_t> operators(trace_.threads.size(), 0);
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const TraceEvent& now = trace_.events[i];
      if (now.kind != EventKind::Operator && now.kind != EventKind::Annotation) continue;
      const std::string_view name = trace_.name_of(now);
      const auto number = static_cast<std::int32_t>(i);
      if (is_cpu_collective(name)) {
        collectives_.push_back(number);
      } else if (now.kind == EventKind::Operator && !name.starts_with("ProfilerStep")) {
        ++operators[static_cast<std::size_t>(now.thread)];
        operators_.push_back(number);
        if (name.starts_with("c10d::")) callers_[kind_of(number)].push_back(number);
      }
    }
    const auto most = std::ranges::max_element(operators);
    if (most != operators.end() && *most > 0) {
      main_ = static_cast<std::int32_t>(most - operators.begin());
    }
  }

  // Times in which the computing thread runs no operator and a collective ends.
  void find_waits() {
    std::vector<std::pair<Instant, std::int32_t>> ends;
    for (const std::int32_t number : collectives_) {
      if (event(number).thread != main_) ends.emplace_back(end_of(number), number);
    }
    std::ranges::sort(ends);
    std::optional<Instant> busy;
    for (const std::int32_t number : operators_) {
      if (event(number).thread != main_) continue;
      const Instant start = start_of(number);
      if (busy && start - *busy >= kShortestWait) {
        auto last =
            std::ranges::upper_bound(ends, start, {}, &std::pair<Instant, std::int32_t>::first);
        if (last != ends.begin() && (--last)->first > *busy) {
          waits_.push_back({*busy, last->first, last->second});
        }
      }
      busy = std::max(busy.value_or(start), end_of(number));
    }
  }

  std::int32_t stream_of(std::int32_t thread) {
    const auto found = std::ranges::find(line_.streams, thread, &TracedStream::id);
    if (found != line_.streams.end())
      return static_cast<std::int32_t>(found - line_.streams.begin());
    line_.streams.push_back({thread, false});
    return static_cast<std::int32_t>(line_.streams.size()) - 1;
  }

  void add_piece(std::int32_t number, Instant start, Instant end) {
    GpuWork work;
    work.start = start;
    work.end = end;
    work.event = number;
    work.stream = stream_of(event(number).thread);
    work.launch = add_call(number, event(number).thread, start, start, CallKind::Launch);
    line_.works.push_back(work);
  }

  std::int32_t add_call(std::int32_t number, std::int32_t thread, Instant start, Instant end,
                        CallKind kind) {
    HostCall call;
    call.start = start;
    call.end = end;
    call.event = number;
    call.thread = thread;
    call.kind = kind;
    line_.calls.push_back(call);
    return static_cast<std::int32_t>(line_.calls.size()) - 1;
  }

  void cut_main_thread() {
    std::vector<std::int32_t> cuts;  // operators; of those that begin together the outer one
    Instant last;
    for (const std::int32_t number : operators_) {
      if (event(number).thread != main_) continue;
      if (cuts.empty() || start_of(number) > start_of(cuts.back())) cuts.push_back(number);
      last = std::max(last, end_of(number));
    }
    auto wait = waits_.begin();
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const Instant start = start_of(cuts[i]);
      Instant end = i + 1 < cuts.size() ? start_of(cuts[i + 1]) : std::max(last, start);
      while (wait != waits_.end() && wait->end <= start) ++wait;
      if (wait != waits_.end() && wait->start >= start && wait->start < end) end = wait->start;
      add_piece(cuts[i], start, end);
    }
    for (const Wait& now : waits_) {
      const std::int32_t call =
          add_call(now.collective, main_, now.start, now.end, CallKind::Blocking);
      line_.calls[static_cast<std::size_t>(call)].waits_on_stream =
          stream_of(event(now.collective).thread);
    }
  }

  // Their outermost operators.
  void add_other_threads() {
    for (const std::int32_t number : operators_) {
      if (event(number).thread == main_) continue;
      const std::int32_t around = line_.parent[static_cast<std::size_t>(number)];
      if (around == kNone || event(around).kind != EventKind::Operator) {
        add_piece(number, start_of(number), end_of(number));
      }
    }
  }

  void add_collectives() {
    std::vector<std::pair<Instant, std::int32_t>> calls;  // of the computing thread
    for (std::size_t c = 0; c < line_.calls.size(); ++c) {
      const HostCall& call = line_.calls[c];
      if (call.kind == CallKind::Launch && call.thread == main_) {
        calls.emplace_back(call.start, static_cast<std::int32_t>(c));
      }
    }
    std::ranges::sort(calls);
    const auto call_before = [&](Instant moment) {
      const auto after =
          std::ranges::upper_bound(calls, moment, {}, &std::pair<Instant, std::int32_t>::first);
      return after == calls.begin() ? kNone : std::prev(after)->second;
    };
    std::map<Kind, std::size_t> called;  // how many of each kind have found their caller
    for (const std::int32_t number : collectives_) {
      GpuWork work;
      work.start = start_of(number);
      work.end = end_of(number);
      work.event = number;
      work.stream = stream_of(event(number).thread);
      TracedCollective collective;
      const std::vector<std::int32_t>& callers = callers_[kind_of(number)];
      std::size_t& next = called[kind_of(number)];
      if (next < callers.size() && start_of(callers[next]) <= work.start) {
        collective.call = callers[next++];
        work.launch = call_before(start_of(collective.call));
      }
      if (work.launch == kNone) {
        work.launch = add_call(number, main_, work.start, work.start, CallKind::Launch);
      }
      line_.streams[static_cast<std::size_t>(work.stream)].communicates = true;
      work.collective = static_cast<std::int32_t>(line_.collectives.size());
      collective.work = static_cast<std::int32_t>(line_.works.size());
      line_.works.push_back(work);
      line_.collectives.push_back(collective);
    }
  }

  // Both by start; who refers to whom follows.
  void put_in_order() {
    const auto order = [](const auto& items) {
      std::vector<std::int32_t> by_start(items.size());
      for (std::size_t i = 0; i < items.size(); ++i) by_start[i] = static_cast<std::int32_t>(i);
      std::ranges::stable_sort(
          by_start, {}, [&](std::int32_t i) { return items[static_cast<std::size_t>(i)].start; });
      return by_start;
    };
    std::vector<std::int32_t> now_at(line_.calls.size());
    std::vector<HostCall> calls;
    for (const std::int32_t call : order(line_.calls)) {
      now_at[static_cast<std::size_t>(call)] = static_cast<std::int32_t>(calls.size());
      calls.push_back(line_.calls[static_cast<std::size_t>(call)]);
    }
    line_.calls = std::move(calls);
    std::vector<GpuWork> works;
    for (const std::int32_t number : order(line_.works)) {
      GpuWork work = line_.works[static_cast<std::size_t>(number)];
      const auto at = static_cast<std::int32_t>(works.size());
      if (work.launch != kNone) {
        work.launch = now_at[static_cast<std::size_t>(work.launch)];
        HostCall& call = line_.calls[static_cast<std::size_t>(work.launch)];
        if (call.first_work == kNone) call.first_work = at;
      }
      if (work.collective != kNone) {
        line_.collectives[static_cast<std::size_t>(work.collective)].work = at;
      }
      works.push_back(work);
    }
    line_.works = std::move(works);
  }

  const KinetoTrace& trace_;
  RankTimeline& line_;
  std::int32_t main_ = kNone;                          // the computing thread
  std::vector<std::int32_t> operators_;                // events, by start
  std::map<Kind, std::vector<std::int32_t>> callers_;  // c10d:: operators
  std::vector<std::int32_t> collectives_;              // events
  std::vector<Wait> waits_;
};

}  // namespace

bool is_cpu_collective(std::string_view name) {
  return name.starts_with("gloo:") || name.starts_with("mpi:") || name.starts_with("ucc:");
}

bool is_barrier(std::string_view name) { return name.find(":barrier") != std::string_view::npos; }

void add_cpu_works(const KinetoTrace& trace, RankTimeline& line) { CpuWorks(trace, line).add(); }

}  // namespace dovetail::imports

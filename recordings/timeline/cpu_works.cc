// Cuts the time of the computing thread at the begins of its operators, takes waits for collectives out, and puts works and
// calls in order of time.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/cpu_works.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

namespace dovetail::imports {
namespace {

constexpr Duration kShortestWait = std::chrono::microseconds(50);

class CpuWorks {
 public:
  CpuWorks(const Recording& trace, RankTimeline& line) : trace_(trace), line_(line) {}

  void add() {
    find_events();
    let_all_reduces_stand_for_reduce_scatters();
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
  // A wait of the computing thread for the collective that ended in it; none: it stood in an operator of collectives.
  struct Wait {
    Instant start, end;
    std::int32_t collective = kNone;  // event
    std::int32_t op = kNone;          // event
  };

  // What a collective and the operator that called it have in common.
  using Kind = std::tuple<CollectiveKind, bool, bool>;
  [[nodiscard]] Kind kind_of(std::int32_t number) const {
    const std::string_view name = trace_.name_of(event(number));
    return {collective_kind(name), trace_.is(number, Is::Barrier), trace_.is(number, Is::Receives)};
  }

  // "c10d::recv_", "_c10d_functional::wait_tensor": they compute nothing.
  [[nodiscard]] bool is_of_collectives(std::int32_t number) const {
    return trace_.is(number, Is::C10d) || trace_.is(number, Is::FunctionalC10d);
  }

  [[nodiscard]] const RecordedEvent& event(std::int32_t number) const {
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
      const RecordedEvent& now = trace_.events[i];
      if (now.kind != EventKind::Operator && now.kind != EventKind::Annotation) continue;
      const auto number = static_cast<std::int32_t>(i);
      if (trace_.is(now, Is::ThreadCollective)) {
        collectives_.push_back(number);
      } else if (now.kind == EventKind::Operator && !trace_.is(now, Is::ProfilerStep)) {
        ++operators[static_cast<std::size_t>(now.thread)];
        operators_.push_back(number);
        if (trace_.is(now, Is::C10d)) callers_[kind_of(number)].push_back(number);
        pieces_.push_back(number);
      } else if (trace_.is(now, Is::Fsdp)) {
        pieces_.push_back(number);
      }
    }
    const auto most = std::ranges::max_element(operators);
    if (most != operators.end() && *most > 0) {
      main_ = static_cast<std::int32_t>(most - operators.begin());
    }
  }

  // Gloo has no reduce-scatter: it all-reduces for it.
  void let_all_reduces_stand_for_reduce_scatters() {
    const Kind scatter = {CollectiveKind::ReduceScatter, false, false};
    const bool has_own = std::ranges::any_of(
        collectives_, [&](std::int32_t number) { return kind_of(number) == scatter; });
    if (has_own || !callers_.contains(scatter)) return;
    std::vector<std::int32_t>& callers = callers_[{CollectiveKind::AllReduce, false, false}];
    const std::vector<std::int32_t>& more = callers_[scatter];
    callers.insert(callers.end(), more.begin(), more.end());
    std::ranges::sort(callers);  // events are by start
  }

  // What the computing thread does between two moments at which an operator or a hook begins or ends.
  struct Segment {
    Instant start, end;
    std::int32_t op = kNone;  // innermost; none: Python, or a hook of FSDP within one
  };

  [[nodiscard]] std::vector<Segment> segments() const {
    std::vector<Segment> result;
    std::vector<std::int32_t> open;
    std::optional<Instant> at;
    const auto advance = [&](Instant to) {
      const bool in_operator = !open.empty() && event(open.back()).kind == EventKind::Operator;
      if (at && to > *at) result.push_back({*at, to, in_operator ? open.back() : kNone});
      at = std::max(at.value_or(to), to);
    };
    const auto close_until = [&](Instant to) {
      while (!open.empty() && end_of(open.back()) <= to) {
        advance(end_of(open.back()));
        open.pop_back();
      }
    };
    for (const std::int32_t number : pieces_) {
      if (event(number).thread != main_) continue;
      close_until(start_of(number));
      advance(start_of(number));
      open.push_back(number);
    }
    close_until(Instant::max());
    return result;
  }

  // Whether the thread stands in it: it waits for a collective by name, or is longer in one's operator than issuing it takes.
  [[nodiscard]] bool is_blocked(const Segment& segment) const {
    if (segment.op == kNone) return false;
    if (trace_.is(segment.op, Is::Waits)) return true;
    return is_of_collectives(segment.op) && segment.end - segment.start >= kShortestWait;
  }

  // The outermost operator of collectives around an operator, or itself.
  [[nodiscard]] std::int32_t issue_of(std::int32_t op) const {
    std::int32_t found = op;
    for (std::int32_t at = op; at != kNone; at = line_.parent[static_cast<std::size_t>(at)]) {
      if (is_of_collectives(at)) found = at;
    }
    return found;
  }

  [[nodiscard]] bool computes(const Segment& segment) const {
    return segment.op != kNone && !is_blocked(segment);
  }
  // Whether a collective is issued at its beginning.
  [[nodiscard]] bool issues(const Segment& segment) const {
    return segment.op != kNone && segment.start == start_of(segment.op) &&
           is_of_collectives(segment.op) && issue_of(segment.op) == segment.op &&
           !trace_.is(segment.op, Is::Waits);
  }

  // Stretches without compute, from one issue of a collective to the next.
  void find_waits() {
    segments_ = segments();
    for (const std::int32_t number : collectives_) ends_.emplace_back(end_of(number), number);
    std::ranges::sort(ends_);
    for (std::size_t i = 0; i < segments_.size();) {
      std::size_t next = i;
      while (next < segments_.size() && !computes(segments_[next]) &&
             (next == i || !issues(segments_[next]))) {
        ++next;
      }
      if (next > i && segments_[next - 1].end - segments_[i].start >= kShortestWait) {
        add_waits(std::span(segments_).subspan(i, next - i));
      }
      i = std::max(next, i + 1);
    }
  }

  // In a stretch without compute: a wait for the collective that ended last in it, else stops in operators of collectives.
  void add_waits(std::span<const Segment> stretch) {
    const Instant from = stretch.front().start;
    std::optional<Instant> blocked;  // the last operator's end
    for (const Segment& segment : stretch) {
      if (!is_blocked(segment)) continue;
      blocked = segment.end;
      blocked_from_.emplace(issue_of(segment.op), segment.start);
    }
    auto last = std::ranges::upper_bound(ends_, stretch.back().end, {},
                                         &std::pair<Instant, std::int32_t>::first);
    if (last != ends_.begin() && (--last)->first > from) {
      waits_.push_back({from, std::max(last->first, blocked.value_or(from)), last->second});
      return;
    }
    for (const Segment& segment : stretch) {
      if (is_blocked(segment)) waits_.push_back({segment.start, segment.end, kNone, segment.op});
    }
  }

  // Collectives that the computing thread's own events tell of (sends and receives of Gloo) are in nobody's thread: those
  // that overlap are streams of their own.
  std::int32_t stream_of_collective(std::int32_t number) {
    if (event(number).thread != main_) return stream_of(event(number).thread);
    const auto known = lane_of_.find(number);
    if (known != lane_of_.end()) return known->second;
    const auto free = std::ranges::find_if(
        lanes_, [&](Instant busy_until) { return busy_until <= start_of(number); });
    const auto lane = free - lanes_.begin();
    if (free == lanes_.end()) lanes_.emplace_back();
    lanes_[static_cast<std::size_t>(lane)] = end_of(number);
    const auto id = static_cast<std::int32_t>(std::ssize(trace_.threads) + lane);
    return lane_of_.emplace(number, stream_of(id)).first->second;
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

  // A piece begins with each operator, and where a wait within an operator is over.
  void cut_main_thread() {
    std::map<Instant, std::int32_t> cuts;  // operators; of those that begin together the outer one
    Instant last;
    for (const std::int32_t number : operators_) {
      if (event(number).thread != main_) continue;
      cuts.emplace(start_of(number), number);
      last = std::max(last, end_of(number));
    }
    auto segment = segments_.begin();
    for (const Wait& wait : waits_) {
      while (segment != segments_.end() && segment->end <= wait.end) ++segment;
      if (segment == segments_.end()) break;
      if (segment->start <= wait.end && computes(*segment)) cuts.emplace(wait.end, segment->op);
    }
    auto wait = waits_.begin();
    for (auto cut = cuts.begin(); cut != cuts.end(); ++cut) {
      const Instant start = cut->first;
      Instant end = std::next(cut) != cuts.end() ? std::next(cut)->first : std::max(last, start);
      while (wait != waits_.end() && wait->end <= start) ++wait;
      if (wait != waits_.end() && wait->start < end) end = wait->start;
      if (end > start) {
        add_piece(cut->second, start, end);
      } else {
        add_call(cut->second, main_, start, start,
                 CallKind::Launch);  // within a wait: it only issues
      }
    }
    for (const Wait& now : waits_) {
      const bool is_known = now.collective != kNone;
      const std::int32_t call = add_call(is_known ? now.collective : now.op, main_, now.start,
                                         now.end, is_known ? CallKind::Blocking : CallKind::Other);
      if (!is_known) continue;
      line_.calls[static_cast<std::size_t>(call)].waits_on_stream =
          stream_of_collective(now.collective);
    }
  }

  // Whether it is part of a collective: Gloo's thread copies within gloo:all_gather.
  [[nodiscard]] bool is_in_collective(std::int32_t number) const {
    for (std::int32_t at = number; at != kNone; at = line_.parent[static_cast<std::size_t>(at)]) {
      if (trace_.is(at, Is::ThreadCollective)) return true;
    }
    return false;
  }

  // Their outermost operators.
  void add_other_threads() {
    for (const std::int32_t number : operators_) {
      if (event(number).thread == main_ || is_in_collective(number)) continue;
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
      work.stream = stream_of_collective(number);
      TracedCollective collective;
      const std::vector<std::int32_t>& callers = callers_[kind_of(number)];
      std::size_t& next = called[kind_of(number)];
      if (next < callers.size() && start_of(callers[next]) <= work.start) {
        collective.call = callers[next++];
        const std::int32_t issue = issue_of(collective.call);
        work.launch = call_before(start_of(issue));
        // Where the thread stood in the call before it began to send, it waited for that all the time.
        const auto blocked = blocked_from_.find(issue);
        if (blocked != blocked_from_.end()) work.start = std::min(work.start, blocked->second);
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

  const Recording& trace_;
  RankTimeline& line_;
  std::int32_t main_ = kNone;                          // the computing thread
  std::vector<std::int32_t> operators_;                // events, by start
  std::vector<std::int32_t> pieces_;                   // these, and hooks of FSDP
  std::map<Kind, std::vector<std::int32_t>> callers_;  // c10d:: operators
  std::vector<std::int32_t> collectives_;              // events
  std::vector<Segment> segments_;                      // of the computing thread, by time
  std::vector<Wait> waits_;
  std::vector<std::pair<Instant, std::int32_t>> ends_;  // of collectives
  std::map<std::int32_t, Instant> blocked_from_;        // by operator in which the thread stood
  std::vector<Instant> lanes_;                          // until when each is busy
  std::map<std::int32_t, std::int32_t> lane_of_;        // streams, by collective
};

}  // namespace

void add_cpu_works(const Recording& trace, RankTimeline& line) { CpuWorks(trace, line).add(); }

}  // namespace dovetail::imports

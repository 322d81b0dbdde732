// From a joined trace to the graph of its steps, in four passes over drafts of the nodes.
//
// 1. Order of issue: calls by their start, each piece of GPU work right behind its call, so that everything a node can
//    wait for stands before it.
// 2. Constants: the usual time from a launch to its work, and between two pieces of queued work, as medians.
// 3. Who waits for whom (the rules of recorded_graph.h), each held against the recorded times.
// 4. The drafts become nodes; a call that waited for the GPU becomes two, the call and its return.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/recorded_graph.h"

#include "base/statistics.h"
#include "traces/intervals.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

namespace dovetail::diagnose {
namespace {

constexpr Duration kDefaultLatency = std::chrono::microseconds(1);
constexpr Duration kLongestGap = std::chrono::microseconds(20);  // between queued work
constexpr Duration kTolerance = std::chrono::microseconds(4);    // clocks of whole microseconds
constexpr Duration kStallEnds = std::chrono::microseconds(15);   // after what it waited for

// A node as long as it is not known what it waits for.
struct Draft {
  enum class Kind : std::uint8_t { Host, Gpu };
  Kind kind = Kind::Host;
  bool communicates = false;
  Origin origin;
  Duration gap{};       // Host: pause since the call before
  Duration duration{};  // Host: of the call when it has nothing to wait for
  Duration lag{};  // Host: from the end of what it waited for to its own; Gpu: unexplained delay
  Duration latency{};           // Gpu: from the end of its call
  Duration stream_gap{};        // Gpu: from the end of the work before it on its stream
  std::int32_t stream = 0;      // Gpu
  std::int32_t launch = kNone;  // Gpu: draft of its call; kNone: starts no earlier than recorded
  std::vector<std::int32_t> waits;  // drafts of GPU work that must have ended
  std::int32_t work = kNone;        // Gpu: in RankTimeline::works
  std::int32_t call = kNone;        // Host: in RankTimeline::calls
};

class Builder {
 public:
  Builder(const Recording& trace, const RankTimeline& line) : trace_(trace), line_(line) {}

  RecordedGraph build() {
    order_nodes();
    measure_latencies();
    collectives_wait_for_their_caller();
    stalls_wait_for_other_streams();
    compute_waits_for_collectives();
    calls_wait_for_the_gpu();
    keep_unexplained_delays();
    emit();
    return std::move(result_);
  }

 private:
  [[nodiscard]] const GpuWork& work(std::int32_t number) const {
    return line_.works[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] const GpuWork& work_of(const Draft& node) const { return work(node.work); }
  [[nodiscard]] const HostCall& launch_of(const Draft& node) const {
    return line_.calls[static_cast<std::size_t>(work_of(node).launch)];
  }
  Draft& node(std::int32_t number) { return drafts_[static_cast<std::size_t>(number)]; }

  // --- order of issue -------------------------------------------------------------------------

  // Something to issue: markers of steps, calls, work without a launch.
  struct Item {
    Instant at;
    int rank = 0;  // at equal times: end of a step, begin of one, call, work
    std::int32_t number = 0;
  };
  enum : int { StepEnd, StepBegin, CallStart, WorkStart };

  void order_nodes() {
    std::vector<Item> items;
    const Instant first = line_.steps.front().start;
    const Instant last = line_.steps.back().end;
    for (std::size_t i = 0; i < line_.steps.size(); ++i) {
      items.push_back({line_.steps[i].start, StepBegin, static_cast<std::int32_t>(i)});
      items.push_back({line_.steps[i].end, StepEnd, static_cast<std::int32_t>(i)});
    }
    first_work_.assign(line_.calls.size(), kNone);
    next_work_.assign(line_.works.size(), kNone);
    for (std::size_t i = 0; i < line_.calls.size(); ++i) {
      const HostCall& call = line_.calls[i];
      if (call.start < first || call.start >= last || call.is_aside) continue;
      items.push_back({call.start, CallStart, static_cast<std::int32_t>(i)});
    }
    add_works(items, first, last);
    std::ranges::stable_sort(items, {},
                             [](const Item& item) { return std::tuple(item.at, item.rank); });
    host_end_ = first;
    drafts_.reserve(items.size() + line_.works.size());
    for (const Item& item : items) add_item(item);
  }

  // Launched work goes right behind its call; work without a launch before the next work of its stream.
  void add_works(std::vector<Item>& items, Instant first, Instant last) {
    std::vector<Instant> next(line_.streams.size(), Instant::max());
    std::vector<Item> without_launch;
    for (std::size_t i = line_.works.size(); i-- > 0;) {
      const GpuWork& now = line_.works[i];
      const bool launched =
          now.launch != kNone && !line_.calls[static_cast<std::size_t>(now.launch)].is_aside;
      Instant at = launched ? line_.calls[static_cast<std::size_t>(now.launch)].start : now.start;
      if (launched && at >= first && at < last) {
        std::int32_t& first_work = first_work_[static_cast<std::size_t>(now.launch)];
        next_work_[i] = first_work;
        first_work = static_cast<std::int32_t>(i);
        next[static_cast<std::size_t>(now.stream)] = at;
        continue;
      }
      if (launched && at >= last) continue;
      at = std::min({now.start, next[static_cast<std::size_t>(now.stream)], last});
      without_launch.push_back({at, WorkStart, static_cast<std::int32_t>(i)});
    }
    // In order of start; among equals the earlier one first.
    items.insert(items.end(), without_launch.rbegin(), without_launch.rend());
  }

  void add_host(Instant start, Instant end, Origin origin) {
    Draft host;
    host.origin = origin;
    host.gap = start - host_end_;
    host.duration = end - start;
    if (origin.kind == Origin::Kind::Call) host.call = origin.index;
    host_end_ = std::max(host_end_, end);
    drafts_.push_back(std::move(host));
  }

  void add_work(std::int32_t number, std::int32_t launch) {
    const GpuWork& now = work(number);
    Draft gpu;
    gpu.kind = Draft::Kind::Gpu;
    gpu.communicates = now.collective != kNone;
    gpu.duration = now.end - now.start;
    gpu.stream = now.stream;
    gpu.launch = launch;
    gpu.origin = {Origin::Kind::Work, number};
    gpu.work = number;
    drafts_.push_back(std::move(gpu));
  }

  void add_item(const Item& item) {
    const auto next = static_cast<std::int32_t>(drafts_.size());
    if (item.rank == WorkStart) return add_work(item.number, kNone);
    if (item.rank == CallStart) {
      const HostCall& call = line_.calls[static_cast<std::size_t>(item.number)];
      add_host(call.start, call.end, {Origin::Kind::Call, item.number});
      std::int32_t number = first_work_[static_cast<std::size_t>(item.number)];
      for (; number != kNone; number = next_work_[static_cast<std::size_t>(number)]) {
        add_work(number, next);
      }
      return;
    }
    const bool begins = item.rank == StepBegin;
    add_host(item.at, item.at,
             {begins ? Origin::Kind::StepBegin : Origin::Kind::StepEnd, item.number});
  }

  // --- constants --------------------------------------------------------------------------------

  static std::size_t class_of(const RecordedEvent& event, bool communicates) {
    if (communicates) return 3;
    return event.kind == EventKind::Kernel ? 0 : event.kind == EventKind::Memcpy ? 1 : 2;
  }
  [[nodiscard]] std::size_t class_of(const Draft& gpu) const {
    return class_of(trace_.events[static_cast<std::size_t>(work_of(gpu).event)], gpu.communicates);
  }

  void measure_latencies() {
    std::array<std::vector<Duration>, 4> latencies;
    std::vector<std::vector<Duration>> gaps(line_.streams.size());
    std::vector<Instant> busy(line_.streams.size());
    for (const Draft& gpu : drafts_) {
      if (gpu.kind != Draft::Kind::Gpu) continue;
      const GpuWork& now = work_of(gpu);
      Instant& before = busy[static_cast<std::size_t>(gpu.stream)];
      if (gpu.launch != kNone) {
        const HostCall& call = launch_of(gpu);
        const Duration latency = now.start - call.end;
        const Duration gap = now.start - before;
        if (before <= call.start && latency < 2 * kLongestGap) {
          latencies[class_of(gpu)].push_back(latency);
        } else if (call.end + kLongestGap < before && gap >= Duration{} && gap < kLongestGap) {
          gaps[static_cast<std::size_t>(gpu.stream)].push_back(gap);
        }
      }
      before = std::max(before, now.end);
    }
    const Duration kernel = median_or(latencies[0], kDefaultLatency);
    std::vector<Duration> stream_gap;
    for (auto& gap : gaps) stream_gap.push_back(median_or(std::move(gap), kDefaultLatency));
    std::array<Duration, 4> latency{};
    for (std::size_t i = 0; i < 4; ++i) latency[i] = median_or(std::move(latencies[i]), kernel);
    std::ranges::fill(busy, Instant());
    for (Draft& gpu : drafts_) {
      if (gpu.kind != Draft::Kind::Gpu) continue;
      gpu.latency = latency[class_of(gpu)];
      gpu.stream_gap = stream_gap[static_cast<std::size_t>(gpu.stream)];
      // Work of one graph launch may overlap on its stream.
      Instant& before = busy[static_cast<std::size_t>(gpu.stream)];
      const GpuWork& now = work_of(gpu);
      if (before != Instant()) gpu.stream_gap = std::min(gpu.stream_gap, now.start - before);
      before = std::max(before, now.end);
    }
  }

  // --- who waits for whom -----------------------------------------------------------------------

  void collectives_wait_for_their_caller() {
    std::vector<std::int32_t> last(trace_.threads.size(), kNone);  // work by thread of its call
    for (std::size_t i = 0; i < drafts_.size(); ++i) {
      Draft& gpu = drafts_[i];
      if (gpu.kind != Draft::Kind::Gpu || gpu.launch == kNone) continue;
      std::int32_t& before = last[static_cast<std::size_t>(launch_of(gpu).thread)];
      if (!gpu.communicates) {
        before = static_cast<std::int32_t>(i);
      } else if (before != kNone &&
                 work_of(node(before)).end <= work_of(gpu).start + std::chrono::microseconds(1)) {
        gpu.waits.push_back(before);
      }
    }
  }

  // When the rules known so far let a node start, by the recorded times.
  [[nodiscard]] Instant expected_start(const Draft& gpu, Instant stream_end) const {
    Instant start = gpu.launch != kNone ? launch_of(gpu).end + gpu.latency : work_of(gpu).start;
    if (stream_end != Instant()) start = std::max(start, stream_end + gpu.stream_gap);
    for (const std::int32_t wait : gpu.waits) {
      start = std::max(start, work_of(drafts_[static_cast<std::size_t>(wait)]).end);
    }
    return start;
  }

  using Ends = std::vector<std::pair<Instant, std::int32_t>>;  // of GPU work, by time

  // Nothing waits for work that is aside.
  [[nodiscard]] Ends ends_of_work() const {
    Ends ends;
    for (std::size_t i = 0; i < drafts_.size(); ++i) {
      if (drafts_[i].kind != Draft::Kind::Gpu || work_of(drafts_[i]).is_aside) continue;
      ends.emplace_back(work_of(drafts_[i]).end, static_cast<std::int32_t>(i));
    }
    std::ranges::sort(ends);
    return ends;
  }

  void stalls_wait_for_other_streams() {
    const Ends ends = ends_of_work();
    std::vector<Instant> busy(line_.streams.size());
    std::vector<Duration> gaps;
    for (std::size_t i = 0; i < drafts_.size(); ++i) {
      Draft& gpu = drafts_[i];
      if (gpu.kind != Draft::Kind::Gpu) continue;
      Instant& before = busy[static_cast<std::size_t>(gpu.stream)];
      const Instant expected = expected_start(gpu, before);
      const GpuWork& now = work_of(gpu);
      before = std::max(before, now.end);
      if (gpu.launch == kNone || now.start <= expected + kTolerance) continue;
      const std::int32_t cause =
          ended_before(ends, now.start, std::max(expected, now.start - kStallEnds), i);
      if (cause == kNone) continue;
      gpu.waits.push_back(cause);
      gaps.push_back(now.start - work_of(node(cause)).end);
    }
    dependency_gap_ = median_or(std::move(gaps), kDefaultLatency);
  }

  // The work of another stream, issued before node `of`, that ended last in [from, until].
  std::int32_t ended_before(const Ends& ends, Instant until, Instant from, std::size_t of) const {
    auto at = std::ranges::upper_bound(ends, until, {}, &std::pair<Instant, std::int32_t>::first);
    while (at != ends.begin()) {
      --at;
      if (at->first < from) return kNone;
      const Draft& other = drafts_[static_cast<std::size_t>(at->second)];
      const bool before = static_cast<std::size_t>(at->second) < of;
      if (before && other.stream != drafts_[of].stream) return at->second;
    }
    return kNone;
  }

  // A wait call outside the launch of a collective makes what follows wait for the oldest collective
  // that nothing has waited for, if what follows did start after it.
  void compute_waits_for_collectives() {
    std::vector<char> waited(drafts_.size(), 0);
    std::vector<std::int32_t> open;
    std::size_t pending = 0;  // wait calls not yet matched with work
    for (std::size_t i = 0; i < drafts_.size(); ++i) {
      Draft& now = drafts_[i];
      if (now.kind == Draft::Kind::Host) {
        pending += is_wait_of_work(now) ? 1 : 0;
        continue;
      }
      for (const std::int32_t wait : now.waits) waited[static_cast<std::size_t>(wait)] = 1;
      if (now.communicates) {
        open.push_back(static_cast<std::int32_t>(i));
        continue;
      }
      // A call whose collective the stall has shown already is not another one's.
      const auto shown = std::ranges::count_if(
          now.waits, [&](std::int32_t wait) { return node(wait).communicates; });
      pending -= std::min(pending, static_cast<std::size_t>(shown));
      if (pending == 0) continue;
      std::erase_if(open, [&](std::int32_t c) { return waited[static_cast<std::size_t>(c)] != 0; });
      for (std::size_t c = 0; c < open.size() && pending > 0; ++c) {
        if (work_of(node(open[c])).end > work_of(now).start) continue;
        now.waits.push_back(open[c]);
        waited[static_cast<std::size_t>(open[c])] = 1;
        --pending;
      }
      pending = 0;
    }
  }

  bool is_wait_of_work(const Draft& host) const {
    if (host.call == kNone) return false;
    const HostCall& call = line_.calls[static_cast<std::size_t>(host.call)];
    if (call.kind != CallKind::WaitEvent) return false;
    // Those around a launch of a collective stand inside its operator.
    for (std::int32_t at = line_.parent[static_cast<std::size_t>(call.event)]; at != kNone;
         at = line_.parent[static_cast<std::size_t>(at)]) {
      if (trace_.is(at, Is::LibraryRange) || trace_.is(at, Is::C10d)) return false;
    }
    return true;
  }

  void calls_wait_for_the_gpu() {
    const Ends ends = ends_of_work();
    std::vector<std::int32_t> last_on_stream(line_.streams.size(), kNone);
    for (const HostCall& call : line_.calls) {
      if (call.waits_on_record != kNone) at_record_[call.waits_on_record];
    }
    for (std::size_t i = 0; i < drafts_.size(); ++i) {
      Draft& host = drafts_[i];
      if (host.kind == Draft::Kind::Gpu) {
        if (work_of(host).is_aside) continue;
        last_on_stream[static_cast<std::size_t>(host.stream)] = static_cast<std::int32_t>(i);
        continue;
      }
      if (host.call == kNone) continue;
      const HostCall& call = line_.calls[static_cast<std::size_t>(host.call)];
      if (const auto record = at_record_.find(host.call); record != at_record_.end()) {
        record->second = last_on_stream;
      }
      if (!can_block(call)) continue;
      const std::int32_t cause = awaited(call, i, ends, last_on_stream);
      if (cause == kNone) continue;
      host.waits.push_back(cause);
      host.lag = std::max(Duration{}, call.end - work_of(node(cause)).end);
      host.duration = std::min(host.duration, Duration(std::chrono::microseconds(10)));
    }
  }

  // What a blocking call of draft `of` waited for; kNone: nothing that was still running when it began.
  //
  // A call that names its device, stream or event waits for the last work issued there. A blocking copy is issued by the call
  // itself and stands behind it here: the call waits for what its copy waits for, and the copy is part of the lag. For others
  // it is the last work of the stream that ran dry last before the call returned, else the work that ended last before. How
  // long after it the call returned decides nothing: a host that sleeps while it waits wakes up hundreds of microseconds late.
  // Ends may lie behind the return by as much as the clocks may be apart.
  [[nodiscard]] std::int32_t awaited(const HostCall& call, std::size_t of, const Ends& ends,
                                     const std::vector<std::int32_t>& last_on_stream) const {
    const Instant latest = call.end + line_.clock.error;
    const auto is_possible = [&](std::int32_t draft) {
      if (draft == kNone) return false;
      const Instant end = work_of(drafts_[static_cast<std::size_t>(draft)]).end;
      return end > call.start && end <= latest;
    };
    if (call.waits_on_stream != kNone) {
      const std::int32_t named =
          call.waits_on_record == kNone
              ? last_on_stream[static_cast<std::size_t>(call.waits_on_stream)]
              : before_record(call.waits_on_record, call.waits_on_stream);
      if (named != kNone) return is_possible(named) ? named : kNone;
    }
    if (call.first_work != kNone) {
      const std::int32_t before =
          last_on_stream[static_cast<std::size_t>(work(call.first_work).stream)];
      if (is_possible(before)) return before;
    }
    std::int32_t cause = kNone;
    for (const std::int32_t last : last_on_stream) {
      if (!is_possible(last)) continue;
      if (cause == kNone || work_of(drafts_[static_cast<std::size_t>(last)]).end >
                                work_of(drafts_[static_cast<std::size_t>(cause)]).end) {
        cause = last;
      }
    }
    return cause != kNone ? cause : last_ended(ends, latest, call.start, of);
  }

  // The last work on a stream that was launched before an event was recorded there.
  [[nodiscard]] std::int32_t before_record(std::int32_t record, std::int32_t stream) const {
    const auto found = at_record_.find(record);
    const bool is_known = found != at_record_.end() && !found->second.empty();
    return is_known ? found->second[static_cast<std::size_t>(stream)] : kNone;
  }

  static std::int32_t last_ended(const Ends& ends, Instant until, Instant from,
                                 std::size_t before) {
    auto at = std::ranges::upper_bound(ends, until, {}, &std::pair<Instant, std::int32_t>::first);
    while (at != ends.begin()) {
      --at;
      if (at->first <= from) return kNone;
      if (static_cast<std::size_t>(at->second) < before) return at->second;
    }
    return kNone;
  }

  bool can_block(const HostCall& call) const {
    if (call.kind == CallKind::Blocking) return true;
    if (!trace_.is(call.event, Is::Copy)) return false;
    if (!trace_.is(call.event, Is::Async)) return true;
    return call.first_work != kNone && trace_.is(work(call.first_work).event, Is::Pageable);
  }

  void keep_unexplained_delays() {
    std::vector<Instant> busy(line_.streams.size());
    std::vector<traces::Interval> delays;
    for (Draft& gpu : drafts_) {
      if (gpu.kind != Draft::Kind::Gpu) continue;
      Instant& before = busy[static_cast<std::size_t>(gpu.stream)];
      const GpuWork& now = work_of(gpu);
      const Duration late = now.start - expected_start(gpu, before);
      before = std::max(before, now.end);
      if (gpu.launch == kNone || late <= kLongestGap) continue;
      gpu.lag = late;
      delays.push_back({now.start - late, now.start});
    }
    result_.unexplained = traces::length(traces::union_of(std::move(delays)));
  }

  // --- the graph ----------------------------------------------------------------------------------

  void emit() {
    result_.zero = line_.steps.front().start;
    for (const Draft& draft : drafts_) {
      if (draft.kind == Draft::Kind::Gpu && draft.launch == kNone) {
        result_.zero = std::min(result_.zero, work_of(draft).start);
      }
    }
    result_.node_of_work.resize(line_.works.size());
    result_.node_of_call.resize(line_.calls.size());
    result_.steps.resize(line_.steps.size());
    result_.works.resize(line_.steps.size());
    nodes_.resize(drafts_.size());
    add_slots();
    for (std::size_t i = 0; i < drafts_.size(); ++i) {
      Draft& draft = drafts_[i];
      draft.kind == Draft::Kind::Host ? emit_host(draft) : emit_work(draft);
    }
  }

  // The first slot is the compute stream of the lane (sim/graph.h): the first stream that runs no collective.
  void add_slots() {
    auto compute = std::ranges::find(line_.streams, false, &imports::TracedStream::communicates);
    if (compute == line_.streams.end()) compute = line_.streams.begin();
    const auto first = compute - line_.streams.begin();
    result_.graph.slots.push_back({step::SlotKind::Compute, 0, StreamId{}});
    for (std::ptrdiff_t i = 0; i < std::ssize(line_.streams); ++i) {
      slot_of_stream_.push_back(i == first ? 0 : std::ssize(result_.graph.slots));
      if (i == first) continue;
      result_.graph.slots.push_back(
          {step::SlotKind::Stream, 0, StreamId{static_cast<std::int32_t>(slot_of_stream_.back())}});
    }
    host_slot_ = static_cast<step::SlotId>(result_.graph.slots.size());
    result_.graph.slots.push_back({step::SlotKind::Host, 0, StreamId{host_slot_}});
    last_on_stream_.resize(line_.streams.size());
  }

  // A node that ended last among those that something follows, and when it ended in the trace.
  struct Last {
    step::NodeId node = 0;
    Instant end;
  };

  step::NodeId append(const step::Node& node, Origin origin, std::span<const step::Edge> edges) {
    result_.origin.push_back(origin);
    return result_.graph.append(node, edges);
  }

  void emit_host(Draft& draft) {
    step::Node node{.work = step::Work::fixed(draft.duration.count()),
                    .kind = step::NodeKind::Call,
                    .slot = host_slot_};
    std::vector<step::Edge> edges;
    if (last_call_) {
      edges.push_back({last_call_->node, step::EdgeKind::Order, draft.gap.count()});
    } else {
      node.release = (line_.steps.front().start - result_.zero + draft.gap).count();
    }
    mark_step(draft.origin);
    const step::NodeId call = append(node, draft.origin, edges);
    draft_node(draft) = call;
    step::NodeId last = call;
    if (!draft.waits.empty()) {
      edges = {{call, step::EdgeKind::Order, 0}};
      for (const std::int32_t wait : draft.waits) {
        edges.push_back({draft_node(drafts_[static_cast<std::size_t>(wait)]),
                         step::EdgeKind::Synchronise, draft.lag.count()});
      }
      node.work = step::Work::fixed(0);
      node.release = 0;
      last = append(node, {Origin::Kind::Return, draft.call}, edges);
    }
    set_marker(draft.origin, call);
    Instant end = line_.steps.front().start;
    if (draft.call != kNone) {
      result_.node_of_call[static_cast<std::size_t>(draft.call)] = last;
      end = line_.calls[static_cast<std::size_t>(draft.call)].end;
    } else {
      const TracedStep& step = line_.steps[static_cast<std::size_t>(draft.origin.index)];
      end = draft.origin.kind == Origin::Kind::StepBegin ? step.start : step.end;
    }
    if (!last_call_ || end >= last_call_->end) last_call_ = {last, end};
  }

  void mark_step(Origin origin) {
    if (origin.kind == Origin::Kind::StepBegin) {
      result_.graph.begin_step();
      // What stands before the first step is of it.
      result_.graph.step_begin.front() = 0;
    }
  }
  void set_marker(Origin origin, step::NodeId node) {
    if (origin.kind == Origin::Kind::StepBegin) {
      result_.steps[static_cast<std::size_t>(origin.index)].begin = node;
    } else if (origin.kind == Origin::Kind::StepEnd) {
      result_.steps[static_cast<std::size_t>(origin.index)].end = node;
    }
  }

  void emit_work(Draft& draft) {
    const GpuWork& now = work_of(draft);
    const EventKind kind = trace_.events[static_cast<std::size_t>(now.event)].kind;
    std::optional<Last>& before = last_on_stream_[static_cast<std::size_t>(draft.stream)];
    std::vector<step::Edge> edges;
    step::Node node{.work = step::Work::fixed(draft.duration.count()),
                    .kind = draft.communicates                          ? step::NodeKind::Transfer
                            : kind == EventKind::Kernel || line_.on_cpu ? step::NodeKind::Compute
                                                                        : step::NodeKind::Copy,
                    .slot = slot_of(draft.stream),
                    .owner = draft.work};
    if (draft.launch == kNone) {
      node.release = (now.start - result_.zero).count();
    } else {
      edges.push_back({*result_.node_of_call[static_cast<std::size_t>(now.launch)],
                       step::EdgeKind::Launch, (draft.latency + draft.lag).count()});
    }
    if (before) {
      edges.push_back(
          {before->node, step::EdgeKind::Order, (draft.stream_gap + draft.lag).count()});
    }
    for (const std::int32_t wait : draft.waits) {
      edges.push_back({draft_node(drafts_[static_cast<std::size_t>(wait)]), step::EdgeKind::Event,
                       (dependency_gap_ + draft.lag).count()});
    }
    const step::NodeId self = append(node, draft.origin, edges);
    draft_node(draft) = self;
    result_.node_of_work[static_cast<std::size_t>(draft.work)] = self;
    const bool in_step = now.step != kNone && (draft.launch != kNone || line_.is_whole_trace ||
                                               trace_.steps_are_on_device);
    if (in_step) result_.works[static_cast<std::size_t>(now.step)].push_back(self);
    if (!before || now.end >= before->end) before = {self, now.end};
  }

  [[nodiscard]] step::SlotId slot_of(std::int32_t stream) const {
    return static_cast<step::SlotId>(slot_of_stream_[static_cast<std::size_t>(stream)]);
  }
  step::NodeId& draft_node(const Draft& draft) {
    return nodes_[static_cast<std::size_t>(&draft - drafts_.data())];
  }

  const Recording& trace_;
  const RankTimeline& line_;
  RecordedGraph result_;
  std::vector<Draft> drafts_;
  std::vector<std::int32_t> first_work_, next_work_;  // works by call, a chain in order of start
  Instant host_end_;
  Duration dependency_gap_{};
  std::map<std::int32_t, std::vector<std::int32_t>>
      at_record_;                    // last on each stream, by call that recorded an event
  std::vector<step::NodeId> nodes_;  // of each draft, once it has one
  std::vector<std::ptrdiff_t> slot_of_stream_;
  step::SlotId host_slot_ = 0;
  std::optional<Last> last_call_;
  std::vector<std::optional<Last>> last_on_stream_;
};

}  // namespace

RecordedGraph record_graph(const Recording& trace, const RankTimeline& line) {
  return Builder(trace, line).build();
}

}  // namespace dovetail::diagnose

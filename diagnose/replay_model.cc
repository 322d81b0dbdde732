// Building the model of a replay from a joined trace: order of issue, latencies, and what waits for what.
//
// SPDX-License-Identifier: Apache-2.0
#include "diagnose/replay.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

namespace dovetail::diagnose {
namespace {

constexpr Duration kDefaultLatency = std::chrono::microseconds(1);
constexpr Duration kLongestGap = std::chrono::microseconds(20);  // between queued work
constexpr Duration kTolerance = std::chrono::microseconds(4);    // clocks of whole microseconds
constexpr Duration kStallEnds = std::chrono::microseconds(15);   // after what it waited for
constexpr Duration kBlockedEnds = std::chrono::microseconds(60);

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

Duration median(std::vector<Duration> values, Duration fallback) {
  if (values.empty()) return fallback;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

class Builder {
 public:
  Builder(const KinetoTrace& trace, const RankTimeline& line) : trace_(trace), line_(line) {}

  ReplayModel build() {
    model_.streams = static_cast<std::int32_t>(line_.streams.size());
    model_.node_of_work.assign(line_.works.size(), kNone);
    model_.node_of_call.assign(line_.calls.size(), kNone);
    order_nodes();
    measure_latencies();
    collectives_wait_for_their_caller();
    stalls_wait_for_other_streams();
    compute_waits_for_collectives();
    calls_wait_for_the_gpu();
    keep_unexplained_delays();
    return std::move(model_);
  }

 private:
  [[nodiscard]] const GpuWork& work(std::int32_t number) const {
    return line_.works[static_cast<std::size_t>(number)];
  }
  [[nodiscard]] const GpuWork& work_of(const ReplayNode& node) const { return work(node.work); }
  [[nodiscard]] const HostCall& launch_of(const ReplayNode& node) const {
    return line_.calls[static_cast<std::size_t>(work_of(node).launch)];
  }
  ReplayNode& node(std::int32_t number) { return model_.nodes[static_cast<std::size_t>(number)]; }

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
    launched_.resize(line_.calls.size());
    for (std::size_t i = 0; i < line_.calls.size(); ++i) {
      const HostCall& call = line_.calls[i];
      if (call.start < first || call.start >= last) continue;
      items.push_back({call.start, CallStart, static_cast<std::int32_t>(i)});
    }
    add_works(items, first, last);
    std::ranges::stable_sort(items, {},
                             [](const Item& item) { return std::tuple(item.at, item.rank); });
    model_.steps.resize(line_.steps.size());
    model_.host_start = first;
    host_end_ = first;
    for (const Item& item : items) add_item(item);
  }

  // Launched work goes right behind its call; work without a launch before the next work of its stream.
  void add_works(std::vector<Item>& items, Instant first, Instant last) {
    std::vector<Instant> next(line_.streams.size(), Instant::max());
    for (std::size_t i = line_.works.size(); i-- > 0;) {
      const GpuWork& now = line_.works[i];
      const bool launched = now.launch != kNone;
      Instant at = launched ? line_.calls[static_cast<std::size_t>(now.launch)].start : now.start;
      if (launched && at >= first && at < last) {
        launched_[static_cast<std::size_t>(now.launch)].push_back(static_cast<std::int32_t>(i));
        next[static_cast<std::size_t>(now.stream)] = at;
        continue;
      }
      if (launched && at >= last) continue;
      at = std::min({now.start, next[static_cast<std::size_t>(now.stream)], last});
      items.push_back({at, WorkStart, static_cast<std::int32_t>(i)});
    }
    // In order of start; among equals the earlier one first.
    for (auto& works : launched_) std::ranges::reverse(works);
    std::ranges::reverse(items);
  }

  void add_host(Instant start, Instant end, std::int32_t call) {
    ReplayNode host;
    host.gap = start - host_end_;
    host.duration = end - start;
    host.call = call;
    host_end_ = std::max(host_end_, end);
    model_.nodes.push_back(std::move(host));
  }

  void add_work(std::int32_t number, std::int32_t launch) {
    const GpuWork& now = work(number);
    ReplayNode gpu;
    gpu.kind = ReplayNode::Kind::Gpu;
    gpu.communicates = now.collective != kNone;
    gpu.duration = now.end - now.start;
    gpu.stream = now.stream;
    gpu.launch = launch;
    gpu.fixed_start = now.start;
    gpu.work = number;
    gpu.step = launch == kNone && line_.has_step_annotations ? kNone : now.step;
    model_.node_of_work[static_cast<std::size_t>(number)] =
        static_cast<std::int32_t>(model_.nodes.size());
    model_.nodes.push_back(std::move(gpu));
  }

  void add_item(const Item& item) {
    const auto next = static_cast<std::int32_t>(model_.nodes.size());
    if (item.rank == WorkStart) return add_work(item.number, kNone);
    if (item.rank == CallStart) {
      const HostCall& call = line_.calls[static_cast<std::size_t>(item.number)];
      model_.node_of_call[static_cast<std::size_t>(item.number)] = next;
      add_host(call.start, call.end, item.number);
      for (const std::int32_t number : launched_[static_cast<std::size_t>(item.number)]) {
        add_work(number, next);
      }
      return;
    }
    ReplayStep& step = model_.steps[static_cast<std::size_t>(item.number)];
    (item.rank == StepBegin ? step.begin : step.end) = next;
    add_host(item.at, item.at, kNone);
  }

  // --- constants --------------------------------------------------------------------------------

  static std::size_t class_of(const TraceEvent& event, bool communicates) {
    if (communicates) return 3;
    return event.kind == EventKind::Kernel ? 0 : event.kind == EventKind::Memcpy ? 1 : 2;
  }
  [[nodiscard]] std::size_t class_of(const ReplayNode& gpu) const {
    return class_of(trace_.events[static_cast<std::size_t>(work_of(gpu).event)], gpu.communicates);
  }

  void measure_latencies() {
    std::array<std::vector<Duration>, 4> latencies;
    std::vector<std::vector<Duration>> gaps(line_.streams.size());
    std::vector<Instant> busy(line_.streams.size());
    for (const ReplayNode& gpu : model_.nodes) {
      if (gpu.kind != ReplayNode::Kind::Gpu) continue;
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
    const Duration kernel = median(latencies[0], kDefaultLatency);
    std::vector<Duration> stream_gap;
    for (auto& gap : gaps) stream_gap.push_back(median(std::move(gap), kDefaultLatency));
    std::array<Duration, 4> latency{};
    for (std::size_t i = 0; i < 4; ++i) latency[i] = median(std::move(latencies[i]), kernel);
    std::ranges::fill(busy, Instant());
    for (ReplayNode& gpu : model_.nodes) {
      if (gpu.kind != ReplayNode::Kind::Gpu) continue;
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
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
      ReplayNode& gpu = model_.nodes[i];
      if (gpu.kind != ReplayNode::Kind::Gpu || gpu.launch == kNone) continue;
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
  [[nodiscard]] Instant expected_start(const ReplayNode& gpu, Instant stream_end) const {
    Instant start = gpu.launch != kNone ? launch_of(gpu).end + gpu.latency : gpu.fixed_start;
    if (stream_end != Instant()) start = std::max(start, stream_end + gpu.stream_gap);
    for (const std::int32_t wait : gpu.waits) {
      start = std::max(start, work_of(model_.nodes[static_cast<std::size_t>(wait)]).end);
    }
    return start;
  }

  void stalls_wait_for_other_streams() {
    // Ends of GPU work, to be searched by time.
    std::vector<std::pair<Instant, std::int32_t>> ends;
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
      if (model_.nodes[i].kind != ReplayNode::Kind::Gpu) continue;
      ends.emplace_back(work_of(model_.nodes[i]).end, static_cast<std::int32_t>(i));
    }
    std::ranges::sort(ends);
    std::vector<Instant> busy(line_.streams.size());
    std::vector<Duration> gaps;
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
      ReplayNode& gpu = model_.nodes[i];
      if (gpu.kind != ReplayNode::Kind::Gpu) continue;
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
      ++model_.inferred_waits;
    }
    model_.dependency_gap = median(std::move(gaps), kDefaultLatency);
  }

  // The work of another stream, issued before node `of`, that ended last in [from, until].
  std::int32_t ended_before(const std::vector<std::pair<Instant, std::int32_t>>& ends,
                            Instant until, Instant from, std::size_t of) const {
    auto at = std::ranges::upper_bound(ends, until, {}, &std::pair<Instant, std::int32_t>::first);
    while (at != ends.begin()) {
      --at;
      if (at->first < from) return kNone;
      const ReplayNode& other = model_.nodes[static_cast<std::size_t>(at->second)];
      const bool before = static_cast<std::size_t>(at->second) < of;
      if (before && other.stream != model_.nodes[of].stream) return at->second;
    }
    return kNone;
  }

  // A wait call outside the launch of a collective makes what follows wait for the oldest collective
  // that nothing has waited for, if what follows did start after it.
  void compute_waits_for_collectives() {
    std::vector<char> waited(model_.nodes.size(), 0);
    std::vector<std::int32_t> open;
    std::size_t pending = 0;  // wait calls not yet matched with work
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
      ReplayNode& now = model_.nodes[i];
      if (now.kind == ReplayNode::Kind::Host) {
        pending += is_wait_of_work(now) ? 1 : 0;
        continue;
      }
      for (const std::int32_t wait : now.waits) waited[static_cast<std::size_t>(wait)] = 1;
      if (now.communicates) {
        open.push_back(static_cast<std::int32_t>(i));
        continue;
      }
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

  bool is_wait_of_work(const ReplayNode& host) const {
    if (host.call == kNone) return false;
    const HostCall& call = line_.calls[static_cast<std::size_t>(host.call)];
    if (call.kind != CallKind::WaitEvent) return false;
    // Those around a launch of a collective stand inside its operator.
    for (std::int32_t at = line_.parent[static_cast<std::size_t>(call.event)]; at != kNone;
         at = line_.parent[static_cast<std::size_t>(at)]) {
      const std::string_view name = trace_.name_of(trace_.events[static_cast<std::size_t>(at)]);
      if (name.starts_with("nccl:") || name.starts_with("rccl:")) return false;
      if (name.starts_with("c10d::")) return false;
    }
    return true;
  }

  void calls_wait_for_the_gpu() {
    std::vector<std::pair<Instant, std::int32_t>> ends;
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
      if (model_.nodes[i].kind != ReplayNode::Kind::Gpu) continue;
      ends.emplace_back(work_of(model_.nodes[i]).end, static_cast<std::int32_t>(i));
    }
    std::ranges::sort(ends);
    std::vector<std::int32_t> last_on_stream(line_.streams.size(), kNone);
    for (std::size_t i = 0; i < model_.nodes.size(); ++i) {
      ReplayNode& host = model_.nodes[i];
      if (host.kind == ReplayNode::Kind::Gpu) {
        last_on_stream[static_cast<std::size_t>(host.stream)] = static_cast<std::int32_t>(i);
        continue;
      }
      if (host.call == kNone) continue;
      const HostCall& call = line_.calls[static_cast<std::size_t>(host.call)];
      if (!can_block(call)) continue;
      // A blocking copy is issued by the call itself and stands behind it here: the call waits for what
      // its copy waits for, and the copy is part of the lag.
      std::int32_t cause = before_own_copy(call, last_on_stream);
      if (cause == kNone || work_of(node(cause)).end <= call.start ||
          work_of(node(cause)).end > call.end) {
        cause = last_ended(ends, call.end, std::max(call.start, call.end - kBlockedEnds), i);
      }
      if (cause == kNone) continue;
      host.waits.push_back(cause);
      host.lag = call.end - work_of(node(cause)).end;
      host.duration = std::min(host.duration, Duration(std::chrono::microseconds(10)));
    }
  }

  [[nodiscard]] std::int32_t before_own_copy(
      const HostCall& call, const std::vector<std::int32_t>& last_on_stream) const {
    if (call.first_work == kNone) return kNone;
    return last_on_stream[static_cast<std::size_t>(work(call.first_work).stream)];
  }

  static std::int32_t last_ended(const std::vector<std::pair<Instant, std::int32_t>>& ends,
                                 Instant until, Instant from, std::size_t before) {
    auto at = std::ranges::upper_bound(ends, until, {}, &std::pair<Instant, std::int32_t>::first);
    while (at != ends.begin()) {
      --at;
      if (at->first < from) return kNone;
      if (static_cast<std::size_t>(at->second) < before) return at->second;
    }
    return kNone;
  }

  bool can_block(const HostCall& call) const {
    if (call.kind == CallKind::Blocking) return true;
    const std::string_view name =
        trace_.name_of(trace_.events[static_cast<std::size_t>(call.event)]);
    if (!contains(name, "Memcpy")) return false;
    if (!contains(name, "Async")) return true;
    if (call.first_work == kNone) return false;
    const TraceEvent& copy = trace_.events[static_cast<std::size_t>(work(call.first_work).event)];
    return contains(trace_.name_of(copy), "Pageable");
  }

  void keep_unexplained_delays() {
    std::vector<Instant> busy(line_.streams.size());
    for (ReplayNode& gpu : model_.nodes) {
      if (gpu.kind != ReplayNode::Kind::Gpu) continue;
      Instant& before = busy[static_cast<std::size_t>(gpu.stream)];
      const GpuWork& now = work_of(gpu);
      const Duration late = now.start - expected_start(gpu, before);
      before = std::max(before, now.end);
      if (gpu.launch == kNone || late <= kLongestGap) continue;
      gpu.lag = late;
      model_.unexplained += late;
    }
  }

  const KinetoTrace& trace_;
  const RankTimeline& line_;
  ReplayModel model_;
  std::vector<std::vector<std::int32_t>> launched_;  // works by call
  Instant host_end_;
};

}  // namespace

ReplayModel replay_model(const KinetoTrace& trace, const RankTimeline& line) {
  return Builder(trace, line).build();
}

}  // namespace dovetail::diagnose

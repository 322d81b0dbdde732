// The four minimal loops over the benchmark step that our simulator is timed beside, and the
// graphs that they run on.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reference_loops.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <optional>
#include <queue>
#include <utility>

namespace dovetail::bench {
namespace {

using std::chrono::microseconds;
using support::BenchmarkDag;
using support::BenchmarkOp;

std::int32_t to_int32(std::size_t value) { return static_cast<std::int32_t>(value); }

std::int32_t us_on_rank(const BenchmarkDag& dag, std::size_t op, std::int32_t rank,
                        std::int32_t ranks) {
  return static_cast<std::int32_t>(duration_on_rank(dag, op, rank, ranks).count());
}

// Turns every list around: the nodes that name a node.
NodeLists reversed(const NodeLists& lists) {
  const std::size_t n = lists.first.size() - 1;
  NodeLists result;
  result.first.assign(n + 1, 0);
  for (const std::int32_t node : lists.nodes) ++result.first[static_cast<std::size_t>(node) + 1];
  for (std::size_t v = 0; v < n; ++v) result.first[v + 1] += result.first[v];
  result.nodes.resize(lists.nodes.size());
  std::vector<std::int32_t> next(result.first.begin(), result.first.end() - 1);
  for (std::size_t v = 0; v < n; ++v) {
    for (const std::int32_t node : lists[v]) {
      std::int32_t& slot = next[static_cast<std::size_t>(node)];
      result.nodes[static_cast<std::size_t>(slot++)] = to_int32(v);
    }
  }
  return result;
}

class Expander {
 public:
  Expander(const BenchmarkDag& dag, std::int32_t ranks) : dag_(dag), ranks_(ranks) {
    graph_.predecessors.first.push_back(0);
    graph_.rank_ops = static_cast<std::int64_t>(dag.ops.size()) * ranks;
  }

  ExpandedGraph expand() {
    for (std::size_t op = 0; op < dag_.ops.size(); ++op) {
      const std::int32_t first = to_int32(graph_.size());
      first_node_.push_back(first);
      if (dag_.ops[op].is_collective()) {
        add_collective(op);
        last_collective_ = first;
      } else {
        for (std::int32_t rank = 0; rank < ranks_; ++rank) add_compute(op, rank);
        last_compute_ = first;
      }
    }
    graph_.successors = reversed(graph_.predecessors);
    return std::move(graph_);
  }

 private:
  void follow(std::int32_t node) { graph_.predecessors.nodes.push_back(node); }

  void end_node(std::size_t op, std::int32_t rank) {
    graph_.duration_us.push_back(us_on_rank(dag_, op, rank, ranks_));
    graph_.predecessors.first.push_back(to_int32(graph_.predecessors.nodes.size()));
  }

  // One node for all ranks, after the gradients of every rank.
  void add_collective(std::size_t op) {
    if (last_collective_) follow(*last_collective_);
    for (const std::int32_t gradient : dag_.ops[op].after) {
      const std::int32_t first = first_node_[static_cast<std::size_t>(gradient)];
      for (std::int32_t rank = 0; rank < ranks_; ++rank) follow(first + rank);
    }
    end_node(op, 0);
  }

  void add_compute(std::size_t op, std::int32_t rank) {
    if (last_compute_) follow(*last_compute_ + rank);
    for (const std::int32_t before : dag_.ops[op].after) {
      follow(first_node_[static_cast<std::size_t>(before)]);  // compute ops wait for collectives
    }
    end_node(op, rank);
  }

  const BenchmarkDag& dag_;
  std::int32_t ranks_;
  ExpandedGraph graph_;
  std::vector<std::int32_t> first_node_;  // of each op; its ranks follow
  std::optional<std::int32_t> last_collective_;
  std::optional<std::int32_t> last_compute_;  // of rank 0
};

struct Later {
  bool operator()(const Event& a, const Event& b) const { return a.time_us > b.time_us; }
};

// Sets the counts and returns the number of nodes; push(node) is called for those without a
// predecessor.
template <class Push>
void start(const ExpandedGraph& graph, Scratch& scratch, const Push& push) {
  const auto& first = graph.predecessors.first;
  scratch.waiting_for.resize(graph.size());
  for (std::size_t v = 0; v < graph.size(); ++v) {
    scratch.waiting_for[v] = first[v + 1] - first[v];
    if (scratch.waiting_for[v] == 0) push(to_int32(v));
  }
}

// A min-heap on time with four children a node: half as deep as a binary one, and the children lie
// in one cache line.
class FourAryHeap {
 public:
  explicit FourAryHeap(std::vector<Event>& events) : events_(events) { events_.clear(); }

  [[nodiscard]] bool empty() const { return events_.empty(); }
  [[nodiscard]] const Event& top() const { return events_[0]; }

  void push(Event event) {
    std::size_t hole = events_.size();
    events_.push_back(event);
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / 4;
      if (events_[parent].time_us <= event.time_us) break;
      events_[hole] = events_[parent];
      hole = parent;
    }
    events_[hole] = event;
  }

  // Removes the top and adds an event: one walk down instead of two.
  void replace_top(Event event) {
    const std::size_t size = events_.size();
    std::size_t hole = 0;
    for (std::size_t child = 1; child < size; child = 4 * hole + 1) {
      const std::size_t last = std::min(child + 4, size);
      std::size_t least = child;
      for (std::size_t other = child + 1; other < last; ++other) {
        if (events_[other].time_us < events_[least].time_us) least = other;
      }
      if (events_[least].time_us >= event.time_us) break;
      events_[hole] = events_[least];
      hole = least;
    }
    events_[hole] = event;
  }

  void pop() {
    const Event last = events_.back();
    events_.pop_back();
    if (!events_.empty()) replace_top(last);
  }

 private:
  std::vector<Event>& events_;
};

// All lanes together; the lane count is fixed so that the inner loops become vector instructions.
template <std::size_t kLanes>
std::int64_t play_lanes(const PackedStep& step) {
  alignas(64) std::array<std::int32_t, kLanes> now{};  // 32 bits of microseconds: 35 minutes
  const std::int32_t* duration = step.duration_us.data();
  std::int64_t link = 0;
  std::int32_t op = 0;
  for (std::size_t bucket = 0; bucket < step.compute_end.size(); ++bucket) {
    for (; op < step.compute_end[bucket]; ++op, duration += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) now[lane] += duration[lane];
    }
    std::int32_t slowest = now[0];
    for (std::size_t lane = 1; lane < kLanes; ++lane) slowest = std::max(slowest, now[lane]);
    link = std::max<std::int64_t>(link, slowest) + step.collective_us[bucket];
  }
  std::int64_t makespan = 0;
  for (std::size_t lane = 0; lane < static_cast<std::size_t>(step.ranks); ++lane) {
    makespan = std::max(makespan, std::max<std::int64_t>(link, now[lane]) + duration[lane]);
  }
  return makespan;
}

}  // namespace

ExpandedGraph expand(const BenchmarkDag& dag, std::int32_t ranks) {
  return Expander(dag, ranks).expand();
}

PackedStep pack(const BenchmarkDag& dag, std::int32_t ranks) {
  PackedStep step;
  step.ranks = ranks;
  step.lanes = ranks == 1 ? 1 : (static_cast<std::size_t>(ranks) + 7) / 8 * 8;
  DOVETAIL_CHECK(step.lanes == 1 || step.lanes == 8 || step.lanes == 64) << ranks << " ranks";
  std::int32_t compute_ops = 0;
  for (std::size_t op = 0; op < dag.ops.size(); ++op) {
    if (dag.ops[op].is_collective()) {
      step.compute_end.push_back(compute_ops);
      step.collective_us.push_back(us_on_rank(dag, op, 0, ranks));
      continue;
    }
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      step.duration_us.push_back(us_on_rank(dag, op, rank, ranks));
    }
    ++compute_ops;
    step.duration_us.resize(static_cast<std::size_t>(compute_ops) * step.lanes, 0);
  }
  return step;
}

microseconds play_binary_heap(const ExpandedGraph& graph, Scratch& scratch) {
  std::priority_queue<Event, std::vector<Event>, Later> events;
  const NodeLists& successors = graph.successors;
  const std::int32_t* duration = graph.duration_us.data();
  start(graph, scratch, [&](std::int32_t node) { events.push(Event{duration[node], node}); });
  std::int32_t* waiting_for = scratch.waiting_for.data();
  std::int64_t now = 0;
  while (!events.empty()) {
    // Field by field: a copy of the event would load its node and padding as one word, of which
    // half was just stored, and stall for five nanoseconds (measured with one rank).
    now = events.top().time_us;
    const auto node = static_cast<std::size_t>(events.top().node);
    events.pop();
    for (const std::int32_t next : successors[node]) {
      if (--waiting_for[next] == 0) events.push(Event{now + duration[next], next});
    }
  }
  return microseconds(now);
}

microseconds play_four_ary_heap(const ExpandedGraph& graph, Scratch& scratch) {
  FourAryHeap events(scratch.heap);
  const NodeLists& successors = graph.successors;
  const std::int32_t* duration = graph.duration_us.data();
  start(graph, scratch, [&](std::int32_t node) { events.push(Event{duration[node], node}); });
  std::int32_t* waiting_for = scratch.waiting_for.data();
  std::int64_t now = 0;
  while (!events.empty()) {
    now = events.top().time_us;
    bool replaced = false;
    for (const std::int32_t next : successors[static_cast<std::size_t>(events.top().node)]) {
      if (--waiting_for[next] != 0) continue;
      const Event event{now + duration[next], next};
      if (replaced) {
        events.push(event);
      } else {
        events.replace_top(event);
        replaced = true;
      }
    }
    if (!replaced) events.pop();
  }
  return microseconds(now);
}

microseconds play_program_order(const ExpandedGraph& graph, Scratch& scratch) {
  scratch.end_us.resize(graph.size());
  std::int64_t makespan = 0;
  for (std::size_t v = 0; v < graph.size(); ++v) {
    std::int64_t begin = 0;
    for (const std::int32_t before : graph.predecessors[v]) {
      begin = std::max(begin, scratch.end_us[static_cast<std::size_t>(before)]);
    }
    scratch.end_us[v] = begin + graph.duration_us[v];
    makespan = std::max(makespan, scratch.end_us[v]);
  }
  return microseconds(makespan);
}

microseconds play_packed(const PackedStep& step) {
  if (step.lanes == 1) return microseconds(play_lanes<1>(step));
  if (step.lanes == 8) return microseconds(play_lanes<8>(step));
  return microseconds(play_lanes<64>(step));
}

}  // namespace dovetail::bench

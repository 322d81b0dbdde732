// Growing and cutting a StepGraph, and asking a played one why a node started.
//
// All arrays are in node order, so the graph grows and shrinks at its end only: a search keeps the first nodes of a
// candidate and writes the rest anew. Successors are a second view of the same edges, made when asked for.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/graph.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace dovetail::step {
namespace {

// Appends to a list that stays empty while all its values are 0.
void push_sparse(std::vector<std::int64_t>& list, std::size_t size, std::int64_t value) {
  if (value == 0 && list.empty()) return;
  list.resize(size, 0);
  list.push_back(value);
}

// The same way round.
void shrink_sparse(std::vector<std::int64_t>& list, std::size_t size) {
  if (!list.empty()) list.resize(size);
}

}  // namespace

void StepGraph::clear() {
  lanes = 1;
  resources = 0;
  shares_links = shares_memory = false;
  launch_gap = 0;
  slots.clear();
  contention.clear();
  lane_sets.clear();
  truncate(0);
}

NodeId StepGraph::append(const Node& node, std::span<const Edge> edges) {
  const NodeId self = size();
  push_sparse(release, work.size(), node.release);
  work.push_back(node.work);
  kind.push_back(node.kind);
  kernel.push_back(node.kernel);
  slot.push_back(node.slot);
  owner.push_back(node.owner);
  for (const Edge& edge : edges) {
    push_sparse(lag, predecessors.size(), edge.lag);
    predecessors.push_back(edge.from);
    edge_kind.push_back(edge.kind);
  }
  predecessor_begin.push_back(static_cast<std::int32_t>(predecessors.size()));
  return self;
}

NodeId StepGraph::append(Node node, Transfer transfer, std::span<const Demand> wants,
                         std::span<const Edge> edges) {
  node.work = Work::transfer(transfers.size());
  transfer.node = size();
  transfer.first_demand = static_cast<std::int32_t>(demands.size());
  transfer.demands = static_cast<std::int32_t>(wants.size());
  demands.insert(demands.end(), wants.begin(), wants.end());
  transfers.push_back(transfer);
  return append(node, edges);
}

void StepGraph::append_chain(std::int32_t side_by_side, std::span<const Work> works,
                             std::span<const models::KernelClass> kernels,
                             std::span<const std::int64_t> releases) {
  const auto width = static_cast<std::size_t>(side_by_side);
  const std::size_t first = work.size();
  DOVETAIL_CHECK(first >= width && works.size() == kernels.size() * width)
      << works.size() << " works, " << kernels.size() << " kernels, " << width << " side by side";
  const auto is_held = [](std::int64_t when) { return when != 0; };
  if (release.empty() && std::ranges::any_of(releases, is_held)) release.resize(first, 0);
  work.insert(work.end(), works.begin(), works.end());
  kind.resize(work.size(), kind.back());
  owner.resize(work.size(), owner.back());
  if (width == 1) {
    kernel.insert(kernel.end(), kernels.begin(), kernels.end());
    slot.resize(work.size(), slot.back());
  } else {
    for (const models::KernelClass each : kernels) kernel.resize(kernel.size() + width, each);
    slot.resize(work.size());
    for (std::size_t node = first; node < slot.size(); ++node) slot[node] = slot[node - width];
  }
  if (!release.empty()) {
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      release.resize(release.size() + width, releases.empty() ? 0 : releases[i]);
    }
  }
  const std::size_t edges = predecessors.size();
  predecessors.resize(edges + work.size() - first);
  predecessor_begin.resize(work.size() + 1);
  std::iota(predecessors.begin() + static_cast<std::ptrdiff_t>(edges), predecessors.end(),
            static_cast<NodeId>(first - width));
  std::iota(predecessor_begin.begin() + static_cast<std::ptrdiff_t>(first) + 1,
            predecessor_begin.end(), static_cast<std::int32_t>(edges) + 1);
  edge_kind.resize(predecessors.size(), EdgeKind::Order);
  if (!lag.empty()) lag.resize(predecessors.size(), 0);
}

void StepGraph::reserve_steps(std::int32_t count) {
  const auto more = static_cast<std::size_t>(count - steps());
  const auto first = static_cast<std::size_t>(step_begin.back());
  const std::size_t nodes = work.size() + more * (work.size() - first);
  const std::size_t edges =
      predecessors.size() +
      more * (predecessors.size() - static_cast<std::size_t>(predecessor_begin[first]));
  for (auto* list : {&owner, &slot}) list->reserve(nodes);
  predecessor_begin.reserve(nodes + 1);
  work.reserve(nodes);
  release.reserve(release.empty() ? 0 : nodes);
  kind.reserve(nodes);
  kernel.reserve(nodes);
  predecessors.reserve(edges);
  edge_kind.reserve(edges);
  const auto is_later = [&](const Transfer& transfer) {
    return transfer.node >= step_begin.back();
  };
  const auto of_step = static_cast<std::size_t>(std::ranges::count_if(transfers, is_later));
  transfers.reserve(transfers.size() + more * of_step);
}

void StepGraph::repeat_step(std::int32_t owners) {
  const auto first = static_cast<std::size_t>(step_begin.back());
  const std::size_t end = work.size();
  const auto nodes = static_cast<NodeId>(end - first);
  const auto edges = static_cast<std::size_t>(predecessor_begin[first]);
  const std::size_t edges_end = predecessors.size();
  DOVETAIL_CHECK(steps() > 1 && step_begin[step_begin.size() - 2] + nodes == step_begin.back())
      << steps() << " steps, " << nodes << " nodes in the last one";
  const auto again = [](auto& list, std::size_t from, std::size_t to) {
    list.resize(list.size() + to - from);
    std::copy(list.begin() + static_cast<std::ptrdiff_t>(from),
              list.begin() + static_cast<std::ptrdiff_t>(to),
              list.end() - static_cast<std::ptrdiff_t>(to - from));
  };
  again(work, first, end);
  again(kind, first, end);
  again(kernel, first, end);
  again(slot, first, end);
  again(edge_kind, edges, edges_end);
  if (!release.empty()) again(release, first, end);
  if (!lag.empty()) again(lag, edges, edges_end);
  const auto further = [](std::vector<std::int32_t>& list, std::size_t from, std::size_t to,
                          std::int32_t by) {
    list.resize(list.size() + to - from);
    std::transform(list.begin() + static_cast<std::ptrdiff_t>(from),
                   list.begin() + static_cast<std::ptrdiff_t>(to),
                   list.end() - static_cast<std::ptrdiff_t>(to - from),
                   [by](std::int32_t value) { return value + by; });
  };
  further(owner, first, end, owners);
  further(predecessor_begin, first + 1, end + 1, static_cast<std::int32_t>(edges_end - edges));
  further(predecessors, edges, edges_end, nodes);
  for (std::size_t i = first; i < end; ++i) {
    if (!work[i].is_transfer()) continue;
    Transfer copy = transfers[work[i].index()];
    work[i + end - first] = Work::transfer(transfers.size());
    copy.node += nodes;
    if (copy.previous) *copy.previous += nodes;
    transfers.push_back(copy);
  }
  step_begin.push_back(static_cast<NodeId>(end));
}

void StepGraph::truncate(NodeId node) {
  DOVETAIL_CHECK(node >= 0 && node <= size()) << node << " of " << size() << " nodes";
  const auto nodes = static_cast<std::size_t>(node);
  predecessor_begin.resize(nodes + 1);
  predecessor_begin.front() = 0;
  const auto edges = static_cast<std::size_t>(predecessor_begin.back());
  work.resize(nodes);
  kind.resize(nodes);
  kernel.resize(nodes);
  slot.resize(nodes);
  owner.resize(nodes);
  shrink_sparse(release, nodes);
  predecessors.resize(edges);
  edge_kind.resize(edges);
  shrink_sparse(lag, edges);
  while (!transfers.empty() && transfers.back().node >= node) transfers.pop_back();
  // Those that are left may share theirs with repeated ones, so the last one need not have the last.
  std::int32_t wanted = 0;
  for (const Transfer& transfer : transfers)
    wanted = std::max(wanted, transfer.first_demand + transfer.demands);
  demands.resize(static_cast<std::size_t>(wanted));
  while (!step_begin.empty() && step_begin.back() >= node) step_begin.pop_back();
  successor_begin.clear();
  successors.clear();
}

void StepGraph::link() {
  const auto nodes = static_cast<std::size_t>(size());
  std::vector<std::int32_t> next(nodes + 1, 0);  // where the next successor of each node goes
  for (const NodeId from : predecessors) ++next[static_cast<std::size_t>(from) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  successor_begin.assign(next.begin(), next.end());
  successors.resize(predecessors.size());
  for (NodeId node = 0; node < size(); ++node) {
    for (const NodeId from : predecessors_of(node)) {
      successors[static_cast<std::size_t>(next[static_cast<std::size_t>(from)]++)] = node;
    }
  }
}

std::optional<Edge> started_by(const StepGraph& graph, const Timeline& timeline, NodeId node) {
  std::optional<Edge> last;
  std::int64_t since = 0;
  const auto [begin, end] = graph.edges_of(node);
  for (std::size_t k = begin; k < end; ++k) {
    const Edge edge = graph.edge(k);
    const std::int64_t lets = timeline.end_of(edge.from) + edge.lag;
    if (last && lets <= since) continue;
    last = edge;
    since = lets;
  }
  return last && since >= graph.release_of(node) ? last : std::nullopt;
}

std::int64_t ready_at(const StepGraph& graph, const Timeline& timeline, NodeId node) {
  std::int64_t ready = 0;
  const auto [begin, end] = graph.edges_of(node);
  for (std::size_t k = begin; k < end; ++k) {
    const Edge edge = graph.edge(k);
    ready = std::max(ready, timeline.end_of(edge.from) + edge.lag);
  }
  return ready;
}

}  // namespace dovetail::step

// Nodes first, then all edges at once.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/graph_builder.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace dovetail::sim {
namespace {

constexpr Duration kLongestRun{std::int64_t{1} << 60};  // 36 years

}  // namespace

void check_run(double ns) {
  if (ns <= static_cast<double>(kLongestRun.count())) return;
  throw InputError(
      "what hosts and ranks do in all steps would take " + dovetail::to_string(from_ns(ns)) +
      " in a row, which is too long to simulate: at most " + dovetail::to_string(kLongestRun));
}

GraphBuilder::GraphBuilder(const Lanes& lanes, std::size_t streams, std::size_t links, Hosts hosts,
                           Graph memory)
    : lanes_(lanes),
      streams_(streams),
      links_(links),
      hosts_limit_(hosts == Hosts::Limit),
      graph_(std::move(memory)) {
  graph_.clear();
  graph_.ranks = lanes.count();
  graph_.rank_of_lane = lanes.ranks();
  graph_.roles = lanes.roles();
  frontier_.resize(lanes.roles().size() * streams_);
  last_collective_.resize(lanes.ranks().size() * streams_, kNoNode);
  graph_.resources = static_cast<std::int32_t>(lanes.ranks().size() * links_ * 2);
  loaded_by_.assign(static_cast<std::size_t>(graph_.resources), -1);
}

void GraphBuilder::wait_for(std::int32_t role, StreamId stream, std::int32_t entry) {
  std::vector<std::int32_t>& waits = frontier(role, stream);
  if (std::ranges::count(waits, entry) == 0) waits.push_back(entry);
}

void GraphBuilder::open_entry(const Place& place, NodeKind kind, NodeId first, std::int32_t count,
                              std::int32_t instances) {
  const auto self = static_cast<std::int32_t>(graph_.command_nodes.size());
  graph_.command_nodes.push_back({place.command, place.step, first, count, kind, place.stream,
                                  place.role, instances, place.issued});
  std::vector<std::int32_t>& before = frontier(place.role, place.stream);
  dependency_begin_.push_back(static_cast<std::int32_t>(dependencies_.size()));
  dependencies_.insert(dependencies_.end(), before.begin(), before.end());
  before.assign(1, self);
}

void GraphBuilder::add_node(std::int64_t work, std::int64_t release, std::int32_t slot,
                            models::KernelClass kernel) {
  if (work >= 0) work_ns_ += static_cast<double>(work);
  released_ = std::max(released_, release);
  graph_.work.push_back(work);
  if (hosts_limit_) graph_.release.push_back(release);
  graph_.command_node.push_back(static_cast<std::int32_t>(graph_.command_nodes.size()) - 1);
  graph_.slot.push_back(slot);
  graph_.kernel.push_back(kernel);
}

std::int32_t GraphBuilder::add(const Place& place, NodeKind kind,
                               std::span<const std::int64_t> work, models::KernelClass kernel) {
  const LaneRange lanes = graph_.roles[static_cast<std::size_t>(place.role)];
  const auto self = static_cast<std::int32_t>(graph_.command_nodes.size());
  open_entry(place, kind, graph_.size(), lanes.end - lanes.begin, -1);
  const bool beside = place.stream != schedule::kComputeStream;
  for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
    const std::int32_t slot =
        beside ? graph_.ranks + static_cast<std::int32_t>(channel(lane, place.stream)) : lane;
    add_node(work[static_cast<std::size_t>(lane - lanes.begin)] + graph_.launch_gap, place.issued,
             slot, kernel);
  }
  return self;
}

const GraphBuilder::Meet& GraphBuilder::meeting(const schedule::ProcessGroup& group,
                                                std::int32_t role) {
  const auto [entry, fresh] = meetings_.try_emplace({role, group.id});
  Meet& meet = entry->second;
  if (!fresh) return meet;
  Meeting meeting = lanes_.meeting(group, role);
  meet.count = meeting.nodes;
  if (meeting.nodes > 1) {
    meet.instances = static_cast<std::int32_t>(graph_.instances.size());
    graph_.instances.push_back(std::move(meeting.node_of_lane));
  }
  for (std::vector<std::int32_t>& lanes : meeting.lanes_of_node) {
    meet.lane_sets.push_back(static_cast<std::int32_t>(graph_.lane_sets.size()));
    graph_.lane_sets.push_back(std::move(lanes));
  }
  return meet;
}

std::int32_t GraphBuilder::add_collective(std::span<const Place> places,
                                          const schedule::ProcessGroup& group,
                                          const TransferCost& transfer) {
  const auto self = static_cast<std::int32_t>(graph_.command_nodes.size());
  const Meet& meet = meeting(group, places.front().role);
  const NodeId first = graph_.size();
  std::int64_t release = 0;
  for (const Place& place : places) {
    open_entry(place, NodeKind::Collective, first, meet.count, meet.instances);
    release = std::max(release, place.issued);
  }
  for (const std::int32_t lane_set : meet.lane_sets) {
    const std::int32_t lead = graph_.lane_sets[static_cast<std::size_t>(lane_set)].front();
    // Whose stream the lead's is: of the role among the places that has this lane.
    const auto place = std::ranges::find_if(places, [&](const Place& each) {
      const LaneRange lanes = graph_.roles[static_cast<std::size_t>(each.role)];
      return lead >= lanes.begin && lead < lanes.end;
    });
    DOVETAIL_CHECK(place != places.end()) << "lane " << lead << " takes no part";
    const std::size_t used = channel(lead, place->stream);
    graph_.channels = std::max(graph_.channels, static_cast<std::int32_t>(used) + 1);
    const std::int64_t work = ~static_cast<std::int64_t>(graph_.collectives.size());
    graph_.collectives.push_back({.node = graph_.size(),
                                  .previous = last_collective_[used],
                                  .isolated = transfer.time.isolated.count(),
                                  .back_to_back = transfer.time.back_to_back.count(),
                                  .lanes = lane_set,
                                  .latency = transfer.latency.count()});
    work_ns_ +=
        static_cast<double>(std::max(transfer.time.isolated, transfer.time.back_to_back).count());
    add_demands(graph_.collectives.back(), places, group, transfer);
    for (const Place& each : places) {
      for (const std::int32_t lane : graph_.lane_sets[static_cast<std::size_t>(lane_set)]) {
        const LaneRange lanes = graph_.roles[static_cast<std::size_t>(each.role)];
        if (lane < lanes.begin || lane >= lanes.end) continue;
        last_collective_[channel(lane, each.stream)] = graph_.size();
      }
    }
    add_node(work, release, ~static_cast<std::int32_t>(used), models::KernelClass::Other);
  }
  // Nodes belong to the first entry.
  for (std::size_t n = static_cast<std::size_t>(first); n < graph_.command_node.size(); ++n) {
    graph_.command_node[n] = self;
  }
  return self;
}

void GraphBuilder::add_demands(CollectiveNode& node, std::span<const Place> places,
                               const schedule::ProcessGroup& group, const TransferCost& transfer) {
  node.first_demand = static_cast<std::int32_t>(graph_.demands.size());
  for (const std::int32_t lane : graph_.lane_sets[static_cast<std::size_t>(node.lanes)]) {
    const auto place = std::ranges::find_if(places, [&](const Place& each) {
      const LaneRange lanes = graph_.roles[static_cast<std::size_t>(each.role)];
      return lane >= lanes.begin && lane < lanes.end;
    });
    if (place == places.end()) continue;
    bool sends = true;
    bool receives = true;
    if (transfer.sender) {
      const Rank rank = graph_.rank_of_lane[static_cast<std::size_t>(lane)];
      const std::span<const Rank> peers = group.instance_of(rank);
      sends = !peers.empty() && peers[static_cast<std::size_t>(*transfer.sender)] == rank;
      receives = !sends;
    }
    for (const models::LinkLoad& load : transfer.loads) {
      const auto out =
          static_cast<std::size_t>(lane) * links_ + static_cast<std::size_t>(load.link);
      for (const bool in : {false, true}) {
        if (!(in ? receives : sends) || load.share <= 0) continue;
        const std::size_t resource = 2 * out + (in ? 1 : 0);
        graph_.demands.push_back({static_cast<std::int32_t>(resource), load.share});
        std::int32_t& first = loaded_by_[resource];
        graph_.shares_links = graph_.shares_links || (first >= 0 && first != place->stream.value);
        first = place->stream.value;
      }
    }
  }
  node.demands = static_cast<std::int32_t>(graph_.demands.size()) - node.first_demand;
}

// What an entry waits for, on one lane. A shared collective stands in the list once.
void GraphBuilder::append_dependencies_of(std::size_t entry, std::int32_t lane) {
  for (std::int32_t k = dependency_begin_[entry]; k < dependency_begin_[entry + 1]; ++k) {
    graph_.predecessors.push_back(graph_.on_rank(dependencies_[static_cast<std::size_t>(k)], lane));
  }
}

// Of a collective: what each of its lanes waits for, in each of the roles that meet.
void GraphBuilder::append_predecessors(std::size_t entry, std::int32_t node) {
  const CommandNode& first = graph_.command_nodes[entry];
  const auto begin = static_cast<std::ptrdiff_t>(graph_.predecessors.size());
  const CollectiveNode& collective =
      graph_.collectives[static_cast<std::size_t>(~graph_.work[static_cast<std::size_t>(node)])];
  const auto& lane_set = graph_.lane_sets[static_cast<std::size_t>(collective.lanes)];
  for (std::size_t side = entry; side < graph_.command_nodes.size(); ++side) {
    if (graph_.command_nodes[side].first != first.first) break;
    const LaneRange lanes = graph_.lanes_of(graph_.command_nodes[side]);
    for (std::int32_t k = dependency_begin_[side]; k < dependency_begin_[side + 1]; ++k) {
      const std::int32_t dependency = dependencies_[static_cast<std::size_t>(k)];
      const CommandNode& from = graph_.command_nodes[static_cast<std::size_t>(dependency)];
      if (from.count == 1) {
        graph_.predecessors.push_back(from.first);
        continue;
      }
      for (const std::int32_t lane : lane_set) {
        if (lane < lanes.begin || lane >= lanes.end) continue;
        graph_.predecessors.push_back(graph_.on_rank(dependency, lane));
      }
    }
  }
  if (first.count == 1 && graph_.roles.size() == 1) return;  // no collective can stand there twice
  const auto list = graph_.predecessors.begin() + begin;
  std::sort(list, graph_.predecessors.end());
  graph_.predecessors.erase(std::unique(list, graph_.predecessors.end()),
                            graph_.predecessors.end());
}

// All dependencies between single nodes, in both directions.
Graph GraphBuilder::link() {
  check_run(work_ns_ + static_cast<double>(released_));  // no engine's clock passes that
  const auto nodes = static_cast<std::size_t>(graph_.size());
  dependency_begin_.push_back(static_cast<std::int32_t>(dependencies_.size()));
  graph_.pending.assign(nodes, 0);
  graph_.predecessors.reserve(dependencies_.size() * static_cast<std::size_t>(graph_.ranks) /
                              graph_.roles.size());
  graph_.predecessor_begin.reserve(nodes + 1);
  NodeId next = 0;
  for (std::size_t c = 0; c < graph_.command_nodes.size(); ++c) {
    const CommandNode& entry = graph_.command_nodes[c];
    if (entry.first < next) continue;  // another side of the collective before it
    const LaneRange lanes = graph_.lanes_of(entry);
    for (std::int32_t i = 0; i < entry.count; ++i, ++next) {
      const std::size_t begin = graph_.predecessors.size();
      graph_.predecessor_begin.push_back(static_cast<std::int32_t>(begin));
      if (entry.kind == NodeKind::Collective) {
        append_predecessors(c, next);
      } else {
        append_dependencies_of(c, lanes.begin + i);
      }
      graph_.pending[static_cast<std::size_t>(next)] =
          static_cast<std::int32_t>(graph_.predecessors.size() - begin);
    }
  }
  graph_.predecessor_begin.push_back(static_cast<std::int32_t>(graph_.predecessors.size()));
  link_successors();
  return std::move(graph_);
}

void GraphBuilder::link_successors() {
  const auto nodes = static_cast<std::size_t>(graph_.size());
  std::vector<std::int32_t> next(nodes + 1, 0);  // where the next successor of each node goes
  for (const std::int32_t from : graph_.predecessors) ++next[static_cast<std::size_t>(from) + 1];
  std::partial_sum(next.begin(), next.end(), next.begin());
  graph_.successor_begin.assign(next.begin(), next.end());
  graph_.successors.resize(graph_.predecessors.size());
  for (std::size_t node = 0; node < nodes; ++node) {
    for (const std::int32_t from : graph_.predecessors_of(static_cast<NodeId>(node))) {
      graph_.successors[static_cast<std::size_t>(next[static_cast<std::size_t>(from)]++)] =
          static_cast<std::int32_t>(node);
    }
  }
}

void Graph::clear() {
  ranks = steps = channels = 1;
  launch_gap = 0;
  resources = 0;
  shares_links = false;
  kernel.clear();
  demands.clear();
  for (auto* list : {&work, &release}) list->clear();
  for (auto* list : {&pending, &successor_begin, &successors, &predecessor_begin, &predecessors,
                     &command_node, &slot}) {
    list->clear();
  }
  rank_of_lane.clear();
  roles.clear();
  collectives.clear();
  command_nodes.clear();
  waits.clear();
  lane_sets.clear();
  instances.clear();
}

}  // namespace dovetail::sim

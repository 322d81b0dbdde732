// Every node gets its edges when it is added: all that it waits for stands before it.
//
// A command that several lanes carry out waits on each lane for that lane's nodes only; a transfer waits for the nodes
// of all its lanes, in every role that meets in it.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/command_graph.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "sim/player.h"

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

void CompiledProgram::clear() {
  graph.clear();
  rank_of_lane.clear();
  roles.clear();
  command_nodes.clear();
  waits.clear();
  wait_entries.clear();
  instances.clear();
}

CommandGraph::CommandGraph(const Lanes& lanes, std::size_t streams, std::size_t links,
                           CompiledProgram memory)
    : lanes_(lanes), streams_(streams), links_(links), made_(std::move(memory)) {
  made_.clear();
  made_.rank_of_lane = lanes.ranks();
  made_.roles = lanes.roles();
  made_.graph.lanes = lanes.count();
  made_.graph.resources = static_cast<std::int32_t>(lanes.ranks().size() * links_ * 2);
  add_slots();
  frontier_.resize(lanes.roles().size() * streams_);
  last_transfer_.resize(lanes.ranks().size() * streams_);
  loaded_by_.resize(static_cast<std::size_t>(made_.graph.resources));
  traffic_.resize(streams_);
}

// The compute stream of each lane; then, lane by lane, each stream for what is no transfer and each for what is.
void CommandGraph::add_slots() {
  std::vector<step::Slot>& slots = made_.graph.slots;
  for (std::int32_t lane = 0; lane < lanes_.count(); ++lane) {
    slots.push_back({step::SlotKind::Compute, lane, schedule::kComputeStream});
  }
  for (const step::SlotKind kind : {step::SlotKind::Stream, step::SlotKind::Transfers}) {
    for (std::int32_t lane = 0; lane < lanes_.count(); ++lane) {
      for (std::size_t stream = 0; stream < streams_; ++stream) {
        slots.push_back({kind, lane, StreamId{static_cast<std::int32_t>(stream)}});
      }
    }
  }
}

step::SlotId CommandGraph::slot(step::SlotKind kind, std::int32_t lane, StreamId stream) const {
  if (kind == step::SlotKind::Compute) return lane;
  const std::size_t before =
      lanes_.ranks().size() * (kind == step::SlotKind::Transfers ? 1 + streams_ : std::size_t{1});
  return static_cast<step::SlotId>(before + channel(lane, stream));
}

std::vector<std::int32_t> CommandGraph::waited_for(std::int32_t role, StreamId stream) {
  std::vector<std::int32_t> entries;
  for (const Waited& each : frontier(role, stream)) entries.push_back(each.entry);
  return entries;
}

EntryRange CommandGraph::note_waited_for(std::int32_t role, StreamId stream) {
  std::vector<std::int32_t>& entries = made_.wait_entries;
  const auto begin = static_cast<std::int32_t>(entries.size());
  for (const Waited& each : frontier(role, stream)) entries.push_back(each.entry);
  return {begin, static_cast<std::int32_t>(entries.size())};
}

void CommandGraph::wait_for(std::int32_t role, StreamId stream, std::int32_t entry,
                            step::EdgeKind kind) {
  std::vector<Waited>& waits = frontier(role, stream);
  if (std::ranges::find(waits, entry, &Waited::entry) == waits.end())
    waits.push_back({entry, kind});
}

void CommandGraph::follow(std::int32_t role, StreamId stream, StreamId of) {
  for (const Waited& each : frontier(role, of)) {
    wait_for(role, stream, each.entry, step::EdgeKind::Event);
  }
}

void CommandGraph::open_entry(const Place& place, NodeId first, std::int32_t count,
                              std::optional<std::int32_t> instances) {
  const auto self = static_cast<std::int32_t>(made_.command_nodes.size());
  made_.command_nodes.push_back(
      {place.command, place.step, first, count, place.stream, place.role, instances, place.issued});
  released_ = std::max(released_, place.issued);
  frontier(place.role, place.stream).assign(1, {self, step::EdgeKind::Order});
}

void CommandGraph::edges_on(const Place& place, std::int32_t lane) {
  for (const Waited& each : frontier(place.role, place.stream)) {
    edges_.push_back({made_.on_lane(each.entry, lane), each.kind});
  }
}

void CommandGraph::sort_edges() {
  if (edges_.size() < 2) return;
  std::ranges::sort(edges_, {}, &step::Edge::from);
  const auto same = [](const step::Edge& a, const step::Edge& b) { return a.from == b.from; };
  edges_.erase(std::unique(edges_.begin(), edges_.end(), same), edges_.end());
}

std::int32_t CommandGraph::add(const Place& place, NodeKind kind,
                               std::span<const std::int64_t> work, models::KernelClass kernel) {
  const LaneRange lanes = made_.roles[static_cast<std::size_t>(place.role)];
  const auto self = static_cast<std::int32_t>(made_.command_nodes.size());
  const NodeId first = made_.graph.size();
  const bool computes = place.stream == schedule::kComputeStream;
  for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
    const std::int64_t ns =
        work[static_cast<std::size_t>(lane - lanes.begin)] + made_.graph.launch_gap;
    work_ns_ += static_cast<double>(ns);
    edges_.clear();
    edges_on(place, lane);
    sort_edges();
    made_.graph.append({.work = step::Work::fixed(ns),
                        .kind = kind,
                        .slot = slot(computes ? step::SlotKind::Compute : step::SlotKind::Stream,
                                     lane, place.stream),
                        .kernel = kernel,
                        .owner = self,
                        .release = place.issued},
                       edges_);
  }
  open_entry(place, first, lanes.end - lanes.begin, std::nullopt);
  return self;
}

std::int32_t CommandGraph::add_chain(Place place, std::span<const step::Work> work,
                                     std::span<const models::KernelClass> kernels,
                                     std::span<const std::int64_t> issued) {
  const LaneRange lanes = made_.roles[static_cast<std::size_t>(place.role)];
  const std::int32_t width = lanes.end - lanes.begin;
  const auto self = static_cast<std::int32_t>(made_.command_nodes.size());
  for (const step::Work each : work) work_ns_ += static_cast<double>(each.ns());
  for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
    edges_.clear();
    edges_on(place, lane);
    sort_edges();
    made_.graph.append({.work = work[static_cast<std::size_t>(lane - lanes.begin)],
                        .kind = NodeKind::Compute,
                        .slot = slot(step::SlotKind::Compute, lane, place.stream),
                        .kernel = kernels.front(),
                        .owner = self,
                        .release = issued.empty() ? 0 : issued.front()},
                       edges_);
  }
  if (kernels.size() > 1) {
    made_.graph.append_chain(width, work.subspan(static_cast<std::size_t>(width)),
                             kernels.subspan(1), issued.empty() ? issued : issued.subspan(1));
  }
  if (!issued.empty()) place.issued = issued.back();
  open_entry(place, made_.graph.size() - width, width, std::nullopt);
  return self;
}

const CommandGraph::Meet& CommandGraph::meeting(const schedule::ProcessGroup& group,
                                                std::int32_t role) {
  const auto [entry, fresh] = meetings_.try_emplace({role, group.id});
  Meet& meet = entry->second;
  if (!fresh) return meet;
  Meeting meeting = lanes_.meeting(group, role);
  if (meeting.nodes() > 1) {
    meet.instances = static_cast<std::int32_t>(made_.instances.size());
    made_.instances.push_back(std::move(meeting.node_of_lane));
  }
  meet.seats = std::move(meeting.seat_of_lane);
  for (std::vector<std::int32_t>& lanes : meeting.lanes_of_node) {
    meet.lane_sets.push_back(static_cast<std::int32_t>(made_.graph.lane_sets.size()));
    made_.graph.lane_sets.push_back(std::move(lanes));
  }
  return meet;
}

namespace {

// What it takes of the GPU, and how long at least with as many thread blocks as it may have.
void take_of_gpu(TransferCost& found, const models::Multiprocessors& gpu,
                 const models::GpuMessage& message) {
  const Duration least = gpu.least_time(message);
  found.time.isolated = std::max(found.time.isolated, least);
  found.time.back_to_back = std::max(found.time.back_to_back, least);
  found.gpu = {
      .multiprocessors = static_cast<double>(gpu.ctas_of(message)) / static_cast<double>(gpu.count),
      .memory = gpu.memory_share(message, found.time.isolated)};
}

}  // namespace

TransferCost transfer_cost(const models::Costs& costs, const Message& message,
                           const schedule::ProcessGroup& group) {
  const Bytes bytes = message.bytes;
  TransferCost found{.time = costs.collective(message.kind, group, bytes)};
  const models::CollectiveKey key = costs.key(message.kind, group);
  if (const auto gpu = costs.contention(Rank{0}).multiprocessors; gpu && key.ranks > 1) {
    take_of_gpu(found, *gpu,
                {.kind = message.kind,
                 .ranks = key.ranks,
                 .nodes = key.nodes,
                 .bytes = bytes,
                 .max_ctas = message.max_ctas});
  }
  const models::CollectiveCost* cost = costs.find(key);
  if (cost == nullptr) return found;
  found.curve = static_cast<std::int32_t>(cost - costs.collectives.data());
  if (cost->loads.empty()) return found;
  found.latency = cost->time.latency(bytes);
  found.loads = cost->loads;
  return found;
}

TransferCost transfer_cost(const models::Costs& costs, const schedule::Transfer& transfer,
                           const schedule::ProcessGroup& group) {
  const models::CollectiveKey key = costs.key(transfer.kind, group);
  TransferCost found =
      transfer_cost(costs,
                    Message{.kind = transfer.kind,
                            .bytes = models::without_copies(transfer.bytes, transfer.copies, key),
                            .max_ctas = transfer.max_ctas},
                    group);
  if (transfer.kind == schedule::Collective::SendRecv) found.sender = transfer.root;
  return found;
}

std::int32_t CommandGraph::add_collective(std::span<const Place> places,
                                          const schedule::ProcessGroup& group,
                                          const TransferCost& cost) {
  const auto self = static_cast<std::int32_t>(made_.command_nodes.size());
  const Meet& meet = meeting(group, places.front().role);
  const NodeId first = made_.graph.size();
  for (const std::int32_t lane_set : meet.lane_sets) {
    add_transfer(places, meet, cost, lane_set, self);
  }
  for (const Place& place : places) {
    open_entry(place, first, static_cast<std::int32_t>(meet.lane_sets.size()), meet.instances);
  }
  return self;
}

void CommandGraph::add_transfer(std::span<const Place> places, const Meet& meet,
                                const TransferCost& cost, std::int32_t lane_set,
                                std::int32_t owner) {
  const std::vector<std::int32_t>& lanes =
      made_.graph.lane_sets[static_cast<std::size_t>(lane_set)];
  const NodeId self = made_.graph.size();
  const std::int32_t lead = lanes.front();
  std::optional<StreamId> stream;  // of the lead
  std::optional<NodeId> previous;
  std::int64_t release = 0;
  edges_.clear();
  for (const Place& place : places) {
    release = std::max(release, place.issued);
    const LaneRange theirs = made_.roles[static_cast<std::size_t>(place.role)];
    for (const std::int32_t lane : lanes) {
      if (!theirs.contains(lane)) continue;
      edges_on(place, lane);
      std::optional<NodeId>& last = last_transfer_[channel(lane, place.stream)];
      if (lane == lead && !stream) {
        stream = place.stream;
        previous = last;
      }
      last = self;
    }
  }
  DOVETAIL_CHECK(stream) << "lane " << lead << " takes no part";
  sort_edges();
  work_ns_ += static_cast<double>(std::max(cost.time.isolated, cost.time.back_to_back).count());
  find_demands(places, meet, cost, lanes);
  for (const Place& place : places) count_traffic(place.stream, cost.gpu.memory);
  made_.graph.append({.kind = NodeKind::Transfer,
                      .slot = slot(step::SlotKind::Transfers, lead, *stream),
                      .owner = owner,
                      .release = release},
                     {.previous = previous,
                      .isolated = cost.time.isolated.count(),
                      .back_to_back = cost.time.back_to_back.count(),
                      .latency = cost.latency.count(),
                      .gpu = cost.gpu,
                      .curve = cost.curve,
                      .lanes = lane_set},
                     demands_, edges_);
}

// Memory holds back nobody where an op that streams, which takes what is left, has at least as much as each transfer.
void CommandGraph::count_traffic(StreamId stream, double memory) {
  double& most = traffic_[static_cast<std::size_t>(stream.value)];
  if (memory <= most) return;
  most = memory;
  const double sum = std::accumulate(traffic_.begin(), traffic_.end(), 0.0);
  made_.graph.shares_memory |= sum + std::ranges::max(traffic_) > 1;
}

void CommandGraph::find_demands(std::span<const Place> places, const Meet& meet,
                                const TransferCost& cost, std::span<const std::int32_t> lanes) {
  demands_.clear();
  if (cost.loads.empty()) return;
  for (const std::int32_t lane : lanes) {
    const auto place = std::ranges::find_if(places, [&](const Place& each) {
      return made_.roles[static_cast<std::size_t>(each.role)].contains(lane);
    });
    if (place == places.end()) continue;
    const bool sends = !cost.sender || meet.seats[static_cast<std::size_t>(lane)] == cost.sender;
    const bool receives = !cost.sender || !sends;
    for (const models::LinkLoad& load : cost.loads) {
      const auto out =
          static_cast<std::size_t>(lane) * links_ + static_cast<std::size_t>(load.link);
      for (const bool in : {false, true}) {
        if (!(in ? receives : sends) || load.share <= 0) continue;
        const std::size_t resource = 2 * out + (in ? 1 : 0);
        demands_.push_back({static_cast<std::int32_t>(resource), load.share});
        std::optional<StreamId>& loaded = loaded_by_[resource];
        made_.graph.shares_links |= loaded && *loaded != place->stream;
        loaded = place->stream;
      }
    }
  }
}

bool CommandGraph::ends_alike() {
  std::swap(before_, end_);
  end_ = {.all = {static_cast<std::size_t>(made_.graph.size()), made_.command_nodes.size(),
                  made_.waits.size()},
          .work_ns = work_ns_,
          .frontier = frontier_,
          .last_transfer = last_transfer_};
  end_.step = {end_.all.nodes - before_.all.nodes, end_.all.entries - before_.all.entries,
               end_.all.waits - before_.all.waits};
  for (std::vector<Waited>& waits : end_.frontier) {
    for (Waited& each : waits) each.entry -= static_cast<std::int32_t>(end_.all.entries);
  }
  for (std::optional<NodeId>& last : end_.last_transfer) {
    if (last) *last -= static_cast<NodeId>(end_.all.nodes);
  }
  return end_.step == before_.step && end_.frontier == before_.frontier &&
         end_.last_transfer == before_.last_transfer;
}

void CommandGraph::reserve_steps(std::int32_t steps) {
  const auto more = static_cast<std::size_t>(steps - made_.graph.steps());
  made_.graph.reserve_steps(steps);
  made_.command_nodes.reserve(made_.command_nodes.size() + more * end_.step.entries);
  made_.waits.reserve(made_.waits.size() + more * end_.step.waits);
}

void CommandGraph::repeat_step(const std::function<std::int64_t(const CommandNode&)>& issued) {
  const auto shift = static_cast<std::int32_t>(end_.step.entries);
  const auto nodes = static_cast<NodeId>(end_.step.nodes);
  StepGraph& graph = made_.graph;
  graph.repeat_step(shift);
  if (!graph.release.empty()) std::fill(graph.release.end() - nodes, graph.release.end(), 0);
  for (std::size_t i = 0; i < end_.step.entries; ++i) {
    CommandNode entry = made_.command_nodes[made_.command_nodes.size() - end_.step.entries];
    ++entry.step;
    entry.first += nodes;
    entry.issued = issued(entry);
    released_ = std::max(released_, entry.issued);
    graph.hold(entry.first, entry.count, entry.issued);
    made_.command_nodes.push_back(entry);
  }
  const auto later = [&](EntryRange range) {
    const auto begin = static_cast<std::int32_t>(made_.wait_entries.size());
    for (std::int32_t at = range.begin; at < range.end; ++at) {
      made_.wait_entries.push_back(made_.wait_entries[static_cast<std::size_t>(at)] + shift);
    }
    return EntryRange{begin, static_cast<std::int32_t>(made_.wait_entries.size())};
  };
  for (std::size_t i = 0; i < end_.step.waits; ++i) {
    WaitRecord wait = made_.waits[made_.waits.size() - end_.step.waits];
    ++wait.step;
    wait.stream_before = later(wait.stream_before);
    wait.event = later(wait.event);
    if (wait.wake_up) *wait.wake_up += shift;
    made_.waits.push_back(wait);
  }
  work_ns_ += end_.work_ns - before_.work_ns;
}

void CommandGraph::restart() {
  made_.graph.truncate(0);
  made_.graph.shares_links = made_.graph.shares_memory = false;
  made_.command_nodes.clear();
  made_.waits.clear();
  made_.wait_entries.clear();
  work_ns_ = 0;
  released_ = 0;
  for (std::vector<Waited>& waits : frontier_) waits.clear();
  std::ranges::fill(last_transfer_, std::nullopt);
  std::ranges::fill(loaded_by_, std::nullopt);
  std::ranges::fill(traffic_, 0);
}

const CompiledProgram& CommandGraph::complete() {
  check_run(work_ns_ + static_cast<double>(released_));  // no player's clock passes that
  if (needs_rates(made_.graph)) made_.graph.link();
  return made_;
}

const CompiledProgram& CommandGraph::linked() {
  check_run(work_ns_ + static_cast<double>(released_));
  made_.graph.link();
  return made_;
}

CompiledProgram CommandGraph::take() { return std::move(made_); }

}  // namespace dovetail::sim

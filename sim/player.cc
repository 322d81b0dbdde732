// Both ways of playing a StepGraph: one pass in node order, and the event loop with rates.
//
// In the event loop every node in flight has work left, a rate, and the moment when both were last true. A change of
// rate settles the progress so far and puts a new end into the queue; the old end stays there and is recognised as
// stale, because it is no longer the node's end. So a change of rate costs one entry of the queue.
//
// A transfer and a lane slow each other down if the lane takes part in it; transfers that load the same link share it
// (rates.h), and the pause before one is that of its links too. Where memory may hold back a transfer it is shared by what the walk
// below finds, and anew where an op that streams begins or ends. What a change can reach is found by walking from lane to transfer
// to lane, and only there rates are solved anew. What runs on another stream without being a transfer (the scale of a bucket behind its collective)
// neither slows anything down nor is slowed down.
//
// Invariant, whenever time moves on: every rate is that of the set of nodes in flight, by rates.h.
//
// Absences (absences.h) are a policy of the loop. What an absent lane computes stands still: its rate is 0 and it has
// no end until the core is back. Their events have keys beyond those of all nodes.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/player.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/interruption.h"
#include "sim/rates.h"

namespace dovetail::sim {
namespace {

using step::SlotId;
using step::SlotKind;
using step::StepGraph;
using step::Transfer;
using step::Work;

// In 2^-20 ns it fits 63 bits, and so does its end when it is rounded up.
constexpr std::int64_t kLargestWork = (std::int64_t{1} << (62 - kFractionBits)) - 1;

// The end of what stands still.
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// Before the first transfer: longer than any time that is added to it.
constexpr std::int64_t kLongPause = kNever / 2;

// How long a node takes that begins at `start`, alone. Only a transfer looks at what was before it.
inline std::int64_t duration_at(const StepGraph& graph, const Timeline& timeline, Work work,
                                std::int64_t start) {
  if (!work.is_transfer()) [[likely]]
    return work.ns();
  const Transfer& transfer = graph.transfers[work.index()];
  if (!transfer.previous) return transfer.isolated;
  return transfer.duration(start - timeline.end_of(*transfer.previous));
}

// Whether hosts limit anything and edges have lags is known per graph, so the common case has no look-up.
template <bool kReleases, bool kLags>
std::int64_t in_order(const StepGraph& graph, Timeline& timeline, std::size_t from) {
  const std::int32_t* const begin = graph.predecessor_begin.data();
  const NodeId* const predecessors = graph.predecessors.data();
  std::int64_t last = 0;
  const auto nodes = static_cast<std::size_t>(graph.size());
  for (std::size_t node = from; node < nodes; ++node) {
    std::int64_t start = kReleases ? graph.release[node] : 0;
    for (std::int32_t k = begin[node]; k < begin[node + 1]; ++k) {
      std::int64_t lets = timeline.end[static_cast<std::size_t>(predecessors[k])];
      if constexpr (kLags) lets += graph.lag[static_cast<std::size_t>(k)];
      start = std::max(start, lets);
    }
    const std::int64_t end = start + duration_at(graph, timeline, graph.work[node], start);
    timeline.start[node] = start;
    timeline.end[node] = end;
    last = std::max(last, end);
  }
  return last;
}

// One node in flight.
struct Flight {
  NodeId node = 0;
  bool idle = true;
  bool begun = true;      // of a transfer: all its lanes were there at once
  std::int64_t left = 0;  // work still to do, in 2^-20 ns
  std::int64_t rate = kFullRate;
  std::int64_t since = 0;                 // when `left` and `rate` were last true
  std::array<std::int32_t, 3> busy = {};  // of a transfer: how many of its lanes compute, by class
  std::int64_t patience = 0;              // of a transfer: until then it may wait for thread blocks
  std::int32_t held_by = 0;               // of one that does: how many products it waits for
  std::int64_t alone = 1;                 // of a transfer: its duration at full rate, in ns
  double share = 1;                       // of a transfer: its rate as far as links and memory go
  double wire = 0;                        // of a transfer: the share of `alone` that is no latency

  [[nodiscard]] bool runs(NodeId which) const { return !idle && node == which; }
  [[nodiscard]] bool waits() const { return held_by > 0; }
  void settle(std::int64_t now) {
    left = std::max<std::int64_t>(0, left - (now - since) * rate);
    since = now;
  }
  // Rounded up. Most nodes run at the full rate, where a shift does for the division.
  [[nodiscard]] std::int64_t end() const {
    if (rate == kFullRate) return since + ((left + kFullRate - 1) >> kFractionBits);
    return since + (left + rate - 1) / rate;
  }
};

// One link of one lane, in one direction.
struct LinkUse {
  std::int32_t in_flight = 0;
  std::optional<std::int64_t> ended = {};  // the last transfer that has
};

// Presence: AlwaysThere or Presences (absences.h).
template <class Presence>
class EventLoop {
 public:
  EventLoop(const StepGraph& graph, Workspace& workspace, Presence presence)
      : graph_(graph),
        timeline_(workspace.timeline),
        pending_(workspace.pending),
        queue_(workspace.queue),
        events_(workspace.events),
        presence_(std::move(presence)),
        contention_(graph.contention),
        flights_(graph.slots.size()),
        transfers_on_(static_cast<std::size_t>(graph.lanes)),
        taken_(static_cast<std::size_t>(graph.lanes)),
        left_(static_cast<std::size_t>(graph.lanes)),
        shares_(static_cast<std::size_t>(graph.resources)),
        links_(graph.shares_links ? static_cast<std::size_t>(graph.resources) : 0),
        reached_(static_cast<std::size_t>(graph.lanes), 0),
        is_reached_(graph.slots.size(), 0) {
    contention_.resize(static_cast<std::size_t>(graph.lanes));
    for (const models::Contention& lane : contention_) {
      for (const models::KernelClass kernel : kAllOf<models::KernelClass>) {
        double& slowest = beside_[static_cast<std::size_t>(kernel)];
        slowest = std::max(slowest, lane.collective_slowdown_beside(kernel));
      }
      start_delay_ = std::max(start_delay_, lane.start_delay.count());
    }
    slows_transfers_ = std::ranges::any_of(beside_, [](double slowdown) { return slowdown != 1; });
  }

  std::int64_t run() {
    throw_if_interrupted();
    prepare();
    for (NodeId node = 0; node < graph_.size(); ++node) {
      if (pending_[static_cast<std::size_t>(node)] == 0) release(node, 0);
    }
    if constexpr (Presence::kCanLeave) presence_.begin(expectation());
    std::int64_t now = 0;
    while (!queue_.empty() && finished_ < graph_.size()) {
      const Event event = queue_.top();
      top_is_handled_ = true;
      if ((++events_ & 0xfff) == 0) throw_if_interrupted();
      if (handle(event)) now = event.time;
      if (top_is_handled_) queue_.pop();
      top_is_handled_ = false;
    }
    return now;
  }

 private:
  void prepare() {
    const auto nodes = static_cast<std::size_t>(graph_.size());
    DOVETAIL_CHECK(graph_.successor_begin.size() == nodes + 1) << "the graph is not linked";
    timeline_.start.assign(nodes, 0);
    timeline_.end.assign(nodes, 0);
    pending_.resize(nodes);
    for (std::size_t n = 0; n < nodes; ++n) {
      pending_[n] = graph_.predecessor_begin[n + 1] - graph_.predecessor_begin[n];
    }
    queue_.clear();
    events_ = 0;
  }

  // False for an end that no longer holds.
  bool handle(const Event& event) {
    if (event.key < 0) {
      end_patience(~event.key, event.time);
      return false;
    }
    const NodeId node = event.key / 2;
    if constexpr (Presence::kCanLeave) {
      if (node >= graph_.size()) {
        change_presence(event);
        return false;
      }
    }
    if (event.key % 2 == 0) {
      start(node, event.time);
      return true;
    }
    if (timeline_.end_of(node) != event.time || !flight(node).runs(node)) return false;
    if (graph_.is_transfer(node) && any_away(node)) {
      stand_still(flight(node), event.time);  // nobody notices its end before all are back
      return false;
    }
    finish(node, event.time);
    return true;
  }

  // What the policy calls with the number and time of a change.
  auto expectation() {
    return [this](std::int32_t number, std::int64_t time) {
      push({time, 2 * graph_.size() + number});
    };
  }

  void change_presence(const Event& event) {
    if constexpr (Presence::kCanLeave) {
      presence_.change(event.key - 2 * graph_.size(), expectation());
    }
    for (Flight& each : flights_) {
      if (each.idle || !graph_.is_transfer(each.node)) continue;
      each.begun = each.begun || !any_away(each.node);
      each.settle(event.time);
      each.rate = transfer_rate(each);
      schedule_end(each);
    }
    for (std::int32_t lane = 0; lane < graph_.lanes; ++lane) take_from(lane, event.time);
  }

  [[nodiscard]] bool any_away(NodeId transfer) const {
    if constexpr (Presence::kCanLeave) {
      return std::ranges::any_of(graph_.lanes_of(transfer),
                                 [this](std::int32_t lane) { return presence_.away(lane); });
    }
    return false;
  }

  void stand_still(Flight& slot, std::int64_t now) {
    slot.settle(now);
    slot.rate = 0;
    schedule_end(slot);
  }

  // The event at the top has been handled: the first new one takes its place.
  void push(const Event& event) {
    if (top_is_handled_) {
      queue_.replace_top(event);
      top_is_handled_ = false;
    } else {
      queue_.push(event);
    }
  }

  // An inline collective is a transfer too: nothing else is on the compute stream meanwhile.
  [[nodiscard]] bool is_compute(SlotId slot) const { return slot < graph_.lanes; }
  [[nodiscard]] SlotId slot_of(NodeId node) const {
    return graph_.slot[static_cast<std::size_t>(node)];
  }
  [[nodiscard]] std::span<const std::int32_t> lanes_of(const Transfer& transfer) const {
    return graph_.lane_sets[static_cast<std::size_t>(transfer.lanes)];
  }
  Flight& on(SlotId slot) { return flights_[static_cast<std::size_t>(slot)]; }
  Flight& flight(NodeId node) { return on(slot_of(node)); }
  std::vector<SlotId>& transfers_on(std::int32_t lane) {
    return transfers_on_[static_cast<std::size_t>(lane)];
  }

  // All predecessors are done at `now`; a lag or the host may hold the node back.
  void release(NodeId node, std::int64_t now) {
    std::int64_t when = std::max(now, graph_.release_of(node));
    if (!graph_.lag.empty()) when = std::max(when, ready_at(graph_, timeline_, node));
    // The first of two transfers that begin on one link at once is the first in node order: as events they have it.
    const bool waits_its_turn = graph_.shares_links && graph_.is_transfer(node);
    if (when == now && !waits_its_turn) {
      start(node, now);
    } else {
      push({when, node * 2});
    }
  }

  void start(NodeId node, std::int64_t now) {
    const auto n = static_cast<std::size_t>(node);
    timeline_.start[n] = now;
    const bool travels = graph_.is_transfer(node);
    const std::int64_t pause = travels ? pause_before(node, now) : 0;
    const std::int64_t work = travels ? graph_.transfer(node).duration(pause) : graph_.work[n].ns();
    if (work > kLargestWork) [[unlikely]]
      refuse(work);
    const SlotId at = slot_of(node);
    Flight& slot = on(at);
    DOVETAIL_CHECK(slot.idle) << "two nodes in flight on one stream";
    slot = {.node = node,
            .idle = false,
            .left = work << kFractionBits,
            .since = now,
            .alone = std::max<std::int64_t>(work, 1)};
    if (travels) {
      if (work > 0) slot.patience = now + std::min(start_delay_, pause);
      begin_transfer(slot, at);
    } else if (is_compute(at)) {
      slot.rate = compute_rate(at);
      change_busy(at, 1, now);
      if (is_product(slot)) hold_new_transfers(at, now);
    }
    schedule_end(slot);
  }

  [[noreturn]] static void refuse(std::int64_t work) {
    throw InputError("a command lasts " + dovetail::to_string(Duration(work)) +
                     ", which is too long to simulate on a cluster with contention: at most " +
                     dovetail::to_string(Duration(kLargestWork)));
  }

  [[nodiscard]] std::span<const step::Demand> demands_of(const Transfer& transfer) const {
    return std::span(graph_.demands)
        .subspan(static_cast<std::size_t>(transfer.first_demand),
                 static_cast<std::size_t>(transfer.demands));
  }
  LinkUse& link(const step::Demand& demand) {
    return links_[static_cast<std::size_t>(demand.resource)];
  }

  // How long nothing has been in flight on the transfer's stream and, where streams share them, on the links that it loads
  // most.
  std::int64_t pause_before(NodeId node, std::int64_t now) {
    const Transfer& transfer = graph_.transfer(node);
    std::int64_t pause =
        transfer.previous ? now - timeline_.end_of(*transfer.previous) : kLongPause;
    if (!graph_.shares_links) return pause;
    const std::span<const step::Demand> demands = demands_of(transfer);
    const double most =
        demands.empty() ? 0 : std::ranges::max(demands, {}, &step::Demand::amount).amount;
    for (const step::Demand& demand : demands) {
      if (demand.amount < most) continue;
      const LinkUse& use = link(demand);
      if (use.in_flight > 0) return 0;
      if (use.ended) pause = std::min(pause, now - *use.ended);
    }
    return pause;
  }

  // It begins (1) or ends (-1).
  void count_on_links(const Transfer& transfer, std::int32_t by, std::int64_t now) {
    if (!graph_.shares_links) return;
    for (const step::Demand& demand : demands_of(transfer)) {
      link(demand).in_flight += by;
      if (by < 0) link(demand).ended = now;
    }
  }

  void begin_transfer(Flight& slot, SlotId at) {
    const Transfer& transfer = graph_.transfer(slot.node);
    count_on_links(transfer, 1, slot.since);
    const std::int64_t latency = std::min(transfer.latency, slot.alone);
    slot.wire = static_cast<double>(slot.alone - latency) / static_cast<double>(slot.alone);
    for (const std::int32_t lane : lanes_of(transfer)) {
      transfers_on(lane).push_back(at);
      if (on(lane).idle) continue;
      ++slot.busy[class_of(on(lane))];
      if (slot.patience > slot.since && is_product(on(lane))) ++slot.held_by;
    }
    if (slot.patience > slot.since) push({slot.patience, ~slot.node});
    slot.begun = !any_away(slot.node);
    slot.rate = transfer_rate(slot);
    share(lanes_of(transfer), slot.since);
  }

  [[nodiscard]] std::size_t class_of(const Flight& op) const {
    return static_cast<std::size_t>(graph_.kernel[static_cast<std::size_t>(op.node)]);
  }
  [[nodiscard]] bool is_product(const Flight& op) const {
    return class_of(op) == static_cast<std::size_t>(models::KernelClass::Gemm);
  }

  // A transfer waits for one product more or less.
  void hold(SlotId at, std::int32_t by, std::int64_t now) {
    Flight& transfer = on(at);
    const bool waited = transfer.waits();
    transfer.held_by += by;
    if (waited == transfer.waits()) return;
    if (!shares()) retime(transfer, transfer_rate(transfer), now);
    share(lanes_of(graph_.transfer(transfer.node)), now);
  }

  // Those that have begun in the instant in which a product of this lane does.
  void hold_new_transfers(std::int32_t lane, std::int64_t now) {
    for (std::size_t i = 0; i < transfers_on(lane).size(); ++i) {
      const SlotId at = transfers_on(lane)[i];
      const bool is_new = timeline_.start_of(on(at).node) == now && on(at).patience > now;
      if (is_new) hold(at, 1, now);
    }
  }

  // A product has ended: those that began beside it wait for it no longer.
  void let_go(std::int32_t lane, std::int64_t began, std::int64_t now) {
    for (std::size_t i = 0; i < transfers_on(lane).size(); ++i) {
      const SlotId at = transfers_on(lane)[i];
      if (on(at).waits() && timeline_.start_of(on(at).node) >= began) hold(at, -1, now);
    }
  }

  void end_patience(NodeId node, std::int64_t now) {
    const Flight& transfer = flight(node);
    if (transfer.runs(node) && transfer.waits()) hold(slot_of(node), -transfer.held_by, now);
  }

  [[nodiscard]] bool shares() const { return graph_.shares_links || graph_.shares_memory; }

  // What there is to share has changed on these lanes: solves for all transfers that are within
  // reach of them, and sets the rates of these and of what their lanes compute.
  void share(std::span<const std::int32_t> lanes, std::int64_t now) {
    if (shares()) {
      walk(lanes);
      solve();
      for (const SlotId at : walked_transfers_) retime(on(at), transfer_rate(on(at)), now);
      for (const std::int32_t lane : walked_lanes_) take_from(lane, now);
    } else {
      for (const std::int32_t lane : lanes) take_from(lane, now);
    }
  }

  // What the transfers of a lane take from what it computes. Those that stand still take nothing.
  void take_from(std::int32_t lane, std::int64_t now) {
    const auto l = static_cast<std::size_t>(lane);
    taken_[l] = {};
    left_[l] = {};
    for (const SlotId at : transfers_on_[l]) {
      const Flight& transfer = on(at);
      const step::GpuShare& gpu = graph_.transfer(transfer.node).gpu;
      if (transfer.waits()) {
        taken_[l].add_waiting(contention_[l], gpu);
      } else if (transfer.rate > 0) {
        taken_[l].add(contention_[l],
                      {.rate = transfer.share, .alone = transfer.alone, .gpu = gpu});
      }
    }
    retime(on(lane), compute_rate(lane), now);
  }

  // All lanes and transfers that are joined with these lanes by transfers in flight.
  void walk(std::span<const std::int32_t> lanes) {
    walked_lanes_.clear();
    walked_transfers_.clear();
    const auto reach = [this](std::int32_t lane) {
      if (std::exchange(reached_[static_cast<std::size_t>(lane)], 1) == 0) {
        walked_lanes_.push_back(lane);
      }
    };
    for (const std::int32_t lane : lanes) reach(lane);
    for (std::size_t i = 0; i < walked_lanes_.size(); ++i) {
      for (const SlotId at : transfers_on(walked_lanes_[i])) {
        if (std::exchange(is_reached_[static_cast<std::size_t>(at)], 1) != 0) continue;
        walked_transfers_.push_back(at);
        for (const std::int32_t lane : lanes_of(graph_.transfer(on(at).node))) reach(lane);
      }
    }
    for (const std::int32_t lane : walked_lanes_) reached_[static_cast<std::size_t>(lane)] = 0;
    for (const SlotId at : walked_transfers_) is_reached_[static_cast<std::size_t>(at)] = 0;
    // In a fixed order, so that rounding does not depend on where the walk began.
    std::ranges::sort(walked_transfers_);
  }

  void solve() {
    solve_links();
    if (graph_.shares_memory) solve_memory();
  }

  void solve_links() {
    if (walked_transfers_.size() < 2) {  // alone, it has the whole of its links
      for (const SlotId at : walked_transfers_) on(at).share = on(at).waits() ? 0 : 1;
      return;
    }
    shares_.clear();
    for (const SlotId at : walked_transfers_) {
      const Flight& slot = on(at);
      const Transfer& transfer = graph_.transfer(slot.node);
      shares_.add(demands_of(transfer), slot.waits() ? 0 : slot.wire / beside_compute(slot));
    }
    const std::span<const double> shares = shares_.solve();
    for (std::size_t i = 0; i < shares.size(); ++i) {
      Flight& slot = on(walked_transfers_[i]);
      slot.share = slot.waits() ? 0 : shares[i];
    }
  }

  [[nodiscard]] double traffic_of(const Flight& transfer) const {
    return graph_.transfer(transfer.node).gpu.memory;
  }
  [[nodiscard]] bool streams(std::int32_t lane) const {
    const Flight& op = flights_[static_cast<std::size_t>(lane)];
    return !op.idle && !graph_.is_transfer(op.node) &&
           graph_.kernel[static_cast<std::size_t>(op.node)] == models::KernelClass::Memory;
  }

  // A transfer goes at the pace of the slowest of its ranks.
  void solve_memory() {
    pace_.assign(walked_transfers_.size(), 1);
    for (const std::int32_t lane : walked_lanes_) {
      wants_.clear();
      for (const SlotId at : transfers_on(lane)) {
        wants_.push_back(on(at).share * traffic_of(on(at)));
      }
      const double level = memory_level(wants_, streams(lane));
      for (std::size_t i = 0; i < wants_.size(); ++i) {
        if (wants_[i] <= level) continue;
        const auto at = std::ranges::lower_bound(walked_transfers_, transfers_on(lane)[i]);
        double& pace = pace_[static_cast<std::size_t>(at - walked_transfers_.begin())];
        pace = std::min(pace, level / wants_[i]);
      }
    }
    for (std::size_t i = 0; i < pace_.size(); ++i) on(walked_transfers_[i]).share *= pace_[i];
  }

  void finish(NodeId node, std::int64_t now) {
    const SlotId at = slot_of(node);
    on(at).idle = true;
    ++finished_;
    if (graph_.is_transfer(node)) {
      count_on_links(graph_.transfer(node), -1, now);
      const std::span<const std::int32_t> lanes = lanes_of(graph_.transfer(node));
      for (const std::int32_t lane : lanes) std::erase(transfers_on(lane), at);
      share(lanes, now);
    } else if (is_compute(at)) {
      change_busy(at, -1, now);
      if (is_product(on(at))) let_go(at, timeline_.start_of(node), now);
    }
    const auto n = static_cast<std::size_t>(node);
    for (std::int32_t k = graph_.successor_begin[n]; k < graph_.successor_begin[n + 1]; ++k) {
      const NodeId next = graph_.successors[static_cast<std::size_t>(k)];
      if (--pending_[static_cast<std::size_t>(next)] == 0) release(next, now);
    }
  }

  // One lane more or less computes: its transfers may have to change their rate.
  void change_busy(std::int32_t lane, std::int32_t by, std::int64_t now) {
    const bool matters = slows_transfers_ || graph_.shares_memory;
    if (!matters || transfers_on(lane).empty()) return;
    for (const SlotId at : transfers_on(lane)) {
      Flight& transfer = on(at);
      transfer.busy[class_of(on(lane))] += by;
      if (!shares()) retime(transfer, transfer_rate(transfer), now);
    }
    if (shares()) share(std::span(&lane, 1), now);
  }

  void schedule_end(Flight& slot) {
    std::int64_t& end = timeline_.end[static_cast<std::size_t>(slot.node)];
    if (slot.rate == 0) [[unlikely]] {
      end = kNever;
      return;
    }
    end = slot.end();
    push({end, slot.node * 2 + 1});
  }

  void retime(Flight& slot, std::int64_t rate, std::int64_t now) {
    if (slot.idle || slot.rate == rate) return;
    slot.settle(now);
    slot.rate = rate;
    schedule_end(slot);
  }

  [[nodiscard]] std::int64_t compute_rate(std::int32_t lane) {
    if constexpr (Presence::kCanLeave) {
      if (presence_.away(lane)) return 0;
    }
    const auto l = static_cast<std::size_t>(lane);
    if (transfers_on_[l].empty() || flights_[l].idle) return kFullRate;
    const models::KernelClass kernel = graph_.kernel[static_cast<std::size_t>(flights_[l].node)];
    std::int64_t& rate = left_[l][static_cast<std::size_t>(kernel)];
    if (rate == 0) rate = whole_rate(taken_[l].left(kernel));
    return rate;
  }

  // How much slower the transfer is at most for what its lanes compute.
  [[nodiscard]] double beside_compute(const Flight& transfer) const {
    if (!slows_transfers_) return 1;
    double slowest = 1;
    for (std::size_t kernel = 0; kernel < beside_.size(); ++kernel) {
      if (transfer.busy[kernel] > 0) slowest = std::max(slowest, beside_[kernel]);
    }
    return slowest;
  }

  [[nodiscard]] std::int64_t transfer_rate(const Flight& transfer) const {
    if constexpr (Presence::kCanLeave) {
      const bool silent =
          std::ranges::any_of(graph_.lanes_of(transfer.node),
                              [this](std::int32_t lane) { return presence_.silent(lane); });
      if (silent || !transfer.begun) return 0;
    }
    if (transfer.waits()) return 0;
    const double slowdown = beside_compute(transfer);
    if (slowdown == 1 && transfer.share == 1) return kFullRate;
    return whole_rate(transfer.share / slowdown);
  }

  const StepGraph& graph_;
  Timeline& timeline_;
  std::vector<std::int32_t>& pending_;
  EventQueue& queue_;
  std::int64_t& events_;
  Presence presence_;
  std::vector<models::Contention> contention_;  // of each lane
  std::array<double, 3> beside_ = {1, 1, 1};    // how much slower transfers are, by class of op
  bool slows_transfers_ = false;
  std::int64_t start_delay_ = 0;
  std::vector<Flight> flights_;                    // of each slot
  std::vector<std::vector<SlotId>> transfers_on_;  // of each lane: its transfers in flight
  std::vector<Taken> taken_;                       // of each lane: what these take from it
  // Of each lane: the rate of its op by class, 0 where nobody has asked since these changed.
  std::vector<std::array<std::int64_t, 3>> left_;
  LinkShares shares_;
  std::vector<double> wants_;   // of the memory of one lane
  std::vector<double> pace_;    // of each walked transfer, as far as memory goes
  std::vector<LinkUse> links_;  // by resource; none where nothing shares them
  std::vector<std::int32_t> walked_lanes_;
  std::vector<SlotId> walked_transfers_;
  std::vector<char> reached_, is_reached_;  // lanes and slots of a walk
  bool top_is_handled_ = false;
  NodeId finished_ = 0;
};

}  // namespace

bool needs_rates(const StepGraph& graph) { return !graph.contention.empty() || graph.shares_links; }

std::int64_t play(const StepGraph& graph, Workspace& workspace, NodeId from) {
  return needs_rates(graph) ? play_with_rates(graph, workspace)
                            : play_in_order(graph, workspace, from);
}

std::int64_t play_in_order(const StepGraph& graph, Workspace& workspace, NodeId from) {
  Timeline& timeline = workspace.timeline;
  const auto first = static_cast<std::size_t>(from);
  DOVETAIL_CHECK(from <= graph.size() && first <= timeline.end.size()) << from;
  timeline.start.resize(static_cast<std::size_t>(graph.size()));
  timeline.end.resize(static_cast<std::size_t>(graph.size()));
  if (graph.lag.empty()) {
    return graph.release.empty() ? in_order<false, false>(graph, timeline, first)
                                 : in_order<true, false>(graph, timeline, first);
  }
  return graph.release.empty() ? in_order<false, true>(graph, timeline, first)
                               : in_order<true, true>(graph, timeline, first);
}

std::int64_t play_with_rates(const StepGraph& graph, Workspace& workspace) {
  return EventLoop<AlwaysThere>(graph, workspace, {}).run();
}

std::int64_t play_with_absences(const StepGraph& graph, const Absences& absences,
                                Workspace& workspace) {
  if (absences.by_lane.empty()) return play_with_rates(graph, workspace);
  DOVETAIL_CHECK(absences.by_lane.size() == static_cast<std::size_t>(graph.lanes))
      << absences.by_lane.size() << " lists of absences for " << graph.lanes << " lanes";
  return EventLoop<Presences>(graph, workspace, Presences(absences)).run();
}

}  // namespace dovetail::sim

// The event loop with rates: what is in flight together slows down together.
//
// Every node in flight has work left, a rate, and the moment when both were last true. A change of
// rate settles the progress so far and puts a new end into the queue; the old end stays there and
// is recognised as stale, because it is no longer the node's end. So the cost is one queue entry
// per change of rate.
//
// A transfer and a lane slow each other down if the lane takes part in it; transfers that load the same
// link share it (rates.h). What a change can reach is found by walking from lane to transfer to lane, and
// only there rates are solved anew. What runs on another stream without being a transfer (the scale of a
// bucket behind its collective) neither slows anything down nor is slowed down.
//
// Invariant, whenever time moves on: every rate is that of the set of nodes in flight, by rates.h.
//
// Where cores are away at times (Absences), what their lanes compute stands still meanwhile: its rate is
// 0 and it has no end until the core is back. Events of absences have keys beyond those of all nodes.
//
// Nothing may last 73 minutes or more by itself (2^42 ns): that is an InputError.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <span>

#include "base/error.h"
#include "sim/engine.h"
#include "sim/rates.h"

namespace dovetail::sim {
namespace {

// In 2^-20 ns it fits 63 bits, and so does its end when it is rounded up.
constexpr std::int64_t kLargestWork = (std::int64_t{1} << (62 - kFractionBits)) - 1;

// The end of what stands still.
constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

// One node in flight.
struct Flight {
  NodeId node = kNoNode;
  std::int64_t left = 0;  // work still to do, in 2^-20 ns
  std::int64_t rate = kFullRate;
  std::int64_t since = 0;       // when `left` and `rate` were last true
  std::int32_t busy_lanes = 0;  // of a transfer: how many of its lanes compute
  std::int64_t alone = 1;       // of a transfer: its duration at full rate, in ns
  bool begun = true;            // of a transfer: all its lanes were there at once
  double share = 1;             // of a transfer: its rate as far as links go
  double wire = 0;              // of a transfer: the share of `alone` that is no latency

  [[nodiscard]] bool idle() const { return node == kNoNode; }

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

class ContendedRun {
 public:
  ContendedRun(const Graph& graph, std::span<const models::Contention> contention,
               const Absences& absences, Workspace& workspace)
      : graph_(graph),
        timeline_(workspace.timeline),
        pending_(workspace.pending),
        queue_(workspace.queue),
        events_(workspace.events),
        contention_(contention),
        compute_(contention.size()),
        channels_on_(contention.size()),
        taken_(contention.size()),
        transfers_(static_cast<std::size_t>(graph.channels)),
        shares_(static_cast<std::size_t>(graph.resources)),
        reached_(contention.size(), 0),
        is_reached_(static_cast<std::size_t>(graph.channels), 0),
        absences_(absences),
        away_(absences.by_lane.size()) {
    for (const models::Contention& lane : contention) {
      collective_slowdown_ = std::max(collective_slowdown_, lane.collective_slowdown);
    }
    std::int32_t slots = graph.ranks;
    for (const std::int32_t slot : graph.slot) slots = std::max(slots, slot + 1);
    compute_.resize(static_cast<std::size_t>(slots));
  }

  std::int64_t run() {
    for (NodeId node = 0; node < graph_.size(); ++node) {
      if (graph_.pending[static_cast<std::size_t>(node)] == 0) release(node, 0);
    }
    for (std::size_t lane = 0; lane < away_.size(); ++lane) expect_absence(lane);
    std::int64_t now = 0;
    while (!queue_.empty() && finished_ < graph_.size()) {
      const Event event = queue_.top();
      top_is_handled_ = true;
      ++events_;
      if (handle(event)) now = event.time;
      if (top_is_handled_) queue_.pop();
      top_is_handled_ = false;
    }
    return now;
  }

 private:
  // False for an end that no longer holds.
  bool handle(const Event& event) {
    const NodeId node = event.key / 2;
    if (node >= graph_.size()) [[unlikely]] {
      change_presence(event);
      return false;
    }
    if (event.key % 2 == 0) {
      start(node, event.time);
      return true;
    }
    if (timeline_.end[static_cast<std::size_t>(node)] != event.time || !in_flight(node)) {
      return false;
    }
    if (is_transfer(node) && any_away(node)) [[unlikely]] {
      stand_still(flight(node), event.time);  // nobody notices its end before all are back
      return false;
    }
    finish(node, event.time);
    return true;
  }

  // What a lane's core does; absences come one after the other.
  struct Presence {
    std::size_t next = 0;  // absence
    bool away = false;     // it computes nothing
    bool silent = false;   // its collectives stand still too
  };
  enum class Change : std::int32_t { Leaves = 0, Silent = 1, Returns = 2 };
  static constexpr std::int32_t kChanges = 3;

  void expect(std::size_t lane, Change change, std::int64_t time) {
    push({time, 2 * graph_.size() + static_cast<std::int32_t>(lane) * kChanges +
                    static_cast<std::int32_t>(change)});
  }

  void expect_absence(std::size_t lane) {
    const std::vector<Absence>& all = absences_.by_lane[lane];
    if (away_[lane].next < all.size()) expect(lane, Change::Leaves, all[away_[lane].next].begin);
  }

  void change_presence(const Event& event) {
    const std::int32_t number = event.key - 2 * graph_.size();
    const auto lane = static_cast<std::size_t>(number / kChanges);
    Presence& presence = away_[lane];
    switch (static_cast<Change>(number % kChanges)) {
      case Change::Leaves: {
        const Absence& absence = absences_.by_lane[lane][presence.next++];
        presence.away = true;
        expect(lane, Change::Returns, absence.end);
        const std::int64_t silent = absence.begin + absences_.shield_ns;
        if (silent < absence.end) expect(lane, Change::Silent, silent);
        break;
      }
      case Change::Silent:
        presence.silent = true;
        break;
      case Change::Returns:
        presence.away = presence.silent = false;
        expect_absence(lane);
        break;
    }
    for (Flight& transfer : transfers_) {
      if (transfer.idle()) continue;
      transfer.begun = transfer.begun || !any_away(transfer.node);
      transfer.settle(event.time);
      transfer.rate = transfer_rate(transfer);
      schedule_end(transfer);
    }
    for (std::size_t of = 0; of < away_.size(); ++of) take_from(of, event.time);
  }

  [[nodiscard]] bool any_away(NodeId transfer) const {
    if (away_.empty()) return false;
    return std::ranges::any_of(lanes_of(transfer), [this](std::int32_t lane) {
      return away_[static_cast<std::size_t>(lane)].away;
    });
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

  // Inline collectives occupy the compute stream as a whole; nothing runs beside them.
  [[nodiscard]] bool is_transfer(NodeId node) const {
    return graph_.slot[static_cast<std::size_t>(node)] < 0;
  }
  // Whether it is on the compute stream of its lane.
  [[nodiscard]] bool is_compute(NodeId node) const {
    const std::int32_t slot = graph_.slot[static_cast<std::size_t>(node)];
    return slot >= 0 && slot < graph_.ranks;
  }
  [[nodiscard]] std::size_t lane_of(NodeId node) const {
    return static_cast<std::size_t>(graph_.slot[static_cast<std::size_t>(node)]);
  }
  [[nodiscard]] const CollectiveNode& collective(NodeId transfer) const {
    return graph_
        .collectives[static_cast<std::size_t>(~graph_.work[static_cast<std::size_t>(transfer)])];
  }
  [[nodiscard]] const std::vector<std::int32_t>& lanes_of(NodeId transfer) const {
    return graph_.lane_sets[static_cast<std::size_t>(collective(transfer).lanes)];
  }
  Flight& flight(NodeId node) {
    const std::int32_t slot = graph_.slot[static_cast<std::size_t>(node)];
    return slot < 0 ? transfers_[static_cast<std::size_t>(~slot)]
                    : compute_[static_cast<std::size_t>(slot)];
  }
  bool in_flight(NodeId node) { return flight(node).node == node; }

  // All predecessors are done at `now`; the host may hold the node back.
  void release(NodeId node, std::int64_t now) {
    const auto n = static_cast<std::size_t>(node);
    const std::int64_t when = graph_.release.empty() ? now : std::max(now, graph_.release[n]);
    if (when == now) {
      start(node, now);
    } else {
      push({when, node * 2});
    }
  }

  void start(NodeId node, std::int64_t now) {
    const auto n = static_cast<std::size_t>(node);
    timeline_.start[n] = now;
    std::int64_t work = graph_.work[n];
    if (work < 0) {
      const CollectiveNode& table = graph_.collectives[static_cast<std::size_t>(~work)];
      work = table.previous == kNoNode
                 ? table.isolated
                 : table.duration(now - timeline_.end[static_cast<std::size_t>(table.previous)]);
    }
    if (work > kLargestWork) [[unlikely]]
      refuse(work);
    Flight& slot = flight(node);
    DOVETAIL_CHECK(slot.idle()) << "two nodes in flight on one stream";
    slot = {.node = node,
            .left = work << kFractionBits,
            .since = now,
            .alone = std::max<std::int64_t>(work, 1)};
    if (is_transfer(node)) {
      begin_transfer(slot);
    } else if (is_compute(node)) {
      slot.rate = compute_rate(lane_of(node));
      if (collective_slowdown_ != 1) change_busy(lane_of(node), 1, now);
    }
    schedule_end(slot);
  }

  [[noreturn]] static void refuse(std::int64_t work) {
    throw InputError("a command lasts " + dovetail::to_string(Duration(work)) +
                     ", which is too long to simulate on a cluster with contention: at most " +
                     dovetail::to_string(Duration(kLargestWork)));
  }

  void begin_transfer(Flight& slot) {
    const CollectiveNode& table = collective(slot.node);
    const std::int64_t latency = std::min(table.latency, slot.alone);
    slot.wire = static_cast<double>(slot.alone - latency) / static_cast<double>(slot.alone);
    const std::int32_t channel = ~graph_.slot[static_cast<std::size_t>(slot.node)];
    for (const std::int32_t member : lanes_of(slot.node)) {
      const auto lane = static_cast<std::size_t>(member);
      channels_on_[lane].push_back(channel);
      slot.busy_lanes += compute_[lane].idle() ? 0 : 1;
    }
    slot.begun = !any_away(slot.node);
    slot.rate = transfer_rate(slot);
    share_links(lanes_of(slot.node), slot.since);
  }

  // Whose links have what to share has changed on these lanes: solves for all transfers that are within
  // reach of them, and sets the rates of these and of what their lanes compute.
  void share_links(std::span<const std::int32_t> lanes, std::int64_t now) {
    if (graph_.shares_links) {
      walk(lanes);
      solve();
    } else {
      walked_lanes_.assign(lanes.begin(), lanes.end());
      walked_channels_.clear();
    }
    for (const std::int32_t channel : walked_channels_) {
      Flight& transfer = transfers_[static_cast<std::size_t>(channel)];
      retime(transfer, transfer_rate(transfer), now);
    }
    for (const std::int32_t member : walked_lanes_) {
      take_from(static_cast<std::size_t>(member), now);
    }
  }

  // What the transfers of a lane take from what it computes. Those that stand still take nothing.
  void take_from(std::size_t lane, std::int64_t now) {
    taken_[lane] = {};
    for (const std::int32_t channel : channels_on_[lane]) {
      const Flight& transfer = transfers_[static_cast<std::size_t>(channel)];
      if (transfer.rate == 0) continue;
      taken_[lane].add(contention_[lane], transfer.share, transfer.alone);
    }
    retime(compute_[lane], compute_rate(lane), now);
  }

  // All lanes and transfers that are joined with these lanes by transfers in flight.
  void walk(std::span<const std::int32_t> lanes) {
    walked_lanes_.clear();
    walked_channels_.clear();
    const auto reach = [this](std::int32_t lane) {
      if (reached_[static_cast<std::size_t>(lane)] != 0) return;
      reached_[static_cast<std::size_t>(lane)] = 1;
      walked_lanes_.push_back(lane);
    };
    for (const std::int32_t lane : lanes) reach(lane);
    for (std::size_t i = 0; i < walked_lanes_.size(); ++i) {
      for (const std::int32_t channel : channels_on_[static_cast<std::size_t>(walked_lanes_[i])]) {
        char& is_reached = is_reached_[static_cast<std::size_t>(channel)];
        if (is_reached != 0) continue;
        is_reached = 1;
        walked_channels_.push_back(channel);
        const Flight& transfer = transfers_[static_cast<std::size_t>(channel)];
        for (const std::int32_t lane : lanes_of(transfer.node)) reach(lane);
      }
    }
    for (const std::int32_t lane : walked_lanes_) reached_[static_cast<std::size_t>(lane)] = 0;
    for (const std::int32_t channel : walked_channels_) {
      is_reached_[static_cast<std::size_t>(channel)] = 0;
    }
    // In a fixed order, so that rounding does not depend on where the walk began.
    std::ranges::sort(walked_channels_);
  }

  void solve() {
    if (walked_channels_.size() < 2) {  // alone, it has the whole of its links
      for (const std::int32_t channel : walked_channels_) {
        transfers_[static_cast<std::size_t>(channel)].share = 1;
      }
      return;
    }
    shares_.clear();
    for (const std::int32_t channel : walked_channels_) {
      const Flight& transfer = transfers_[static_cast<std::size_t>(channel)];
      const CollectiveNode& table = collective(transfer.node);
      shares_.add(std::span(graph_.demands)
                      .subspan(static_cast<std::size_t>(table.first_demand),
                               static_cast<std::size_t>(table.demands)),
                  transfer.wire / beside_compute(transfer));
    }
    const std::span<const double> shares = shares_.solve();
    for (std::size_t i = 0; i < shares.size(); ++i) {
      transfers_[static_cast<std::size_t>(walked_channels_[i])].share = shares[i];
    }
  }

  void finish(NodeId node, std::int64_t now) {
    flight(node) = {};
    ++finished_;
    if (is_transfer(node)) {
      const std::int32_t channel = ~graph_.slot[static_cast<std::size_t>(node)];
      for (const std::int32_t member : lanes_of(node)) {
        std::erase(channels_on_[static_cast<std::size_t>(member)], channel);
      }
      share_links(lanes_of(node), now);
    } else if (collective_slowdown_ != 1 && is_compute(node)) {
      change_busy(lane_of(node), -1, now);
    }
    const auto n = static_cast<std::size_t>(node);
    for (std::int32_t k = graph_.successor_begin[n]; k < graph_.successor_begin[n + 1]; ++k) {
      const NodeId next = graph_.successors[static_cast<std::size_t>(k)];
      if (--pending_[static_cast<std::size_t>(next)] == 0) release(next, now);
    }
  }

  // One lane more or less computes: its transfers may have to change their rate.
  void change_busy(std::size_t lane, std::int32_t by, std::int64_t now) {
    if (channels_on_[lane].empty()) return;
    for (const std::int32_t channel : channels_on_[lane]) {
      Flight& transfer = transfers_[static_cast<std::size_t>(channel)];
      transfer.busy_lanes += by;
      if (!graph_.shares_links) retime(transfer, transfer_rate(transfer), now);
    }
    const auto changed = static_cast<std::int32_t>(lane);
    if (graph_.shares_links) share_links(std::span(&changed, 1), now);
  }

  void schedule_end(Flight& slot) {
    if (slot.rate == 0) [[unlikely]] {
      timeline_.end[static_cast<std::size_t>(slot.node)] = kNever;
      return;
    }
    const std::int64_t end = slot.end();
    timeline_.end[static_cast<std::size_t>(slot.node)] = end;
    push({end, slot.node * 2 + 1});
  }

  void retime(Flight& slot, std::int64_t rate, std::int64_t now) {
    if (slot.idle() || slot.rate == rate) return;
    slot.settle(now);
    slot.rate = rate;
    schedule_end(slot);
  }

  [[nodiscard]] std::int64_t compute_rate(std::size_t lane) const {
    if (!away_.empty() && away_[lane].away) return 0;
    if (channels_on_[lane].empty() || compute_[lane].idle()) return kFullRate;
    const auto node = static_cast<std::size_t>(compute_[lane].node);
    return whole_rate(taken_[lane].left(graph_.kernel[node]));
  }

  // How much slower the transfer is at most for what its lanes compute.
  [[nodiscard]] double beside_compute(const Flight& transfer) const {
    return transfer.busy_lanes == 0 ? 1 : collective_slowdown_;
  }

  [[nodiscard]] std::int64_t transfer_rate(const Flight& transfer) const {
    if (!away_.empty()) {
      const bool silent = std::ranges::any_of(lanes_of(transfer.node), [this](std::int32_t lane) {
        return away_[static_cast<std::size_t>(lane)].silent;
      });
      if (silent || !transfer.begun) return 0;
    }
    if (transfer.busy_lanes == 0 && transfer.share == 1) return kFullRate;
    return whole_rate(transfer.share / beside_compute(transfer));
  }

  const Graph& graph_;
  Timeline& timeline_;
  std::vector<std::int32_t>& pending_;
  EventQueue& queue_;
  std::int64_t& events_;
  std::span<const models::Contention> contention_;
  double collective_slowdown_ = 1;
  std::vector<Flight> compute_;  // per lane: what its compute stream does; then other streams
  std::vector<std::vector<std::int32_t>> channels_on_;  // per lane: of its transfers in flight
  std::vector<Taken> taken_;                            // per lane: what these take from it
  std::vector<Flight> transfers_;                       // per channel: the collective in flight
  LinkShares shares_;
  std::vector<std::int32_t> walked_lanes_, walked_channels_;
  std::vector<char> reached_, is_reached_;  // lanes and channels of a walk
  bool top_is_handled_ = false;
  const Absences& absences_;
  std::vector<Presence> away_;  // per lane; empty: all are always there
  NodeId finished_ = 0;
};

}  // namespace

std::int64_t play_contended(const Graph& graph, std::span<const models::Contention> contention,
                            Workspace& workspace) {
  return play_disturbed(graph, contention, {}, workspace);
}

std::int64_t play_disturbed(const Graph& graph, std::span<const models::Contention> contention,
                            const Absences& absences, Workspace& workspace) {
  DOVETAIL_CHECK(absences.by_lane.empty() ||
                 absences.by_lane.size() == static_cast<std::size_t>(graph.ranks))
      << absences.by_lane.size() << " lists of absences for " << graph.ranks << " ranks";
  DOVETAIL_CHECK(contention.size() == static_cast<std::size_t>(graph.ranks))
      << contention.size() << " contentions for " << graph.ranks << " ranks";
  const auto nodes = static_cast<std::size_t>(graph.size());
  workspace.timeline.start.assign(nodes, 0);
  workspace.timeline.end.assign(nodes, 0);
  workspace.pending.assign(graph.pending.begin(), graph.pending.end());
  workspace.queue.clear();
  workspace.events = 0;
  return ContendedRun(graph, contention, absences, workspace).run();
}

}  // namespace dovetail::sim

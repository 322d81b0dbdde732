// Folding ranks into lanes.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/lanes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>

#include "base/error.h"

namespace dovetail::sim {
namespace {

using schedule::ProcessGroup;
using schedule::ScheduledProgram;

// Of each rank: its role and its index in it.
struct Seat {
  std::int32_t role = 0;
  std::size_t index = 0;
};
using Seats = std::map<Rank, Seat>;

Seats seats_of(const ScheduledProgram& program) {
  Seats seats;
  for (std::size_t role = 0; role < program.roles.size(); ++role) {
    const std::vector<Rank>& ranks = program.roles[role].ranks;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      seats[ranks[i]] = {static_cast<std::int32_t>(role), i};
    }
  }
  return seats;
}

// Whether exchanging the i-th with the j-th rank of every role maps the group's instances to
// themselves: each takes roles as a whole, or has one rank of each of its roles, all of one index.
bool is_symmetric(const ProcessGroup& group, const ScheduledProgram& program, const Seats& seats) {
  const auto length = static_cast<std::size_t>(group.size());
  for (std::size_t begin = 0; begin + length <= group.ranks.size(); begin += length) {
    std::map<std::int32_t, std::size_t> taken;  // ranks of each role
    std::optional<std::size_t> index;
    bool column = true;
    for (std::size_t i = begin; i < begin + length; ++i) {
      const auto seat = seats.find(group.ranks[i]);
      if (seat == seats.end()) return false;
      column = column && index.value_or(seat->second.index) == seat->second.index &&
               taken[seat->second.role] == 0;
      index = seat->second.index;
      ++taken[seat->second.role];
    }
    bool whole = true;
    for (const auto& [role, count] : taken) {
      whole = whole && count == program.roles[static_cast<std::size_t>(role)].ranks.size();
    }
    if (!whole && !column) return false;
  }
  return true;
}

bool can_fold(const ScheduledProgram& program) {
  const bool single = program.roles.size() == 1;
  // The usual case costs nothing: every group spans the one role.
  if (single && std::ranges::all_of(program.program.groups, [&](const ProcessGroup& group) {
        return group.instance_size == 0 && group.ranks.size() == program.roles.front().ranks.size();
      })) {
    return true;
  }
  const Seats seats = seats_of(program);
  return std::ranges::all_of(program.program.groups, [&](const ProcessGroup& group) {
    return group.size() == 1 || is_symmetric(group, program, seats);
  });
}

}  // namespace

Lanes::Lanes(const ScheduledProgram& program, std::int64_t distinct_ranks) : program_(program) {
  const auto distinct = static_cast<std::size_t>(std::max<std::int64_t>(1, distinct_ranks));
  const bool fold = distinct == 1 || can_fold(program);
  for (const schedule::RankProgram& role : program.roles) {
    DOVETAIL_CHECK(!role.ranks.empty()) << "a role without ranks";
    const std::size_t lanes = fold ? std::min(role.ranks.size(), distinct) : role.ranks.size();
    const std::int32_t begin = count();
    ranks_.insert(ranks_.end(), role.ranks.begin(),
                  role.ranks.begin() + static_cast<std::ptrdiff_t>(lanes));
    roles_.push_back({begin, count()});
  }
}

Meeting Lanes::folded_meeting(const ProcessGroup& group, std::int32_t role) const {
  Meeting meeting;
  meeting.node_of_lane.assign(ranks_.size(), -1);
  meeting.lanes_of_node.resize(1);
  for (std::int32_t r = 0; r < static_cast<std::int32_t>(roles_.size()); ++r) {
    const std::vector<Rank>& theirs = program_.roles[static_cast<std::size_t>(r)].ranks;
    // All ranks of a role play the same part, so its first one speaks for it.
    const std::span<const Rank> peers =
        group.instance_of(program_.roles[static_cast<std::size_t>(role)].ranks.front());
    const auto meets = [&](Rank rank) { return std::ranges::find(peers, rank) != peers.end(); };
    const bool joins = r == role || std::ranges::any_of(theirs, meets);
    if (!joins) continue;
    meeting.roles.push_back(r);
    meeting.lanes_of_node[0].push_back(r);  // a role's one lane has the role's number
    meeting.node_of_lane[static_cast<std::size_t>(r)] = 0;
  }
  return meeting;
}

Meeting Lanes::meeting(const ProcessGroup& group, std::int32_t role) const {
  if (ranks_.size() == roles_.size()) return folded_meeting(group, role);
  const auto instance_of = [&](std::int32_t lane) -> std::optional<std::int64_t> {
    const auto found = std::ranges::find(group.ranks, ranks_[static_cast<std::size_t>(lane)]);
    if (found == group.ranks.end()) return std::nullopt;
    return (found - group.ranks.begin()) / group.size();
  };
  const LaneRange mine = roles_[static_cast<std::size_t>(role)];
  std::map<std::int64_t, std::int32_t> nodes;
  for (std::int32_t lane = mine.begin; lane < mine.end; ++lane) {
    nodes.emplace(instance_of(lane).value_or(0), 0);
  }
  Meeting meeting;
  meeting.nodes = 0;
  for (auto& [instance, node] : nodes) node = meeting.nodes++;
  meeting.lanes_of_node.resize(nodes.size());
  meeting.node_of_lane.assign(ranks_.size(), -1);
  for (std::int32_t r = 0; r < static_cast<std::int32_t>(roles_.size()); ++r) {
    bool joins = false;
    const LaneRange lanes = roles_[static_cast<std::size_t>(r)];
    for (std::int32_t lane = lanes.begin; lane < lanes.end; ++lane) {
      std::optional<std::int64_t> instance = instance_of(lane);
      if (!instance && r == role) instance = 0;
      const auto node = instance ? nodes.find(*instance) : nodes.end();
      if (node == nodes.end()) continue;
      meeting.node_of_lane[static_cast<std::size_t>(lane)] = node->second;
      meeting.lanes_of_node[static_cast<std::size_t>(node->second)].push_back(lane);
      joins = true;
    }
    if (joins) meeting.roles.push_back(r);
  }
  return meeting;
}

}  // namespace dovetail::sim

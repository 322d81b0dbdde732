// Folds equal ranks into lanes where exchanging two of them changes nothing, and finds who meets.
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

using Table = std::vector<std::optional<std::int32_t>>;  // by rank

void put(Table& table, Rank rank, std::int32_t value) {
  const auto index = static_cast<std::size_t>(rank.value);
  if (index >= table.size()) table.resize(index + 1);
  table[index] = value;
}

std::optional<std::int32_t> at(const Table& table, Rank rank) {
  const auto index = static_cast<std::size_t>(rank.value);
  return index < table.size() ? table[index] : std::nullopt;
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
  for (std::int32_t lane = 0; lane < count(); ++lane) {
    put(lane_of_rank_, ranks_[static_cast<std::size_t>(lane)], lane);
  }
  if (roles_.size() == 1) return;
  for (std::size_t role = 0; role < roles_.size(); ++role) {
    for (const Rank rank : program.roles[role].ranks) {
      put(role_of_rank_, rank, static_cast<std::int32_t>(role));
    }
  }
}

void Lanes::meet_folded(const ProcessGroup& group, std::int32_t role,
                        std::optional<std::int64_t> instance, Meeting& meeting) const {
  std::vector<char> joins(roles_.size(), 0);
  joins[static_cast<std::size_t>(role)] = 1;
  if (instance && roles_.size() > 1) {
    const auto length = static_cast<std::size_t>(group.size());
    const std::size_t begin = static_cast<std::size_t>(*instance) * length;
    for (const Rank peer : std::span(group.ranks).subspan(begin, length)) {
      if (const auto theirs = at(role_of_rank_, peer)) joins[static_cast<std::size_t>(*theirs)] = 1;
      ++meeting.looks;
    }
  }
  meeting.lanes_of_node.resize(1);
  for (std::size_t r = 0; r < roles_.size(); ++r) {  // a role's one lane has the role's number
    if (joins[r] != 0) meeting.lanes_of_node[0].push_back(static_cast<std::int32_t>(r));
  }
}

Meeting Lanes::meeting(const ProcessGroup& group, std::int32_t role) const {
  Meeting meeting;
  meeting.node_of_lane.assign(ranks_.size(), 0);
  meeting.seat_of_lane.resize(ranks_.size());
  std::vector<std::optional<std::int64_t>> instance(ranks_.size());
  for (std::size_t i = 0; i < group.ranks.size(); ++i, ++meeting.looks) {
    const std::optional<std::int32_t> lane = at(lane_of_rank_, group.ranks[i]);
    if (!lane) continue;
    const auto index = static_cast<std::int64_t>(i);
    instance[static_cast<std::size_t>(*lane)] = index / group.size();
    meeting.seat_of_lane[static_cast<std::size_t>(*lane)] =
        static_cast<std::int32_t>(index % group.size());
  }
  const LaneRange mine = roles_[static_cast<std::size_t>(role)];
  if (ranks_.size() == roles_.size()) {
    // All ranks of a role play the same part, so its first one speaks for it.
    meet_folded(group, role, instance[static_cast<std::size_t>(mine.begin)], meeting);
    return meeting;
  }
  std::map<std::int64_t, std::int32_t> nodes;  // of each instance
  for (std::int32_t lane = mine.begin; lane < mine.end; ++lane) {
    auto& its = instance[static_cast<std::size_t>(lane)];
    its = its.value_or(0);
    nodes[*its] = 0;
  }
  std::int32_t next = 0;
  for (auto& [of, node] : nodes) node = next++;
  meeting.lanes_of_node.resize(nodes.size());
  for (std::int32_t lane = 0; lane < count(); ++lane, ++meeting.looks) {
    const auto l = static_cast<std::size_t>(lane);
    const auto node = instance[l] ? nodes.find(*instance[l]) : nodes.end();
    if (node == nodes.end()) continue;
    meeting.node_of_lane[l] = node->second;
    meeting.lanes_of_node[static_cast<std::size_t>(node->second)].push_back(lane);
  }
  return meeting;
}

}  // namespace dovetail::sim

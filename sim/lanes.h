// Lanes: which ranks of each role are simulated, and which of them meet in a collective.
//
// Ranks from `distinct_ranks` on behave like rank 0 (models/costs.h), so of each role only the first
// min(ranks of the role, distinct_ranks) are followed:
//   role 0  ranks 0..7   distinct 2   lanes 0 1     -> ranks 0 1
//   role 1  ranks 8..15               lanes 2 3     -> ranks 8 9
// That is exact where every process group either takes a role as a whole or pairs the i-th ranks of
// its roles, because then exchanging two equal ranks changes nothing. Where a group cuts through a
// role (tensor-parallel pairs within a data-parallel role) and ranks differ, all ranks are followed.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "schedule/scheduled_program.h"
#include "sim/graph.h"

namespace dovetail::sim {

// How one role's lanes fall into the instances of a process group.
struct Meeting {
  std::int32_t nodes = 1;  // instances that have a lane
  // Per lane of all roles: which of the nodes; -1: the lane takes part in none of them.
  std::vector<std::int32_t> node_of_lane;
  std::vector<std::vector<std::int32_t>> lanes_of_node;
  std::vector<std::int32_t> roles;  // those that meet, rising
};

class Lanes {
 public:
  // Keeps a reference to the program.
  Lanes(const schedule::ScheduledProgram& program, std::int64_t distinct_ranks);

  [[nodiscard]] const std::vector<Rank>& ranks() const { return ranks_; }
  [[nodiscard]] const std::vector<LaneRange>& roles() const { return roles_; }
  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(ranks_.size()); }

  // Who meets when this role issues a collective over the group: the lanes of those instances that
  // contain one of the role's lanes. A rank outside the group counts as of its first instance.
  [[nodiscard]] Meeting meeting(const schedule::ProcessGroup& group, std::int32_t role) const;

 private:
  // The same where every role has one lane: all instances are alike and count as one.
  [[nodiscard]] Meeting folded_meeting(const schedule::ProcessGroup& group,
                                       std::int32_t role) const;

  const schedule::ScheduledProgram& program_;
  std::vector<Rank> ranks_;  // of each lane
  std::vector<LaneRange> roles_;
};

}  // namespace dovetail::sim

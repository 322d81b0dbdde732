// Lanes: which ranks of each role are simulated, and which of them meet in a collective.
//
// Ranks from `distinct_ranks` on behave like rank 0 (models/costs/costs.h), so of each role only the first
// min(ranks of the role, distinct_ranks) are followed:
//   role 0  ranks 0..7   distinct 2   lanes 0 1     -> ranks 0 1
//   role 1  ranks 8..15               lanes 2 3     -> ranks 8 9
// That is exact where every process group either takes a role as a whole or pairs the i-th ranks of
// its roles, because then exchanging two equal ranks changes nothing. Where a group cuts through a
// role (tensor-parallel pairs within a data-parallel role) and ranks differ, all ranks are followed.
//
// Cost: a meeting looks once at the ranks of the group and at the lanes, so a compilation is linear in ranks
// for each role and group (tests/sim/lanes_test.cc).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "schedule/scheduled_program.h"

namespace dovetail::sim {

// The lanes of one role.
struct LaneRange {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  [[nodiscard]] bool contains(std::int32_t lane) const { return lane >= begin && lane < end; }
  friend bool operator==(const LaneRange&, const LaneRange&) = default;
};

// How one role's lanes fall into the instances of a process group.
struct Meeting {
  std::vector<std::vector<std::int32_t>> lanes_of_node;  // of each instance that has a lane; rising
  std::vector<std::int32_t> node_of_lane;  // of all lanes; of those that take no part 0
  std::vector<std::optional<std::int32_t>>
      seat_of_lane;        // of all lanes: index in its instance of the group
  std::int64_t looks = 0;  // at ranks and lanes, to find this

  [[nodiscard]] std::int32_t nodes() const {
    return static_cast<std::int32_t>(lanes_of_node.size());
  }
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
  // Where every role has one lane all instances are alike and count as one: which roles meet in it.
  void meet_folded(const schedule::ProcessGroup& group, std::int32_t role,
                   std::optional<std::int64_t> instance, Meeting& meeting) const;

  const schedule::ScheduledProgram& program_;
  std::vector<Rank> ranks_;  // of each lane
  std::vector<LaneRange> roles_;
  std::vector<std::optional<std::int32_t>> lane_of_rank_;  // of ranks that are simulated
  std::vector<std::optional<std::int32_t>> role_of_rank_;  // of all ranks; empty: one role
};

}  // namespace dovetail::sim

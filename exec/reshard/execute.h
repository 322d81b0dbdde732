// Carries out a ReshardPlan on real ranks: this rank's part of a tensor goes in, its part of the
// new layout comes out.
//
//   Wires wires(session, plan);                        every rank, also those outside the plan
//   std::vector<float> after = execute(plan, wires, before);
//
// Boxes that are not one run of memory are packed into a list before they travel and unpacked
// after. Collectives and messages are the calls of Transport: they block, and throw DeviceError
// naming the rank and the step, e.g. "rank 0: rank 1 closed the connection during all-to-all of
// step 1". Plans give every rank its messages in one common order, so blocking cannot end in a
// circle.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/cpu/ring.h"
#include "exec/cpu/transport.h"
#include "exec/launch/session.h"
#include "schedule/reshard/plan.h"

#include <map>
#include <memory>
#include <span>
#include <vector>

namespace dovetail::exec::reshard {

// The connections that one rank needs for a plan: one transport per group and per pair of ranks
// that exchange messages. They are opened in the same order on every rank of the session (R13).
class Wires {
 public:
  // Throws InputError when the plan names ranks that the session lacks. REQUIRES: the session
  // outlives it; every rank of the session makes the call with an equal plan.
  Wires(launch::Session& session, const schedule::reshard::ReshardPlan& plan,
        const cpu::RingOptions& options = {});

  [[nodiscard]] Rank rank() const { return rank_; }
  // REQUIRES: the rank is in the group, or exchanges messages with the peer.
  [[nodiscard]] cpu::Transport& of_group(GroupId group) const;
  [[nodiscard]] cpu::Transport& to_peer(Rank peer) const;

 private:
  Rank rank_;
  std::map<GroupId, std::unique_ptr<cpu::Transport>> groups_;
  std::map<Rank, std::unique_ptr<cpu::Transport>> peers_;
};

// What the rank holds afterwards; empty when it is not on the target mesh. Throws InputError for
// other dtypes than f32, and when `before` has another size than the plan says.
std::vector<float> execute(const schedule::reshard::ReshardPlan& plan, const Wires& wires,
                           std::span<const float> before);

}  // namespace dovetail::exec::reshard

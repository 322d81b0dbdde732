// Which communicators a plan needs, and how the ids of NCCL's reach every rank.
//
// One communicator per stream, process group and CTA limit: operations on one communicator never
// overlap, so every communication stream has its own. All ranks derive the same sorted list from
// the plan and create them in that order. The first rank of a group's instance makes the instance's
// id; ids travel once, through rank 0: every rank hands in the ids it made, in list order, and
// everyone gets all of them in rank order.
//
//   keys of a plan with two streams over "dp" of 4 ranks:  (s1, dp, any)  (s2, dp, 8 CTAs)
//   rank 0 hands in 2 ids, ranks 1 to 3 none
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "schedule/scheduled_program.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::exec {

struct CommunicatorKey {
  StreamId stream;
  GroupId group;
  std::int32_t max_ctas = 0;  // 0: NCCL decides
  friend auto operator<=>(const CommunicatorKey&, const CommunicatorKey&) = default;
};

// Sorted; of all roles together. Throws InputError when a command names a stream that is not there.
std::vector<CommunicatorKey> communicators_of(const schedule::ScheduledProgram& plan);

// Position of the key that a command runs on. REQUIRES: communicators_of gave `keys`, the command
// communicates.
std::size_t communicator_of(const schedule::ScheduledProgram& plan,
                            const std::vector<CommunicatorKey>& keys,
                            const schedule::Command& command);

inline constexpr std::size_t kIdBytes = 128;  // of an ncclUniqueId

// The ids that this rank makes, one after another. `make_id` returns kIdBytes bytes.
std::string ids_made_by(const schedule::Program& program, const std::vector<CommunicatorKey>& keys,
                        Rank rank, const std::function<std::string()>& make_id);
// The id of the rank's instance of keys[which] in `all`, the ids made by all ranks in rank order.
// Throws DeviceError when `all` is too short (ranks that hold different plans).
std::string_view id_of(const schedule::Program& program, const std::vector<CommunicatorKey>& keys,
                       Rank rank, std::size_t which, std::string_view all);

}  // namespace dovetail::exec

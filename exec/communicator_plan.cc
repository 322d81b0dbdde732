// Lists the communicators that a plan needs: one per process group and stream that communicates,
// in the same order on all ranks, with the ranks of this rank's instance.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/communicator_plan.h"

#include "base/error.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <variant>

namespace dovetail::exec {
namespace {

std::optional<CommunicatorKey> key_of(const schedule::ScheduledProgram& plan,
                                      const schedule::Command& command) {
  if (!command.transfer) return std::nullopt;
  const schedule::Transfer& transfer = plan.transfer(command);
  return CommunicatorKey{command.stream, transfer.group, transfer.max_ctas};
}

bool leads(const schedule::Program& program, GroupId group, Rank rank) {
  const std::span<const Rank> instance = program.group(group).instance_of(rank);
  return !instance.empty() && instance.front() == rank;
}

}  // namespace

std::vector<CommunicatorKey> communicators_of(const schedule::ScheduledProgram& plan) {
  std::set<CommunicatorKey> keys;
  for (const schedule::RankProgram& role : plan.roles) {
    for (const schedule::Command& command : role.commands) {
      const auto stream = static_cast<std::size_t>(command.stream.value);
      if (command.stream.value < 0 || stream >= plan.streams.size()) {
        std::ostringstream message;
        message << "command c" << command.id << ": no such stream";
        throw InputError(message.str());
      }
      const std::optional<CommunicatorKey> key = key_of(plan, command);
      if (key) keys.insert(*key);
    }
  }
  return {keys.begin(), keys.end()};
}

std::size_t communicator_of(const schedule::ScheduledProgram& plan,
                            const std::vector<CommunicatorKey>& keys,
                            const schedule::Command& command) {
  const std::optional<CommunicatorKey> key = key_of(plan, command);
  DOVETAIL_CHECK(key.has_value()) << "command c" << command.id << " does not communicate";
  const auto found = std::lower_bound(keys.begin(), keys.end(), *key);
  DOVETAIL_CHECK(found != keys.end() && *found == *key) << "command c" << command.id;
  return static_cast<std::size_t>(found - keys.begin());
}

std::string ids_made_by(const schedule::Program& program, const std::vector<CommunicatorKey>& keys,
                        Rank rank, const std::function<std::string()>& make_id) {
  std::string ids;
  for (const CommunicatorKey& key : keys) {
    if (!leads(program, key.group, rank)) continue;
    const std::string id = make_id();
    DOVETAIL_CHECK(id.size() == kIdBytes) << id.size();
    ids += id;
  }
  return ids;
}

std::string_view id_of(const schedule::Program& program, const std::vector<CommunicatorKey>& keys,
                       Rank rank, std::size_t which, std::string_view all) {
  const std::span<const Rank> instance = program.group(keys[which].group).instance_of(rank);
  DOVETAIL_CHECK(!instance.empty()) << "rank " << rank << " is not in group " << keys[which].group;
  const Rank leader = instance.front();
  std::size_t before = 0;  // ids made by earlier ranks, and by the leader for earlier keys
  for (Rank earlier{0}; earlier <= leader; ++earlier.value) {
    const std::size_t end = earlier == leader ? which : keys.size();
    for (std::size_t i = 0; i < end; ++i) {
      before += leads(program, keys[i].group, earlier) ? 1U : 0U;
    }
  }
  if ((before + 1) * kIdBytes > all.size()) {
    throw DeviceError("the ranks made fewer NCCL ids than this rank's plan needs");
  }
  return all.substr(before * kIdBytes, kIdBytes);
}

}  // namespace dovetail::exec

// The abstract run of all roles.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/issue_order.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"

namespace dovetail::sim {
namespace {

using schedule::Command;

// A collective of several roles: process group, the lowest role of its instance, stream, ~root of a
// send or 0, and the how many'th of these it is.
using Key = std::tuple<GroupId, std::int32_t, StreamId, std::int32_t, std::int32_t>;

// One entry of a stream: a command, or the enqueue of one.
struct Item {
  std::int32_t command = 0;
  bool enqueue = false;
};

struct Rendezvous {
  std::vector<std::int32_t> roles;  // that must come
  std::vector<Side> arrived;        // those that have
};

struct RoleState {
  std::vector<std::vector<Item>> streams;
  std::vector<std::size_t> done;         // per stream
  std::vector<char> enqueued;            // per command
  std::vector<std::int32_t> rendezvous;  // per command: index, or -1
  std::vector<char> arrived;             // per command: already counted at its rendezvous
  std::set<EventId> recorded;
};

class Run {
 public:
  Run(const schedule::ScheduledProgram& program, const Lanes& lanes,
      const Communications& communications, Enqueues enqueues)
      : program_(program), lanes_(lanes), communications_(communications), enqueues_(enqueues) {
    for (std::size_t role = 0; role < program.roles.size(); ++role) add_role(role);
  }

  std::vector<Issue> play() {
    while (advance()) {
    }
    for (std::size_t role = 0; role < states_.size(); ++role) {
      const RoleState& state = states_[role];
      for (std::size_t stream = 0; stream < state.streams.size(); ++stream) {
        DOVETAIL_CHECK(state.done[stream] == state.streams[stream].size())
            << "role " << role << " waits for ever on stream " << stream;
      }
    }
    return std::move(order_);
  }

 private:
  void add_role(std::size_t role) {
    const std::vector<Command>& commands = program_.roles[role].commands;
    RoleState state;
    state.streams.resize(program_.streams.size());
    state.done.assign(program_.streams.size(), 0);
    state.enqueued.assign(commands.size(), 0);
    state.arrived.assign(commands.size(), 0);
    state.rendezvous.assign(commands.size(), -1);
    std::map<Key, std::int32_t> count;
    for (std::size_t i = 0; i < commands.size(); ++i) {
      const Command& command = commands[i];
      const auto index = static_cast<std::int32_t>(i);
      if (const auto communication = communications_.of(command)) {
        if (enqueues_ == Enqueues::Timed && command.stream != schedule::kComputeStream) {
          state.streams[0].push_back({index, true});
        } else {
          state.enqueued[i] = 1;
        }
        state.rendezvous[i] = rendezvous(role, command, *communication, count);
      }
      state.streams[static_cast<std::size_t>(command.stream.value)].push_back({index, false});
    }
    states_.push_back(std::move(state));
  }

  // -1: the role meets no other one.
  std::int32_t rendezvous(std::size_t role, const Command& command,
                          const Communication& communication, std::map<Key, std::int32_t>& count) {
    const std::vector<std::int32_t>& roles = roles_meeting(role, *communication.group);
    if (roles.size() == 1) return -1;
    const bool send = communication.kind == schedule::Collective::SendRecv;
    Key key{communication.group->id, roles.front(), command.stream, send ? ~communication.root : 0,
            0};
    std::get<4>(key) = count[key]++;
    const auto [entry, fresh] = index_.emplace(key, static_cast<std::int32_t>(rendezvous_.size()));
    if (fresh) rendezvous_.push_back({roles, {}});
    return entry->second;
  }

  const std::vector<std::int32_t>& roles_meeting(std::size_t role,
                                                 const schedule::ProcessGroup& group) {
    const auto [entry, fresh] = meeting_.try_emplace({role, group.id});
    if (fresh) entry->second = lanes_.meeting(group, static_cast<std::int32_t>(role)).roles;
    return entry->second;
  }

  // One round over all streams; false when nothing moved.
  bool advance() {
    bool moved = false;
    for (std::size_t role = 0; role < states_.size(); ++role) {
      for (std::size_t stream = 0; stream < states_[role].streams.size(); ++stream) {
        while (step(role, stream)) moved = true;
      }
    }
    return moved;
  }

  // Completes the head of one stream if it can.
  bool step(std::size_t role, std::size_t stream) {
    RoleState& state = states_[role];
    if (state.done[stream] == state.streams[stream].size()) return false;
    const Item item = state.streams[stream][state.done[stream]];
    const auto at = static_cast<std::size_t>(item.command);
    const Side side{static_cast<std::int32_t>(role), item.command};
    if (item.enqueue) {
      state.enqueued[at] = 1;
      order_.push_back({Issue::Kind::Enqueue, {side}});
      ++state.done[stream];
      return true;
    }
    const Command& command = program_.roles[role].commands[at];
    if (const auto* wait = std::get_if<schedule::WaitEvent>(&command.action)) {
      if (!state.recorded.contains(wait->event)) return false;
    }
    if (communications_.of(command)) {
      if (state.enqueued[at] == 0) return false;
      if (state.rendezvous[at] >= 0) return meet(state, side);
    }
    if (const auto* record = std::get_if<schedule::RecordEvent>(&command.action)) {
      state.recorded.insert(record->event);
    }
    order_.push_back({Issue::Kind::Command, {side}});
    ++state.done[stream];
    return true;
  }

  // The role has come; the last one to come lets all of them go on.
  bool meet(RoleState& state, Side side) {
    const auto at = static_cast<std::size_t>(side.command);
    if (state.arrived[at] != 0) return false;
    state.arrived[at] = 1;
    Rendezvous& rendezvous = rendezvous_[static_cast<std::size_t>(state.rendezvous[at])];
    rendezvous.arrived.push_back(side);
    if (rendezvous.arrived.size() < rendezvous.roles.size()) return false;
    std::ranges::sort(rendezvous.arrived, {}, &Side::role);
    for (const Side& each : rendezvous.arrived) {
      const auto role = static_cast<std::size_t>(each.role);
      const Command& command =
          program_.roles[role].commands[static_cast<std::size_t>(each.command)];
      ++states_[role].done[static_cast<std::size_t>(command.stream.value)];
    }
    order_.push_back({Issue::Kind::Command, rendezvous.arrived});
    return true;
  }

  const schedule::ScheduledProgram& program_;
  const Lanes& lanes_;
  const Communications& communications_;
  const Enqueues enqueues_;
  std::vector<RoleState> states_;
  std::map<Key, std::int32_t> index_;
  std::vector<Rendezvous> rendezvous_;
  std::map<std::pair<std::size_t, GroupId>, std::vector<std::int32_t>> meeting_;
  std::vector<Issue> order_;
};

}  // namespace

std::vector<Issue> issue_order(const schedule::ScheduledProgram& program, const Lanes& lanes,
                               const Communications& communications, Enqueues enqueues) {
  return Run(program, lanes, communications, enqueues).play();
}

}  // namespace dovetail::sim

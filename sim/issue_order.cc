// Plays all roles of a plan against each other, without times, to find an order of their commands
// in which everything that must meet has been reached.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/issue_order.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "sim/event_table.h"

namespace dovetail::sim {
namespace {

using schedule::Command;

// One entry of a stream: a command, or the enqueue of one.
struct Item {
  std::int32_t command = 0;
  bool enqueue = false;
};

// Where the roles meet that take part in a Transfer.
struct Rendezvous {
  std::size_t roles = 0;      // that must come
  std::vector<Side> arrived;  // those that have
};

struct RoleState {
  std::vector<std::vector<Item>> streams;
  std::vector<std::size_t> done;  // per stream
  std::vector<char> enqueued;     // per command
  std::vector<char> arrived;      // per command: already counted at its rendezvous
  std::vector<std::size_t> used;  // streams that have commands
  EventTable<char> recorded;
};

class AbstractRun {
 public:
  AbstractRun(const schedule::ScheduledProgram& program, Enqueues enqueues)
      : program_(program), enqueues_(enqueues), rendezvous_(program.transfers.size()) {
    for (std::size_t role = 0; role < program.roles.size(); ++role) add_role(role);
  }

  IssueOrder play() {
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
    state.recorded = EventTable<char>(program_.roles[role]);
    state.streams.resize(program_.streams.size());
    state.done.assign(program_.streams.size(), 0);
    state.enqueued.assign(commands.size(), 0);
    state.arrived.assign(commands.size(), 0);
    for (std::size_t i = 0; i < commands.size(); ++i) {
      const Command& command = commands[i];
      const auto index = static_cast<std::int32_t>(i);
      if (command.transfer) {
        if (enqueues_ == Enqueues::Timed && command.stream != schedule::kComputeStream) {
          state.streams[0].push_back({index, true});
        } else {
          state.enqueued[i] = 1;
        }
        ++rendezvous(command).roles;
      }
      state.streams[static_cast<std::size_t>(command.stream.value)].push_back({index, false});
    }
    for (std::size_t stream = 0; stream < state.streams.size(); ++stream) {
      if (!state.streams[stream].empty()) state.used.push_back(stream);
    }
    states_.push_back(std::move(state));
  }

  Rendezvous& rendezvous(const Command& command) {
    return rendezvous_[static_cast<std::size_t>(command.transfer->value)];
  }

  // Each role as far as it gets; false when nothing moved.
  bool advance() {
    bool moved = false;
    for (std::size_t role = 0; role < states_.size(); ++role) {
      while (step_first(role)) moved = true;
    }
    return moved;
  }

  // Completes, of the heads of the role's streams, the first in host order that can go.
  bool step_first(std::size_t role) {
    RoleState& state = states_[role];
    heads_.clear();
    for (const std::size_t stream : state.used) {
      if (state.done[stream] == state.streams[stream].size()) continue;
      const Item& head = state.streams[stream][state.done[stream]];
      heads_.push_back({head.command, head.enqueue ? 0 : 1, stream});
    }
    std::ranges::sort(heads_);
    return std::ranges::any_of(
        heads_, [&](const auto& head) { return step(role, std::get<std::size_t>(head)); });
  }

  // Completes the head of one stream if it can.
  bool step(std::size_t role, std::size_t stream) {
    RoleState& state = states_[role];
    const Item item = state.streams[stream][state.done[stream]];
    const auto at = static_cast<std::size_t>(item.command);
    const Side side{static_cast<std::int32_t>(role), item.command};
    if (item.enqueue) {
      state.enqueued[at] = 1;
      order_.add(Issue::Kind::Enqueue, std::span(&side, 1));
      ++state.done[stream];
      return true;
    }
    const Command& command = program_.roles[role].commands[at];
    if (const auto* wait = std::get_if<schedule::WaitEvent>(&command.action)) {
      if (state.recorded[wait->event] == 0) return false;
    }
    if (command.transfer) {
      if (state.enqueued[at] == 0) return false;
      if (rendezvous(command).roles > 1) return meet(state, command, side);
    }
    if (const auto* record = std::get_if<schedule::RecordEvent>(&command.action)) {
      state.recorded[record->event] = 1;
    }
    order_.add(Issue::Kind::Command, std::span(&side, 1));
    ++state.done[stream];
    return true;
  }

  // The role has come; the last one to come lets all of them go on.
  bool meet(RoleState& state, const Command& head, Side side) {
    const auto at = static_cast<std::size_t>(side.command);
    if (state.arrived[at] != 0) return false;
    state.arrived[at] = 1;
    Rendezvous& here = rendezvous(head);
    here.arrived.push_back(side);
    if (here.arrived.size() < here.roles) return false;
    std::ranges::sort(here.arrived, {}, &Side::role);
    for (const Side& each : here.arrived) {
      const auto role = static_cast<std::size_t>(each.role);
      const Command& command =
          program_.roles[role].commands[static_cast<std::size_t>(each.command)];
      ++states_[role].done[static_cast<std::size_t>(command.stream.value)];
    }
    order_.add(Issue::Kind::Command, here.arrived);
    return true;
  }

  const schedule::ScheduledProgram& program_;
  const Enqueues enqueues_;
  std::vector<RoleState> states_;
  std::vector<Rendezvous> rendezvous_;  // of each Transfer
  IssueOrder order_;
  std::vector<std::tuple<std::int32_t, int, std::size_t>>
      heads_;  // command, its enqueue first, stream
};

}  // namespace

IssueOrder issue_order(const schedule::ScheduledProgram& program, Enqueues enqueues) {
  return AbstractRun(program, enqueues).play();
}

}  // namespace dovetail::sim

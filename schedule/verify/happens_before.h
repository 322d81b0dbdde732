// Happens-before among the commands of one role: which are surely finished before another one begins.
//
// a before b if b stands later on a's stream, or b follows a wait for an event recorded after a.
// Each command carries, per stream, how many commands of that stream precede it: a vector clock.
// O(commands x streams) time and memory. Of several steps, one after another without a barrier, the
// commands are numbered through: command i of step s is s x commands + i.
//
// Roles that meet also order each other: a send is over before what its receiver does with it is sent
// back. That counts where each rank of a role meets the same one of another role every time: the first of
// one the first of the other, and so on.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/scheduled_program.h"

namespace dovetail::schedule {

// A command of a role has completed. Those of one meeting, one of each role, stand side by side.
struct Completion {
  static constexpr std::int32_t kAlone = -1;
  std::size_t role = 0;
  std::size_t command = 0;  // index in the role's commands
  std::int32_t meeting = kAlone;
  GroupId group = {};  // of the meeting
};

class HappensBefore {
 public:
  struct Unrecorded {
    std::size_t command = 0;  // index in role.commands
    EventId event;
  };

  // Streams outside the program's list are treated as stream 0; verify reports them first.
  // REQUIRES: steps >= 1.
  HappensBefore(const ScheduledProgram& program, const RankProgram& role, std::size_t steps = 1);
  // Also through other roles. REQUIRES: `completions` of all commands of one step, in an order in which
  // they may complete; no wait before its record. O(commands of all roles x streams x steps).
  HappensBefore(const ScheduledProgram& program, std::size_t role,
                std::span<const Completion> completions, std::size_t steps);

  // Indices in role.commands, through all steps. REQUIRES: a < b (host issue order).
  [[nodiscard]] bool before(std::size_t a, std::size_t b) const;

  // Waits of the first step whose event no earlier command records; they order nothing.
  [[nodiscard]] const std::vector<Unrecorded>& unrecorded() const { return unrecorded_; }

 private:
  std::size_t streams_ = 1;
  std::vector<std::size_t> stream_;     // of each command
  std::vector<std::int32_t> position_;  // of each command on its stream, from 1
  std::vector<std::int32_t> clock_;     // [command][stream]
  std::vector<Unrecorded> unrecorded_;
};

}  // namespace dovetail::schedule

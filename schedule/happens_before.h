// Happens-before within one role: which commands are surely finished before another one begins.
//
// a before b if b stands later on a's stream, or b follows a wait for an event recorded after a.
// Each command carries, per stream, how many commands of that stream precede it: a vector clock.
// O(commands x streams) time and memory. Of several steps, one after another without a barrier, the
// commands are numbered through: command i of step s is s x commands + i.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/scheduled_program.h"

namespace dovetail::schedule {

class HappensBefore {
 public:
  struct Unrecorded {
    std::size_t command = 0;  // index in role.commands
    EventId event;
  };

  // Streams outside the program's list are treated as stream 0; verify reports them first.
  // REQUIRES: steps >= 1.
  HappensBefore(const ScheduledProgram& program, const RankProgram& role, std::size_t steps = 1);

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

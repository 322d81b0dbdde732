// How long collectives and copies took in steps of which preemptions touched only a part.
//
// What a preemption touched is left out instead of being corrected: that it ended late or how long it stood
// still is known less well than what the others took. A preemption touches a copy that it overlaps, and a
// collective in whose first or last half millisecond some rank is away, or that some rank leaves for longer
// than the network goes on without it (the shield; sim/absences.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "exec/backend.h"
#include "exec/exchange.h"
#include "schedule/scheduled_program.h"
#include "traces/disturbances.h"

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace dovetail::testbed {

// One rank's timings and what its core did meanwhile.
struct Watched {
  std::span<const exec::Timing> timings;
  const traces::CoreRecord& record;
  std::int64_t begin_ns = 0;  // of the record
  Duration shield{};
};

// By command, in no particular order; commands without an undisturbed time are absent.
using TransferTimes = std::map<CommandId, std::vector<Duration>>;

// From the last arrival to the last completion over the ranks. The same on every rank. REQUIRES: all ranks
// play one role, which runs its collectives on one communication stream.
TransferTimes collective_times(const exec::Exchange& exchange,
                               const schedule::ScheduledProgram& plan, const Watched& mine);

// Of all ranks together, on every rank. REQUIRES: all ranks play one role.
TransferTimes copy_times(const exec::Exchange& exchange, const schedule::ScheduledProgram& plan,
                         const Watched& mine);

}  // namespace dovetail::testbed

// The reference simulator: a slow, direct simulation with no graph and no queue, of contention and shared links too.
//
// Every rank of every role has its streams, and time moves from one moment at which something ends to
// the next. At each moment the head of every idle stream begins as soon as all that it waits for has
// happened, a collective once it is at the head of a stream on all ranks of its instance. Between two
// moments everything in flight progresses at the rate that the definitions of sim/rates.h give for the
// set of what is in flight; rates, progress and ends are rounded as said there. Written to be read
// beside those definitions and those in schedule/scheduled_program.h, and shares no code with the
// player; tests hold them against it, to the nanosecond, on all groupings of small programs and on
// random ones, with one role and with several, with contention and with shared links.
//
// Leaves out absences (sim/absences.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "models/costs/costs.h"
#include "schedule/scheduled_program.h"

namespace dovetail::testing {

struct ReferenceSpan {
  std::int64_t start = 0;  // of the transfer, for a collective
  std::int64_t end = 0;
  friend bool operator==(const ReferenceSpan&, const ReferenceSpan&) = default;
};

// (step, rank, command, is the enqueue of a collective) -> when it ran. Commands that take no time
// are absent.
using ReferenceTimeline = std::map<std::tuple<std::int32_t, Rank, CommandId, bool>, ReferenceSpan>;

// REQUIRES as simulate; every rank of the program is played, none is folded.
ReferenceTimeline reference_simulate(const schedule::ScheduledProgram& program,
                                     const models::Costs& costs, std::int32_t steps);

}  // namespace dovetail::testing

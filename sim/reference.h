// The judge: a slow, direct simulation with no graph, no queue and no contention.
//
// Walks the commands in host issue order and keeps, per rank, when each stream is free and when
// each event happened. That is exact because streams are in order and a collective's participants
// issue it at the same place. Written to be read beside the definitions in
// schedule/scheduled_program.h; tests hold the engines against it on all groupings of small
// programs and on random ones. Ignores contention.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "models/costs.h"
#include "schedule/scheduled_program.h"

namespace dovetail::sim {

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

}  // namespace dovetail::sim

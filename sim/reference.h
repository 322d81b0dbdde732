// The judge: a slow, direct simulation with no graph, no queue and no contention.
//
// Every rank of every role keeps its own clock: when each of its streams is free, when each of its
// events happened, when its host had issued each command. The head of a stream is played as soon as
// what it waits for is known; a collective once it is at the head of a stream on all ranks of its
// instance. That is exact because streams are in order. Written to be read beside the definitions in
// schedule/scheduled_program.h; tests hold the engines against it on all groupings of small
// programs and on random ones, with one role and with several. Ignores contention.
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

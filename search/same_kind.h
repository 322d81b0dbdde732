// The policy that searches the groups of a Schedule's own kind: all-reduces, sharded updates or gathers before each
// use, with its copies, waits and prefetch.
//
//   searched_like(program, fsdp plan)     fsdp:forward=1,backward=1+exact
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "schedule/policies/policies.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::search {

// Nothing for what the search does not know: several micro-steps, pipelines, several streams, cut tensors, replicas
// of shards, launches of a policy's own. REQUIRES: the Schedule is one of the Program's.
std::optional<schedule::Policy> searched_like(const schedule::Program& program,
                                              const schedule::Schedule& schedule);

}  // namespace dovetail::search

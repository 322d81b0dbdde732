// ZeRO-3: when each block's parameters are gathered (Gathers of decisions.h), and when they are let go.
//
// A block is a sharded bucket. It is gathered before its forward and again before its backward, as many
// blocks ahead as `forward` and `backward` say, later where the limits demand it; with reshard=no once for
// both. Behind its last reader it is released.
//
//   blocks a b c, forward=1     gather a b   F a   gather c   F b   F c ...
//
// Each role of a pipeline places its own: Forward and Backward are gathered for every micro-batch, what stays
// from forward to backward once for all of them (as PyTorch does when FSDP runs within a pipeline).
//
// Refused, with the reason: parameters that nobody is known to read, limits that a block alone exceeds.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "policies/grouping.h"
#include "policies/policies.h"
#include "schedule/id_table.h"

namespace dovetail::schedule {

// The parameter that is updated with each gradient: the i-th that the update writes; -1: none.
IdTable<TensorId, TensorId> parameters_of(const Program& program);

// Fills Schedule::gathers and the lines of the report, or gives the reason why not.
// REQUIRES: the buckets are `groups`, reduce-scattered; policy.decisions.gathers has a value.
std::optional<std::string> place_gathers(const Program& program, const Policy& policy,
                                         const Groups& groups, PolicyResult& result);

// How many blocks ahead of its first reader a Schedule gathers at most.
struct Prefetch {
  std::int32_t forward = 0;
  std::int32_t backward = 0;
};
// REQUIRES: problems(program) is empty, every gather is of a bucket of the Schedule.
Prefetch prefetch_of(const Program& program, const Schedule& schedule);

}  // namespace dovetail::schedule

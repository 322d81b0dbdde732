// A plan made for many ranks, as one rank alone can play it: rank 0's commands, unchanged, in
// groups of one.
//
// So a machine with one GPU executes the streams, events, copies and kernels of a real plan, while
// each collective's payload travels from the rank to itself (StandIn::SendToSelf in module.h).
// Buckets keep their sizes but have one shard, so a sharded update touches the whole bucket, as
// many times more values as there were ranks.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/scheduled_program.h"

namespace dovetail::exec::cuda {

schedule::ScheduledProgram as_one_rank(const schedule::ScheduledProgram& plan);

}  // namespace dovetail::exec::cuda

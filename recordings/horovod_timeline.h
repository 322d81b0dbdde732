// Horovod's timeline (HOROVOD_TIMELINE=FILE): when each tensor was ready, with which others it was fused,
// and how long the reduction took.
//
//   [
//   {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "allreduce.layer1.weight"}},
//   {"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 250, "pid": 1},
//   {"ph": "X", "name": "0", "ts": 251, "pid": 1, "dur": 0},         rank 0 is ready
//   {"ph": "E", "ts": 300, "pid": 1},
//   {"ph": "B", "name": "ALLREDUCE", "ts": 301, "pid": 1},
//   {"ph": "B", "name": "NCCL_ALLREDUCE", "ts": 310, "pid": 1},
//   {"ph": "E", "ts": 480, "pid": 1},
//   {"ph": "E", "ts": 490, "pid": 1, "args": {"dtype": "float32", "shape": "[64, 64]"}}]
//
// Source of the format: github.com/horovod/horovod at 2626dc87 (0.28.1 and later):
// horovod/common/timeline.cc, common.h (names of activities). Each tensor is a process; only rank 0 writes
// the file. A job that was ended leaves the array open: what stands there is read.
//
// What becomes of it: one gradient per tensor, ready when Horovod first heard of it, in the median over
// the steps; steps follow from the tensors' repetition. Backward reaches from the first to the last
// ready tensor; all else that is not waiting for reductions (optimizer, forward, the start of backward)
// stands in forward, as the timeline cannot tell them apart. Reductions by fused size become the
// all-reduce table. Ready times are as old as Horovod's cycle (HOROVOD_CYCLE_TIME, 1 ms) is long.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/profile_file.h"
#include "recordings/text.h"

#include <cstdint>
#include <optional>

namespace dovetail::imports {

// `ranks` of a timeline that does not show them. Throws InputError where the file is no timeline, holds
// fewer than two steps, or the ranks are not known.
ImportedStep read_horovod_timeline(const Source& file, std::optional<std::int64_t> ranks);

}  // namespace dovetail::imports

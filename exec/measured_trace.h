// From the timings of all ranks to one Trace.
//
// Times count from the earliest start of the first measured step. A wait is a span only where the
// compute stream really stood; a collective's transfer_start is the latest start of its ranks in
// that step. Launching a collective on a communication stream is one Enqueue span, under the id of
// the record on the compute stream that opens the launch: record, then wait, collective and record
// enqueued. Other records are no spans.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/backend.h"
#include "schedule/scheduled_program.h"
#include "traces/trace.h"

#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::exec {

// by_rank[r] holds the timings of rank r, as run() returned them. REQUIRES: one entry per rank of
// the plan.
traces::Trace measured_trace(const schedule::ScheduledProgram& plan,
                             std::span<const std::vector<Timing>> by_rank,
                             const traces::Provenance& provenance);

// How far apart the ranks began each step: from the first one's first timing to the last one's.
std::vector<Duration> start_skews(std::span<const std::vector<Timing>> by_rank);

// The clock reading at which the trace of these timings reads 0.
std::int64_t origin_ns(std::span<const std::vector<Timing>> by_rank);

}  // namespace dovetail::exec

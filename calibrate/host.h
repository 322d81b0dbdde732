// What it costs the host to issue commands, as models::HostModel has it.
//
//   Async   a decorated backend notes how long each call takes (HostTimer): a collective, an event, a copy; an op costs
//           the mean over the workload's own ops, issued to a device with room in its queue (measure_issue, ops.h).
//           `launch_gap` is between two long kernels in a row. `launch_latency` stays 0: the call for a kernel and its
//           two events takes longer than an idle GPU needs to begin (measured on an H100 the difference came out below 0),
//           so from the call's return on nothing is left of it. Where a step is replayed as a graph it costs the host
//           nothing per command: only the gap is measured.
//   Inline  the compute stream is the host. `collective`: record, then enqueue wait, collective and record, until the
//           compute thread goes on; `event`: from the record of an awaited event to the compute thread running again.
//           The collective is of 4 bytes: what its thread takes from the core afterwards is contention.h's.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "calibrate/lab.h"
#include "models/costs/costs.h"
#include "models/rates/kernel_table.h"
#include "schedule/program.h"

#include <span>

namespace dovetail::calibrate {

// `kernels`: how long the workload's ops take, as measure_step gave them.
models::HostModel measure_host(const Lab& lab, const schedule::Program& workload,
                               std::span<const models::MeasuredKernel> kernels);

}  // namespace dovetail::calibrate

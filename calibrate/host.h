// What it costs the host to issue commands, as models::HostModel has it.
//
//   Async   a decorated backend notes how long each call takes (HostTimer): a collective, an event, a copy; an op costs
//           the mean over the workload's own ops. `launch_latency` is from the end of the call to the start on an idle
//           device, `launch_gap` between two long kernels in a row. Where a step is replayed as a graph it costs the
//           host nothing per command: only the gap is measured.
//   Inline  the compute stream is the host. `collective`: record, then enqueue wait, collective and record, until the
//           compute thread goes on; `event`: from the record of an awaited event to the compute thread running again.
//           The collective is of 4 bytes: what its thread takes from the core afterwards is contention.h's.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "calibrate/lab.h"
#include "models/costs.h"

#include <cstdint>

namespace dovetail::calibrate {

// `run_op`: of an op, on average over the workload's.
models::HostModel measure_host(const Lab& lab, Duration run_op);

// From the end of the call that issued an op on an idle device to the op's start: its end, less the
// call's return, less how long such an op takes in a row of them. (Its start event says nothing: an
// idle device executes it while the call is still launching.)
Duration latency_of(const exec::Timing& op, std::int64_t issued_ns, Duration in_a_row);

}  // namespace dovetail::calibrate

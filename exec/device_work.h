// What a device did for the commands of a step: its kernels and copies, as a profiling library
// reports them. A backend that knows them returns them beside its timings; `dovetail run
// --trace-detail full` adds them to the trace.
//
// In the trace they stand on streams of their own, "compute kernels" beside "compute", as spans of
// kind Kernel, which no metric counts: the timings of the commands stay what everything is computed
// from. Kernels that overlap go to a second such stream. Each kernel of a command is named once,
// however many steps it ran in.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/backend.h"
#include "schedule/scheduled_program.h"
#include "traces/trace.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::exec {

// Bytes to send to another rank, and back. REQUIRES: no name holds a line break.
std::string encode(std::span<const DeviceWork> works);
std::vector<DeviceWork> decode_device_work(std::string_view bytes);

// Adds the work of all ranks to the trace of their timings. by_rank[r] is of rank r, on the clock
// that reads `origin_ns` where the trace reads 0; what began before that is cut there.
void add_device_work(const schedule::ScheduledProgram& plan,
                     std::span<const std::vector<DeviceWork>> by_rank, std::int64_t origin_ns,
                     traces::Trace& trace);

}  // namespace dovetail::exec

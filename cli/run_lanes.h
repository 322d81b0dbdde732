// What one rank of `dovetail run` executes in turns: the plans, and what is measured beside them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cli/cuda_job.h"
#include "cli/run_report.h"
#include "exec/backend.h"
#include "exec/cpu/backend.h"
#include "schedule/scheduled_program.h"

namespace dovetail::cli {

using Backends = std::vector<std::unique_ptr<exec::Backend>>;
using Programs = std::vector<const schedule::ScheduledProgram*>;

// The plans, then, where they are wanted, their steps without communication, once more the plans with two
// events per step, and those that run between the rounds. REQUIRES: `loaded` outlives them.
Programs programs_of(const std::vector<Loaded>& loaded, bool two_events, const Programs& between);

// One backend per program on processors.
Backends cpu_backends(const Programs& programs, const exec::cpu::Ports& ports);

// The same on this rank's GPU; the last `two_events` of them have two events per step.
Backends cuda_backends(const Programs& programs, const CudaJob& cuda,
                       exec::cuda::BackendOptions options, std::size_t two_events);

// Takes the steps without communication, and those with two events, out of what was measured and compares
// the plans with them.
void split_off_companions(const std::vector<Loaded>& loaded, bool two_events, Result& result);

// What only the backends know once they have run, into the traces of rank 0.
void note_cuda(const CudaJob& cuda, const Backends& backends, std::int32_t device, Result& result);

}  // namespace dovetail::cli

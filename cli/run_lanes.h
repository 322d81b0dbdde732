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

// What takes a turn: a plan, its steps without communication, the plan once more with two events per step, or a probe
// that measures costs between the plans.
enum class LaneRole { Plan, Alone, TwoEvents, Probe };
struct RunLane {
  LaneRole role = LaneRole::Plan;
  std::size_t of = 0;  // position of the plan, or of the probe
  const schedule::ScheduledProgram* program = nullptr;
};
using RunLanes = std::vector<RunLane>;

// In the order of their turns: plans first, in their order, probes last. REQUIRES: `loaded` and the probes outlive them.
RunLanes lanes_of(const std::vector<Loaded>& loaded, bool two_events, const Programs& probes);

// One backend per lane, on processors and on this rank's GPU.
Backends cpu_backends(const RunLanes& lanes, const exec::cpu::Ports& ports);
Backends cuda_backends(const RunLanes& lanes, const CudaJob& cuda,
                       const exec::cuda::BackendOptions& options);

// Compares the plans with their steps without communication and with those of two events, and leaves only the plans in
// what was measured.
void split_off_companions(const RunLanes& lanes, Result& result);

// What only the backends know once they have run, into the traces of rank 0.
void note_cuda(const CudaJob& cuda, const Backends& backends, std::int32_t device, Result& result);

}  // namespace dovetail::cli

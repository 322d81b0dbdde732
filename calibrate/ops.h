// How long computing takes without communication: the workload's own ops, the passes that rewriting adds, the unit
// kernel.
//
// Ops are measured where they stand: all ops of the program in program order, step after step, so
// every op finds the caches as the op before it left them, and writes or reads its gradients as in
// a real run. All ranks compute at the same time, because they share caches and memory. Times during which
// a core was away (calibrate/noise/reference_load.h) are taken out.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "calibrate/lab.h"
#include "models/rates/kernel_table.h"
#include "models/rates/passes.h"
#include "schedule/program.h"
#include "schedule/scheduled_program.h"

#include <span>
#include <vector>

namespace dovetail::calibrate {

struct StepTimes {
  std::vector<models::MeasuredKernel> kernels;  // one per op that computes, in program order
  Quantiles slowest;  // of a step: all its ops, on the rank that took longest in this step
};
// REQUIRES: the workload has shapes, no timed work.
StepTimes measure_step(const Lab& lab, const schedule::Program& workload);

// What the call that issues an op takes the host while the device's queue has room, on average over the workload's ops;
// one of several kernels counts as so many ops, as costs do (models/costs/costs.cc). A call to a full queue returns when the
// device has finished something: that is the device's time. So ops are issued in bursts that fit into the queue, and the
// host rests behind each burst for as long as it takes.
Duration measure_issue(const Lab& lab, const schedule::Program& workload,
                       std::span<const models::MeasuredKernel> kernels);

// How much longer a step takes on its slowest rank than the ops' medians add up to, as a share of them, at least 0: in
// every step something else is late, on some rank, and a synchronous step waits for it.
double skew_of(std::span<const models::MeasuredKernel> kernels, Duration slowest);

// One entry per distinct work, without a name, in order of appearance: the median of each percentile over the ops.
std::vector<models::MeasuredKernel> by_work(std::span<const models::MeasuredKernel> kernels);

// Of a plan that holds passes, its communication left out. `kernels`: whose time is no part of a pass.
std::vector<models::PassSample> measure_passes(const Lab& lab,
                                               const schedule::ScheduledProgram& variant,
                                               const models::KernelTable& kernels);

// One of a chain of such products, on all ranks.
models::UnitKernel measure_unit_kernel(const Lab& lab, const schedule::GemmWork& gemm);

}  // namespace dovetail::calibrate

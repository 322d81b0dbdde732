// How long computing takes without communication: the plan's own ops, the unit kernel, copies.
//
// Ops are measured where they stand: all ops of the program in program order, step after step, so
// every op finds the caches as the op before it left them, and writes or reads its gradients as in
// a real run. All ranks compute at the same time, because they share caches and memory. Times during which
// a core was away (testbed/reference_load.h) are taken out.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "calibrate/cpu/rig.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <vector>

namespace dovetail::calibrate {

struct OpTime {
  OpId op;
  Spread time;                    // over all ranks and steps
  std::vector<Duration> by_rank;  // medians
};
struct WorkTime {
  schedule::DType dtype = schedule::DType::F32;
  schedule::Work work;
  Spread time;
};

struct ComputeTimes {
  std::vector<OpTime> ops;  // one per op of the program, in program order
  Spread slowest;           // of a step: all its ops, on the rank that took longest in this step
  // How much longer that is than the ops' medians add up to, as a share of them, at least 0: in every
  // step something else is late, on some rank, and a synchronous step waits for it.
  [[nodiscard]] double skew() const;
};

// REQUIRES: steps >= 1.
ComputeTimes measure_ops(Rig& rig, const schedule::ScheduledProgram& plan, std::int32_t steps);

// One entry per distinct work, in order of appearance. Ops with equal work are taken together: the
// median of each percentile over them.
std::vector<WorkTime> by_work(const schedule::Program& program, const std::vector<OpTime>& ops);

// One unit of a chain of cpu::kUnitGemm, on all ranks.
struct UnitKernelOptions {
  std::int64_t units = 50;  // of a chain
  std::int32_t chains = 21;
};
Spread measure_unit_kernel(Rig& rig, const UnitKernelOptions& options = {});

// Copying between memory that is in no cache: fixed + ns_per_byte * bytes.
struct CopyTime {
  Duration fixed{};
  double ns_per_byte = 0;
};
// REQUIRES: the arena, through which the copies go, is 1 MiB or more. Where it is not far larger than
// the caches, the line is that of the caches.
CopyTime measure_copies(Rig& rig, Bytes arena = mib(128));
// Multiplying a buffer in place, likewise.
CopyTime measure_scales(Rig& rig, Bytes arena = mib(128));

}  // namespace dovetail::calibrate

// Kernels of measured steps by kind, beside what the model has of each: data/gpu_kernels_h100.csv.
//
//   for (const KernelSum& sum : kernel_sums(folder)) sum.step, sum.kind, sum.time
//   kernel_times(lowered.program, lowered.costs, 1.5, 1.5)["softmax"]
//
// Kinds: product, attention and attention-backward, and the words of schedule::Access; norms in one kernel count as plain, as the kernels of
// compiled layers have them with what lies beside them. "other": no kind of the model. Measured under a profiler, which leaves pauses in which the
// GPU gains clock, so products are shorter here than in a step by 10 to 20 %. Its windows begin and end within steps: of a kind that runs once or
// twice a pass half a pass may be missing.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/units.h"
#include "models/clusters/cluster.h"
#include "models/costs/costs.h"
#include "schedule/scheduled_program.h"

namespace dovetail::yardsticks {

struct KernelSum {
  std::string step;  // GpuStep::name
  std::string kind;
  double launches = 0;
  Duration time{};
  double backwards = 1, updates = 1;  // that the profile holds for each forward
};
// Throws InputError with file and line.
std::vector<KernelSum> kernel_sums(const std::string& folder);

// By kind, of one forward and so many backward passes and updates, on the first role.
std::map<std::string, Duration> kernel_times(const schedule::ScheduledProgram& program,
                                             const models::Costs& costs, double backwards,
                                             double updates);

// The machine as if nobody had measured this kind: memory-bound work at 0.8 of the memory's rate, products as the grid and the peak have them
// ("unaligned", "products"), attention by its FLOP ("attention"), a host that issues in no time ("host"). Throws InputError with the kinds there are.
models::Cluster without(models::Cluster cluster, std::string_view kind);
std::vector<std::string> kinds_to_leave_out();

}  // namespace dovetail::yardsticks

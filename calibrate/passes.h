// What both calibrations make of passes: the plans that hold them, and the line of each kind.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <span>
#include <vector>

#include "calibrate/cpu/compute.h"
#include "models/cluster.h"
#include "models/passes.h"
#include "schedule/program.h"
#include "schedule/scheduled_program.h"

namespace dovetail::calibrate {

// Plans that hold the passes which lowering adds: sums over two micro-steps, and sharded updates of
// small and large buckets. None where the workload does not allow them.
std::vector<schedule::ScheduledProgram> pass_variants(const schedule::Program& program);

// `cluster`: with its kernels, whose time is no part of a pass. `times`: of each variant, its ops.
// `scales`: per byte of the buffer, of which each is read and written.
std::map<models::PassKind, models::PassModel> passes_of(
    const models::Cluster& cluster, std::span<const schedule::ScheduledProgram> variants,
    std::span<const std::vector<OpTime>> times, const CopyTime& scales);

}  // namespace dovetail::calibrate

// How long a run will take, how far it is, and Ctrl-C.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "cli/run.h"
#include "cli/run_report.h"
#include "exec/measure.h"

namespace dovetail::cli {

// A rough wall time of local ranks on processors: floating-point work at 20 GFLOP/s a core, and timed work
// as it was timed; communication is left out. 0 where ranks are started elsewhere or run on GPUs.
Duration expected_time(const RunCommandOptions& options, const std::vector<Loaded>& loaded,
                       std::int64_t cores);

// Says so, and what the ranks of this machine hold at least, where it is minutes; throws InputError where it is hours and there is no --yes.
void announce(const RunCommandOptions& options, Duration expected, Bytes held);

// After each round on rank 0: goes on as `decide` says (nothing: until RunCommandOptions::rounds are done),
// shows how far the run is, and stops where Ctrl-C asked.
exec::GoOn watched(exec::GoOn decide, const RunCommandOptions& options, Rank rank);

}  // namespace dovetail::cli

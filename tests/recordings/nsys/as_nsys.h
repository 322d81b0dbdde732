// A recording as Nsight Systems would have exported it, so that one step told by two recorders can be held beside itself.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/timeline/rank_timeline.h"

#include <string>

namespace dovetail::testing {

// Statements of SQLite: the tables with the recording's operators as emit_nvtx writes them, its calls, GPU work and waits, and, around the
// launch of each collective, NCCL's range with its size. Of process 7.
std::string as_nsys(const imports::Recording& recording, const imports::RankTimeline& line);

// Writes a database of these statements.
void write_database(const std::string& path, const std::string& statements);

}  // namespace dovetail::testing

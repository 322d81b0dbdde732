// The flags of the commands that read profiler traces: diagnose, import kineto.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>

#include "cli/command_line.h"
#include "cli/diagnose.h"

namespace dovetail::cli {

// Alive while the parser writes to it.
struct TraceCommandOptions {
  DiagnoseOptions diagnose;
  ImportKinetoOptions import;
};

// Adds both. REQUIRES: `import` has been added (import_flags.h).
void bind_trace_commands(CLI::App& app, TraceCommandOptions& options, Action& action);

}  // namespace dovetail::cli

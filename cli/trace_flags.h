// The flags of commands that read profiler traces: diagnose, and import of recordings.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/diagnose.h"

namespace dovetail::cli {

// The files, and how to find in them what communicates (--collective-pattern) and the steps (--step).
void bind_traces(CLI::App& command, std::vector<std::string>& files,
                 std::vector<std::string>& patterns, std::string& step);

// Adds diagnose. `options` is alive while the parser writes to it.
void bind_diagnose(CLI::App& app, DiagnoseOptions& options, Action& action);

}  // namespace dovetail::cli

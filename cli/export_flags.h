// The flags of dovetail export.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/command_line.h"
#include "cli/export.h"

namespace dovetail::cli {

// Adds the subcommand; `action` is set when it was parsed.
void bind_export(CLI::App& app, const std::string& data_dir, ExportCommandOptions& options,
                 Action& action);

}  // namespace dovetail::cli

// The flags of dovetail import and its formats.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/command_line.h"
#include "cli/import.h"

namespace dovetail::cli {

// Alive while the parser writes to it: those of the one format that is named, by its product.
struct ImportOptions {
  ImportClusterOptions cluster;
  ImportWorkloadOptions workload;
  ImportRecordingOptions recording;
};

// Adds the subcommand with its formats; `action` is set when one of them was parsed.
void bind_import(CLI::App& app, const std::string& data_dir, ImportOptions& options,
                 Action& action);

}  // namespace dovetail::cli

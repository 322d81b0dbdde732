// The flags of the command report.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cli/command_line.h"
#include "cli/page.h"
#include "cli/report.h"

namespace dovetail::cli {

void bind_report(CLI::App& app, const std::string& data_dir, ReportOptions& options,
                 Action& action);

}  // namespace dovetail::cli

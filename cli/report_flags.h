// The flag --html, and the command report.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "cli/page.h"
#include "cli/report.h"

namespace dovetail::cli {

// Adds --html.
void bind_page(CLI::App& command, PageOptions& page);

void bind_report(CLI::App& app, const std::string& data_dir, ReportOptions& options,
                 std::function<int()>& action);

}  // namespace dovetail::cli

// Binds the flags of `dovetail report`.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/report_flags.h"

#include "cli/common_flags.h"

namespace dovetail::cli {

void bind_report(CLI::App& app, const std::string& data_dir, ReportOptions& options,
                 Action& action) {
  CLI::App& command =
      *app.add_subcommand("report", "one HTML page about a workload, plans or traces");
  options.explore.inputs.data_dir = data_dir;
  command.add_option("files", options.files, "plans, and one predicted and one measured trace");
  command
      .add_option("--workload", options.explore.workloads,
                  "instead: sweep this workload, as explore does")
      ->expected(1);
  command.add_option("--cluster", options.cluster, "machine: shipped name or file");
  command.add_option("--thresholds", options.explore.thresholds,
                     "of the sweep, as explore takes them");
  command.add_option("-o,--output", options.page.file, "page to write");
  command.add_flag("--json", options.json, "the figures of the page instead");
  command.footer(
      "Examples:\n"
      "  dovetail report --workload resnet50 --cluster a100x8 -o report.html\n"
      "  dovetail report plan.json predicted.json measured.json -o report.html");
  command.callback([&options, &action] {
    action = [&options](std::ostream& out) {
      if (!options.cluster.empty()) options.explore.clusters = {options.cluster};
      report(options, out);
      return 0;
    };
  });
}

}  // namespace dovetail::cli

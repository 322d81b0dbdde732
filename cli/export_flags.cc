// Binding dovetail export.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/export_flags.h"

#include <iostream>

#include "exports/export.h"

namespace dovetail::cli {

void bind_export(CLI::App& app, const std::string& data_dir, ExportCommandOptions& options,
                 std::function<int()>& action) {
  CLI::App& command = *app.add_subcommand("export", "write a plan in a framework's own words");
  options.data_dir = data_dir;
  command.add_option("plan", options.plan, "plan file")->required();
  command.add_option("--to", options.target, exports::target_list())->required();
  command.add_option("-o,--output", options.output,
                     "file to write (default, and -: standard output)");
  command.add_option("--cluster", options.cluster,
                     "shipped name or file (default: the plan's own, unless that is a file)");
  command.footer(
      "Examples:\n"
      "  dovetail export plan.json --to torch -o ddp_plan.py\n"
      "  dovetail export plan.json --to horovod\n"
      "  dovetail export plan.json --to megatron --cluster a100x8 -o layout.json");
  command.callback([&options, &action] {
    action = [&options] {
      export_plan(options, std::cout);
      return 0;
    };
  });
}

}  // namespace dovetail::cli

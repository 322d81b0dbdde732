// Binds the flags of `dovetail export`.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/export_flags.h"

#include "cli/common_flags.h"
#include "frameworks/framework.h"

namespace dovetail::cli {

void bind_export(CLI::App& app, const std::string& data_dir, ExportCommandOptions& options,
                 Action& action) {
  CLI::App& command = *app.add_subcommand("export", "write a plan in a framework's own words");
  options.data_dir = data_dir;
  command.add_option("plan", options.plan, "plan file")->required();
  command.add_option("--to", options.target, frameworks::id_list(frameworks::has_writer))
      ->required();
  bind_output(command, options.output, "file to write (default, and -: standard output)");
  command.add_option("--cluster", options.cluster,
                     "shipped name or file (default: the plan's own, unless that is a file)");
  command.footer(
      "Examples:\n"
      "  dovetail export plan.json --to torch -o ddp_plan.py\n"
      "  dovetail export plan.json --to horovod\n"
      "  dovetail export plan.json --to megatron --cluster a100x8 -o layout.json");
  bind_action(command, options, action, export_plan);
}

}  // namespace dovetail::cli

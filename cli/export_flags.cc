// Binds the flags of `dovetail export`.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/export_flags.h"

#include "cli/common_flags.h"
#include "frameworks/framework.h"
#include "frameworks/jobs/job_export.h"

namespace dovetail::cli {

void bind_export(CLI::App& app, const std::string& data_dir, ExportCommandOptions& options,
                 Action& action) {
  CLI::App& command =
      *app.add_subcommand("export", "write a plan or a job in a framework's own words");
  options.data_dir = data_dir;
  command.add_option("plan", options.plan, "plan file");
  command.add_option("--job", options.job, "a job in place of a plan, as explore takes it");
  command
      .add_option("--to", options.target,
                  frameworks::id_list(frameworks::has_writer) +
                      "; of a job: " + frameworks::job_target_list())
      ->required();
  bind_output(command, options.output, "file to write (default, and -: standard output)");
  command.add_flag("--json", options.json,
                   "the file's text, what is given up and how to use it, as JSON");
  command.add_option(
      "--cluster", options.cluster,
      "shipped name or file (default: the plan's own, unless that is a file; of a job: "
      "without it nothing is predicted)");
  command.footer(
      "Examples:\n"
      "  dovetail export plan.json --to torch -o ddp_plan.py\n"
      "  dovetail export plan.json --to horovod\n"
      "  dovetail export plan.json --to megatron --cluster a100x8 -o layout.py\n"
      "  dovetail export --job llama3_8b:dp_shard=8,seq=8192 --to torchtitan -o train.toml");
  bind_action(command, options, action, export_plan);
}

}  // namespace dovetail::cli

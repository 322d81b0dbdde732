// Binds the flags of `dovetail diagnose`, and those that name traces.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/trace_flags.h"

#include "cli/common_flags.h"

namespace dovetail::cli {

void bind_traces(CLI::App& command, std::vector<std::string>& files,
                 std::vector<std::string>& patterns, std::string& step) {
  command
      .add_option("files", files,
                  "traces (.json, .json.gz, .sqlite of Nsight Systems): one rank's, or one of each "
                  "rank; or a folder of them")
      ->required();
  command.add_option("--collective-pattern", patterns,
                     "part of the names of kernels that communicate (default: nccl, rccl, msccl)");
  command.add_option("--step", step,
                     "name of the annotations around steps, e.g. Iteration (default: ProfilerStep, "
                     "else iterations as found)");
}

void bind_diagnose(CLI::App& app, DiagnoseOptions& options, Action& action) {
  CLI::App& command = *app.add_subcommand(
      "diagnose", "why a step is slow, from traces of PyTorch's profiler and others");
  bind_traces(command, options.files, options.collective_patterns, options.step);
  command.add_option("--framework", options.framework,
                     "whose settings: torch (default), fsdp, megatron, deepspeed, horovod, xla");
  command.add_option("--unprofiled-step", options.unprofiled_step,
                     "what a step takes without the profiler, as measured: 15ms (default: "
                     "estimated)");
  command.add_option("--trace", options.trace,
                     "file for ui.perfetto.dev: the step, its replay, the proposal");
  bind_detail(command, options.detail, "every rank and collective");
  bind_page(command, options.page);
  bind_document(command, options.document);
  options.data_dir = data_dir();
  command.footer(
      "Examples:\n"
      "  dovetail diagnose rank0.json.gz\n"
      "  dovetail diagnose trace/rank*.json.gz --framework megatron --trace why.json");
  bind_action(command, options, action, diagnose);
}

}  // namespace dovetail::cli

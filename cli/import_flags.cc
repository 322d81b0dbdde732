// Binds the flags of `dovetail import` and its formats: those that every format of a product has, and each one's own.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/import_flags.h"

#include <functional>

#include "cli/common_flags.h"
#include "cli/trace_flags.h"

namespace dovetail::cli {
namespace {

using imports::Format;

constexpr const char* kImportExamples =
    "Examples:\n"
    "  dovetail import nccl-tests allreduce.log -o here.json\n"
    "  dovetail import nccl-tests *.log --over h200x8 -o here.json\n"
    "  dovetail explore --workload resnet50 --cluster here.json\n"
    "Files are what the programs themselves write; docs/import.md says how to get each of them.";

void bind_cluster_format(CLI::App& command, Format format, ImportClusterOptions& options,
                         Action& action) {
  command.add_option("files", options.files, "files to read, packed with gzip or not")->required();
  bind_product(command, {options.output, options.json, "cluster file", "only print"});
  command.add_option("--over", options.over,
                     "cluster (shipped name or file) that holds for all that was not measured");
  command.add_option("--name", options.name,
                     "of the cluster (default: imported, or NAME-measured)");
  command.add_option("--gpu", options.gpu, "whose peaks to take (default: as the log says)");
  command
      .add_option(
          "--node-ranks", options.node_ranks,
          "ranks on each node: fits links to tables over several nodes, for other numbers of ranks")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  if (format == Format::NcclTests) {
    command.add_option("--collective", options.collective,
                       "of logs that do not say it, e.g. all-gather");
    command.add_option("--ranks", options.ranks, "of logs that do not say it")
        ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 24));
    command.add_flag("--out-of-place", options.out_of_place,
                     "take these columns (default: in place)");
  }
  bind_action(command, options, action, std::bind_front(import_cluster, format));
}

void bind_workload_format(CLI::App& command, Format format, ImportWorkloadOptions& options,
                          Action& action) {
  command.add_option("file", options.file, "file to read, packed with gzip or not")->required();
  bind_product(command, {options.output, options.json, "workload file", "only print"});
  if (imports::row_of(format).says_ranks != imports::SaysRanks::Yes) {
    command.add_option("--ranks", options.ranks, "of files that do not say it")
        ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  }
  if (format == Format::Nsys) {
    command.add_option("--step", options.step,
                       "name of the NVTX range around a step (default: as they repeat)");
    command.add_option(
        "--pid", options.pid,
        "process to read of a report of several (default: the one with most kernels)");
    command
        .add_option("--bytes", options.bytes,
                    "sizes of the all-reduces of a step in their order, e.g. 1MiB,25MiB (default: "
                    "as NCCL's ranges say)")
        ->delimiter(',');
  }
  bind_action(command, options, action, std::bind_front(import_workload, format));
}

void bind_recording_format(CLI::App& command, ImportRecordingOptions& options, Action& action) {
  bind_traces(command, options.files, options.collective_patterns, options.step);
  bind_output(command, options.output,
              "workload file to write (default: only print); - for standard output");
  command.add_option("--name", options.name, "of the workload (default: the file's)");
  command.add_option("--parameters", options.parameters,
                     "the model's parameters in the order of definition, NAME and shape a line "
                     "each: names the gradients by order and size");
  command.add_flag("--json", options.json, "all figures, machine-readable");
  bind_action(command, options, action, import_recording);
}

}  // namespace

void bind_import(CLI::App& app, const std::string& data_dir, ImportOptions& options,
                 Action& action) {
  CLI::App& command =
      *app.add_subcommand("import", "profiler traces and logs to workload and cluster files");
  command.require_subcommand(1);
  command.footer(kImportExamples);
  options.cluster.data_dir = options.recording.data_dir = data_dir;
  for (const Format format : kAllOf<Format>) {
    const imports::FormatRow& row = imports::row_of(format);
    CLI::App& bound =
        *command.add_subcommand(std::string(to_string(format)), std::string(row.what));
    switch (row.product) {
      case imports::Product::Cluster:
        bind_cluster_format(bound, format, options.cluster, action);
        break;
      case imports::Product::Workload:
        bind_workload_format(bound, format, options.workload, action);
        break;
      case imports::Product::Recording:
        bind_recording_format(bound, options.recording, action);
        break;
    }
    bound.footer("Examples:" + std::string(row.examples));
  }
}

}  // namespace dovetail::cli

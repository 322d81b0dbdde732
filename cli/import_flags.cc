// Binding the flags of dovetail import.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/import_flags.h"

#include <iostream>

namespace dovetail::cli {
namespace {

constexpr const char* kExamples =
    "Examples:\n"
    "  dovetail import nccl-tests allreduce.log -o here.json\n"
    "  dovetail import nccl-tests *.log --over h200x8 -o here.json\n"
    "  dovetail explore --workload resnet50 --cluster here.json\n"
    "Files are what the programs themselves write; docs/import.md says how to get each of them.";

CLI::App& add_format(CLI::App& command, const char* name, const char* what) {
  return *command.add_subcommand(name, what);
}

// Flags of every format whose result is a cluster file.
void bind_cluster_flags(CLI::App& format, ImportCollectivesOptions& options) {
  format.add_option("files", options.files, "files to read")->required();
  format.add_option("-o,--output", options.output, "cluster file to write (default: only print)");
  format.add_option("--over", options.over,
                    "cluster (shipped name or file) that holds for all that was not measured");
  format.add_option("--name", options.name, "of the cluster (default: imported, or NAME-measured)");
  format.add_option("--gpu", options.gpu, "whose peaks to take (default: as the log says)");
}

void bind_nccl_tests(CLI::App& command, ImportCollectivesOptions& options,
                     std::function<int()>& action) {
  CLI::App& format = add_format(command, "nccl-tests",
                                "what all_reduce_perf and its siblings print (or -J writes)");
  options.format = CollectiveFormat::NcclTests;
  bind_cluster_flags(format, options);
  format.add_option("--collective", options.collective,
                    "of logs that do not say it, e.g. all-gather");
  format.add_option("--ranks", options.ranks, "of logs that do not say it")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 24));
  format.add_flag("--out-of-place", options.out_of_place, "take these columns (default: in place)");
  format.footer(
      "Examples:\n"
      "  mpirun -np 8 all_reduce_perf -b 8K -e 1G -f 2 -g 1 | tee allreduce.log\n"
      "  dovetail import nccl-tests allreduce.log -o here.json");
  format.callback([&options, &action] {
    action = [&options] {
      import_collectives(options, std::cout);
      return 0;
    };
  });
}

}  // namespace

void bind_import(CLI::App& app, const std::string& data_dir, ImportOptions& options,
                 std::function<int()>& action) {
  CLI::App& command =
      *app.add_subcommand("import", "profiler traces and logs to workload and cluster files");
  command.require_subcommand(1);
  command.footer(kExamples);
  options.nccl_tests.data_dir = data_dir;
  bind_nccl_tests(command, options.nccl_tests, action);
}

}  // namespace dovetail::cli

// Binds the flags of `dovetail import` and its formats.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/import_flags.h"

#include "cli/common_flags.h"
namespace dovetail::cli {
namespace {

constexpr const char* kImportExamples =
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
  format.add_option("files", options.files, "files to read, packed with gzip or not")->required();
  bind_product(format, {options.output, options.json, "cluster file", "only print"});
  format.add_option("--over", options.over,
                    "cluster (shipped name or file) that holds for all that was not measured");
  format.add_option("--name", options.name, "of the cluster (default: imported, or NAME-measured)");
  format.add_option("--gpu", options.gpu, "whose peaks to take (default: as the log says)");
  format
      .add_option(
          "--node-ranks", options.node_ranks,
          "ranks on each node: fits links to tables over several nodes, for other numbers of ranks")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
}

void bind_nccl_tests(CLI::App& command, ImportCollectivesOptions& options, Action& action) {
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
  bind_action(format, options, action, import_collectives);
}

void bind_nccl_inspector(CLI::App& command, ImportCollectivesOptions& options, Action& action) {
  CLI::App& format =
      add_format(command, "nccl-inspector",
                 "JSON lines of NCCL's inspector plugin (2.28 and later), all ranks");
  options.format = CollectiveFormat::NcclInspector;
  bind_cluster_flags(format, options);
  format.footer(
      "Examples:\n"
      "  NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so NCCL_INSPECTOR_ENABLE=1 \\\n"
      "    NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES=0 NCCL_INSPECTOR_DUMP_DIR=logs srun train\n"
      "  dovetail import nccl-inspector logs/* --over h200x8 -o here.json");
  bind_action(format, options, action, import_collectives);
}

void bind_flight_recorder(CLI::App& command, ImportCollectivesOptions& options, Action& action) {
  CLI::App& format = add_format(command, "flight-recorder",
                                "PyTorch's flight recorder in JSON, one file per rank");
  options.format = CollectiveFormat::FlightRecorder;
  bind_cluster_flags(format, options);
  format.footer(
      "Examples:\n"
      "  TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_ENABLE_TIMING=1 torchrun ... train.py, which ends "
      "with\n"
      "    open(f\"fr{rank}.json\", "
      "\"w\").write(torch._C._distributed_c10d._dump_fr_trace_json())\n"
      "    (older: _dump_nccl_trace_json and TORCH_NCCL_TRACE_BUFFER_SIZE)\n"
      "  dovetail import flight-recorder fr*.json --over h200x8 -o here.json");
  bind_action(format, options, action, import_collectives);
}

void bind_nccl_log(CLI::App& command, ImportCollectivesOptions& options, Action& action) {
  CLI::App& format = add_format(command, "nccl-log",
                                "NCCL_DEBUG=INFO: channels, algorithms, and NCCL's own model");
  options.format = CollectiveFormat::NcclLog;
  bind_cluster_flags(format, options);
  format.footer(
      "Examples:\n"
      "  NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING,COLL srun train 2>&1 | tee nccl.log\n"
      "  dovetail import nccl-log nccl.log");
  bind_action(format, options, action, import_collectives);
}

CLI::App& bind_step(CLI::App& command, const char* name, const char* what,
                    ImportStepOptions& options, Action& action) {
  CLI::App& format = add_format(command, name, what);
  format.add_option("file", options.file, "file to read, packed with gzip or not")->required();
  bind_product(format, {options.output, options.json, "workload file", "only print"});
  format.add_option("--ranks", options.ranks, "of files that do not say it")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20));
  bind_action(format, options, action, import_step);
  return format;
}

void bind_horovod_timeline(CLI::App& command, ImportStepOptions& options, Action& action) {
  options.format = StepFormat::HorovodTimeline;
  bind_step(command, "horovod-timeline", "HOROVOD_TIMELINE: gradients with sizes and ready times",
            options, action)
      .footer(
          "Examples:\n"
          "  HOROVOD_TIMELINE=timeline.json HOROVOD_CYCLE_TIME=0.1 horovodrun -np 8 python "
          "train.py\n"
          "  dovetail import horovod-timeline timeline.json -o step.json");
}

void bind_chakra(CLI::App& command, ImportStepOptions& options, Action& action) {
  options.format = StepFormat::Chakra;
  bind_step(command, "chakra", "Chakra execution traces (.et, or their JSON) of one rank", options,
            action)
      .footer(
          "Examples:\n"
          "  chakra_trace_link ...; chakra_converter PyTorch --input linked.json --output step.et\n"
          "  dovetail import chakra step.et --ranks 8 -o step.json");
}

void bind_nsys(CLI::App& command, ImportStepOptions& options, Action& action) {
  options.format = StepFormat::Nsys;
  CLI::App& format = bind_step(
      command, "nsys", "SQLite export of Nsight Systems: one process of it", options, action);
  format.add_option("--step", options.step,
                    "name of the NVTX range around a step (default: as they repeat)");
  format.add_option("--pid", options.pid,
                    "process to read of a report of several (default: the one with most kernels)");
  format
      .add_option("--bytes", options.bytes,
                  "sizes of the all-reduces of a step in their order, e.g. 1MiB,25MiB (default: as "
                  "NCCL's ranges say)")
      ->delimiter(',');
  format.footer(
      "Examples:\n"
      "  nsys profile -t cuda,nvtx -o run python train.py; nsys export --type sqlite run.nsys-rep\n"
      "  dovetail import nsys run.sqlite --step iteration --bytes 8MiB,25MiB --ranks 8 -o "
      "step.json");
}

void bind_hlo(CLI::App& command, ImportHloOptions& options, Action& action) {
  CLI::App& format =
      add_format(command, "hlo", "a module of XLA after optimization, as text: a step of JAX");
  format.add_option("file", options.file, "file to read, packed with gzip or not")->required();
  bind_product(format, {options.output, options.json, "workload file", "only print"});
  format.footer(
      "Examples:\n"
      "  XLA_FLAGS=\"--xla_dump_to=hlo --xla_dump_hlo_as_text\" python train.py\n"
      "  dovetail import hlo hlo/module_0026.jit_step.cpu_after_optimizations.txt -o step.json\n"
      "  or what jax.jit(step).lower(...).compile().as_text() gives");
  bind_action(format, options, action, import_hlo);
}

}  // namespace

void bind_import(CLI::App& app, const std::string& data_dir, ImportOptions& options,
                 Action& action) {
  CLI::App& command =
      *app.add_subcommand("import", "profiler traces and logs to workload and cluster files");
  command.require_subcommand(1);
  command.footer(kImportExamples);
  for (ImportCollectivesOptions* const one : {&options.nccl_tests, &options.nccl_inspector,
                                              &options.flight_recorder, &options.nccl_log}) {
    one->data_dir = data_dir;
  }
  bind_nccl_tests(command, options.nccl_tests, action);
  bind_nccl_inspector(command, options.nccl_inspector, action);
  bind_flight_recorder(command, options.flight_recorder, action);
  bind_nccl_log(command, options.nccl_log, action);
  bind_horovod_timeline(command, options.horovod_timeline, action);
  bind_chakra(command, options.chakra, action);
  bind_nsys(command, options.nsys, action);
  bind_hlo(command, options.hlo, action);
}

}  // namespace dovetail::cli

// What each format of other programs is called, gives and is known by, and the examples that its help shows.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/formats.h"

#include <algorithm>

namespace dovetail::imports {
namespace {

// A log of nccl-tests may hold NCCL's own lines, a Kineto trace may name anything.
constexpr std::array kRows = {
    FormatRow{.format = Format::Nsys,
              .product = Product::Workload,
              .is_recording = true,
              .what = "SQLite export of Nsight Systems: one process of it",
              .beginning = "SQLite format 3",
              .says_ranks = SaysRanks::Mostly,
              .examples = R"(
  nsys profile -t cuda,nvtx -o run python train.py
  nsys export --type=sqlite --include-blobs=true run.nsys-rep
  dovetail diagnose run.sqlite
  dovetail import nsys run.sqlite --step iteration -o step.json
  dovetail import nsys old.sqlite --step iteration --bytes 8MiB,25MiB --ranks 8 -o step.json)"},
    FormatRow{.format = Format::HorovodTimeline,
              .product = Product::Workload,
              .what = "HOROVOD_TIMELINE: gradients with sizes and ready times",
              .marks = {"NEGOTIATE_ALLREDUCE"},
              .says_ranks = SaysRanks::Mostly,
              .examples = R"(
  HOROVOD_TIMELINE=timeline.json HOROVOD_CYCLE_TIME=0.1 horovodrun -np 8 python train.py
  dovetail import horovod-timeline timeline.json -o step.json)"},
    FormatRow{.format = Format::Kineto,
              .product = Product::Recording,
              .is_recording = true,
              .what = "PyTorch profiler traces to a workload file",
              .marks = {"\"traceEvents\""},
              .examples = R"(
  dovetail import kineto rank0.json.gz -o step.json
  dovetail explore --workload step.json)"},
    FormatRow{.format = Format::NcclInspector,
              .product = Product::Cluster,
              .what = "JSON lines of NCCL's inspector plugin (2.28 and later), all ranks",
              .marks = {"\"coll_perf\"", "\"dump_stats\""},
              .examples = R"(
  NCCL_PROFILER_PLUGIN=libnccl-profiler-inspector.so NCCL_INSPECTOR_ENABLE=1 \
    NCCL_INSPECTOR_DUMP_MIN_SIZE_BYTES=0 NCCL_INSPECTOR_DUMP_DIR=logs srun train
  dovetail import nccl-inspector logs/* --over h200x8 -o here.json)"},
    FormatRow{.format = Format::FlightRecorder,
              .product = Product::Cluster,
              .what = "PyTorch's flight recorder in JSON, one file per rank",
              .marks = {"\"pg_config\""},
              .examples = R"(
  TORCH_FR_BUFFER_SIZE=2000 TORCH_NCCL_ENABLE_TIMING=1 torchrun ... train.py, which ends with
    open(f"fr{rank}.json", "w").write(torch._C._distributed_c10d._dump_fr_trace_json())
    (older: _dump_nccl_trace_json and TORCH_NCCL_TRACE_BUFFER_SIZE)
  dovetail import flight-recorder fr*.json --over h200x8 -o here.json)"},
    FormatRow{.format = Format::NcclTests,
              .product = Product::Cluster,
              .what = "what all_reduce_perf and its siblings print (or -J writes)",
              .marks = {"nThread ", "algbw", "\"alg_bw\""},
              .says_ranks = SaysRanks::Mostly,
              .examples = R"(
  mpirun -np 8 all_reduce_perf -b 8K -e 1G -f 2 -g 1 | tee allreduce.log
  dovetail import nccl-tests allreduce.log -o here.json)"},
    FormatRow{.format = Format::NcclLog,
              .product = Product::Cluster,
              .what = "NCCL_DEBUG=INFO: channels, algorithms, and NCCL's own model",
              .marks = {"NCCL INFO"},
              .examples = R"(
  NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,TUNING,COLL srun train 2>&1 | tee nccl.log
  dovetail import nccl-log nccl.log)"},
    FormatRow{.format = Format::Chakra,
              .product = Product::Workload,
              .what = "Chakra execution traces (.et, or their JSON) of one rank",
              .marks = {"\"workload_graph\""},
              .says_ranks = SaysRanks::No,
              .examples = R"(
  chakra_trace_link ...; chakra_converter PyTorch --input linked.json --output step.et
  dovetail import chakra step.et --ranks 8 -o step.json)"},
    FormatRow{.format = Format::Hlo,
              .product = Product::Workload,
              .what = "a module of XLA after optimization, as text: a step of JAX",
              .marks = {"HloModule "},
              .examples = R"(
  XLA_FLAGS="--xla_dump_to=hlo --xla_dump_hlo_as_text" python train.py
  dovetail import hlo hlo/module_0026.jit_step.cpu_after_optimizations.txt -o step.json
  or what jax.jit(step).lower(...).compile().as_text() gives)"},
};
constexpr bool has_one_row(Format format) {
  return std::ranges::count(kRows, format, &FormatRow::format) == 1;
}
static_assert(std::ranges::all_of(kAllOf<Format>, has_one_row));

}  // namespace

std::span<const FormatRow> formats() { return kRows; }

const FormatRow& row_of(Format format) {
  return *std::ranges::find(kRows, format, &FormatRow::format);
}

bool is_recording(Format format) { return row_of(format).is_recording; }

std::string import_command(Format format, const std::string& path) {
  const FormatRow& row = row_of(format);
  return "dovetail import " + std::string(to_string(format)) + " " + path +
         (row.says_ranks == SaysRanks::No ? " --ranks N" : "");
}

std::string import_to_file(Format format, const std::string& path) {
  return import_command(format, path) + " -o " +
         (row_of(format).product == Product::Cluster ? "cluster.json" : "step.json");
}

}  // namespace dovetail::imports

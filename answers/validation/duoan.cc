// Replicas and shards of a 3.4 B transformer in f32 on two A100 (a student's own DDP and FSDP).
//
// cs336_systems/fsdp_benchmark.py of duoan/cs336-assignment2-systems at e26922c: width 2,560, 32 layers and heads,
// inner size 10,240, 10,000 words, samples of 512 tokens, two per rank; fused AdamW; attention that keeps
// its scores. Its "fp16" is autocast: parameters stay f32. Memory is the peak of allocated tensors. Its DDP
// (my_ddp_impl.py) reduces each gradient as it is, waits at the end and divides it then. Its FSDP (fsdp.py) gathers one matrix at a time, in lists of
// tensors, which are copied behind a gather and before a reduction, and waits for each reduce-scatter where it starts it.
//
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "answers/validation/table.h"
#include "answers/validation/yardstick.h"
#include "base/error.h"

namespace dovetail::yardsticks {
namespace {

Row duoan_row(const TableRow& table) {
  Row row{.name = table.where(), .device = "A100 80GB", .group = "3.4 B on 2"};
  const std::string& mode = table.text("mode");
  const bool is_sharded = mode.starts_with("fsdp");
  const bool is_half = mode.ends_with("fp16");
  row.policy =
      is_sharded ? "fsdp:cap=1B,mode=copy,prefetch=" + std::to_string(table.count_or("prefetch", 1))
                 : "per-tensor:wait=end-of-backward,scale=after-collective";
  row.synchronous = is_sharded;
  row.memory = Bytes(table.count("peak_bytes"));
  row.step = from_us(table.number("step_ms") * 1e3);
  jobs::Job job{.model = {.name = "cs336_xl",
                          .layers = 32,
                          .width = 2560,
                          .vocabulary = 10'000,
                          .inner = 10'240,
                          .attention = {.heads = 32, .key_value_heads = 32, .head_dim = 80}}};
  if (parameters(job.model) != table.count("num_params")) {
    throw InputError(table.where() + ": num_params: expected " +
                     std::to_string(parameters(job.model)));
  }
  (is_sharded ? job.layout.dp_shard : job.layout.dp) = 2;
  job.batch = {.sequence = 512, .micro = 2, .global = 4};
  job.precision = {.compute = is_half ? schedule::DType::F16 : schedule::DType::F32,
                   .master_bytes = is_half ? 4 : 0};
  job.zero = is_sharded ? jobs::Zero::Parameters : jobs::Zero::Nothing;
  job.prefetch = table.count_or("prefetch", 1);
  job.flash = false;
  job.kernels = jobs::Kernels::Eager;
  if (is_half) row.own_cause = "autocast, whose casts are not counted";
  set_job(row, std::move(job));
  return row;
}

}  // namespace

Yardstick duoan(const std::string& folder) {
  Yardstick yardstick{.name = "duoan", .kind = MemoryKind::Allocated};
  for (const TableRow& table : read_table(folder + "/duoan_a100.csv")) {
    yardstick.rows.push_back(duoan_row(table));
  }
  return yardstick;
}

}  // namespace dovetail::yardsticks

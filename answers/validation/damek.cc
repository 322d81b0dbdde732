// Replicas of a 2.0 B transformer on two PCIe GPUs, reduced in seven ways (a student's own DDP).
//
// cs336_systems of damek/cs336-assignment2-systems at 749e968: width 1,600, 48 layers, 25 heads, inner size 6,400, 10,000 words;
// attention that keeps its scores. The GPUs are not named; its README starts NVIDIA's container 25.06, which multiplies f32 in TF32, and
// its profiles show such kernels. Each step begins with a batch from the host and ends with an AdamW of 35 passes over what it updates
// where ours has seven: what the first row takes more than it is predicted to is added to all others.
//
// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>
#include <utility>

#include "answers/validation/table.h"
#include "answers/validation/yardstick.h"
#include "base/error.h"

namespace dovetail::yardsticks {
namespace {

std::string damek_policy(const TableRow& table) {
  const std::string& schedule = table.text("schedule");
  if (schedule == "per-parameter after backward") return "no-overlap-per-tensor";
  if (schedule == "one flat bucket after backward") return "no-overlap:mode=copy";
  const std::string at_the_end = "wait=end-of-backward,scale=after-collective";
  if (schedule == "per-parameter overlapped") return "per-tensor:" + at_the_end;
  if (schedule == "bucketed overlapped") {
    return "threshold:cap=" + table.text("bucket_mib") + "MiB,closes=before-exceeding,mode=copy," +
           at_the_end;
  }
  throw InputError(table.where() +
                   ": schedule: expected per-parameter or one flat bucket after backward, "
                   "per-parameter overlapped or bucketed overlapped, found \"" +
                   schedule + "\"");
}

Row damek_row(const TableRow& table, const std::string& machine) {
  Row row{.name = table.where(), .device = "two PCIe GPUs"};
  row.own_cause = "GPUs that are not named";
  row.machine = machine;
  row.step = from_us(table.number("step_s") * 1e6);
  row.policy = damek_policy(table);
  row.group = "2.0 B, " + table.text("local_batch") + " x " + table.text("seq_len");
  jobs::Job job{.model = {.name = "cs336_xl_1600",
                          .layers = 48,
                          .width = 1600,
                          .vocabulary = 10'000,
                          .inner = 6400,
                          .attention = {.heads = 25, .key_value_heads = 25, .head_dim = 64}}};
  job.layout.dp = 2;
  job.batch = {.sequence = table.count("seq_len"),
               .micro = table.count("local_batch"),
               .global = 2 * table.count("local_batch")};
  job.precision = {
      .compute = schedule::DType::F32, .master_bytes = 0, .products = schedule::Operands::Tf32};
  job.flash = false;
  job.kernels = jobs::Kernels::Eager;
  set_job(row, std::move(job));
  return row;
}

}  // namespace

Yardstick damek(const std::string& folder) {
  Yardstick yardstick{
      .name = "damek", .kind = MemoryKind::Allocated, .first_gives = "its optimizer's time"};
  for (const TableRow& table : read_table(folder + "/damek_2gpu.csv")) {
    yardstick.rows.push_back(damek_row(table, folder + "/damek_2gpu.json"));
  }
  return yardstick;
}

}  // namespace dovetail::yardsticks

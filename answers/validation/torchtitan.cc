// torchtitan's published benchmarks of Llama 3.1 on H100 and H200.
//
// Settings beside its columns are those of torchtitan's train_configs at the time (2024-12): 8B keeps what
// selective recomputation per op keeps, 70B and 405B recompute whole layers; FSDP2 with f32 parameters, sums and
// moments, bf16 gathered, sums that travel in f32; with a pipeline as many micro-batches as stages, and
// parameters stay gathered between them. Memory is the peak that PyTorch's allocator reserved. float8 is
// priced by its rate; what it keeps is not known here.
//
// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <utility>

#include "answers/validation/table.h"
#include "answers/validation/yardstick.h"
#include "base/error.h"

namespace dovetail::yardsticks {
namespace {

// The number behind `word` in "FSDP32+TP8", or 1.
std::int64_t degree_of(const std::string& text, const std::string& word) {
  const std::size_t at = text.find(word);
  return at == std::string::npos ? 1 : std::stoll("0" + text.substr(at + word.size()));
}

Row torchtitan_row(const TableRow& table) {
  Row row{.name = table.where(), .device = table.text("hardware")};
  const std::string& model = table.text("model");
  const std::string& parallel = table.text("parallel");
  const std::string& options = table.text("options");
  const bool is_small = model.ends_with("-8B");
  if (const auto gib = table.number_if("memory_gib"))
    row.memory = Bytes(std::llround(*gib * 0x1p30));
  const std::int64_t gpus = table.count("gpus");
  const std::int64_t sequence = table.count("seq");
  const std::int64_t samples = table.count("global_batch");
  row.step = from_us(static_cast<double>(samples * sequence) /
                     (table.number("tps_gpu") * static_cast<double>(gpus)) * 1e6);
  row.group = model + " on " + std::to_string(gpus);
  const std::string known = is_small                  ? "llama3_8b"
                            : model.ends_with("70B")  ? "llama3_70b"
                            : model.ends_with("405B") ? "llama3_405b"
                                                      : "";
  if (known.empty()) {
    row.no_job = "model " + model + " is not known";
    return row;
  }
  jobs::Job job{.model = jobs::known_model(known), .as = jobs::RunBy::Fsdp};
  job.layout.dp_shard = degree_of(parallel, "FSDP");
  job.layout.tp = degree_of(parallel, "TP");
  job.layout.pp = degree_of(parallel, "PP");
  job.layout.cp = degree_of(parallel, "CP");
  if (job.layout.world() != gpus) {
    row.no_job = "layout " + parallel + " is not one of " + std::to_string(gpus) + " GPUs";
    return row;
  }
  job.batch = {
      .sequence = sequence, .micro = table.count("local_batch") / job.layout.pp, .global = samples};
  const bool is_interleaved = options.find("nterleaved") != std::string::npos;
  if (is_interleaved) job.layout.vp = 2;
  job.zero = jobs::Zero::Parameters;
  job.reshard = job.layout.pp == 1;
  job.recompute = is_small ? jobs::Recompute::Op : jobs::Recompute::Full;
  if (options.find("float8") != std::string::npos) {
    job.precision.products = schedule::Operands::Fp8;
  }
  job.async_tp = options.find("asyncTP") != std::string::npos;
  const bool is_eager = options.find("eager") != std::string::npos;
  job.attention = schedule::AttentionKernel::Fa2;  // PyTorch's own choice until 2026
  job.kernels = is_eager ? jobs::Kernels::Eager : jobs::Kernels::Fused;
  row.rules = memory_rules(job);
  set_job(row, std::move(job));
  return row;
}

}  // namespace

Yardstick torchtitan(const std::string& folder) {
  Yardstick yardstick{.name = "torchtitan"};
  for (const TableRow& table : read_table(folder + "/torchtitan_h100_h200.csv")) {
    Row row = torchtitan_row(table);
    // They give how long products take on that card (models/clusters/h100_96gb_500w.json), and are not judged.
    const bool gives = table.text("hardware").ends_with("500W") && table.count("gpus") == 8;
    if (gives) row.step.reset();
    yardstick.rows.push_back(std::move(row));
  }
  return yardstick;
}

}  // namespace dovetail::yardsticks

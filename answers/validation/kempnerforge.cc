// FSDP2 and tensor parallelism of the Kempner Institute's trainer on 1 to 32 H200, four a node, InfiniBand.
//
// benchmarks/mfu_scaling/mfu_scaling.md of KempnerInstitute/KempnerForge at 5666d0d (2026-04-05): Llama 3's architecture with its
// vocabulary, samples of 4,096 tokens, weights and moments in bf16 (parallel.py: the model is moved to it), reductions in f32, every layer
// computed again, fused AdamW, compiled where `options` say so, PyTorch's own choice of an attention kernel. Between micro-batches it does not
// reduce (training/grad.py). With tensor parallelism each rank has all logits and their loss (tensor_parallel.py), which no job says, so
// memory_gib (metrics/memory.py: torch.cuda.max_memory_allocated) is not judged.
//
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>

#include "answers/validation/table.h"
#include "answers/validation/yardstick.h"
#include "base/error.h"

namespace dovetail::yardsticks {
namespace {

jobs::Model llama_of(const TableRow& table) {
  const std::string& name = table.text("model");
  jobs::Model model = jobs::known_model("llama3_8b");
  if (name == "7B") return model;
  if (name != "13B") {
    throw InputError(table.where() + ": model: expected 7B or 13B, found \"" + name + "\"");
  }
  model.name = "kempnerforge_13b";
  model.layers = 40;
  model.width = 5120;
  model.inner = 17'920;
  model.attention.heads = 40;
  return model;
}

Row kempnerforge_row(const TableRow& table) {
  constexpr std::int64_t kGpusANode = 4;
  Row row{.name = table.where(), .device = "H200, nodes of 4", .node_gpus = kGpusANode};
  const std::int64_t gpus = table.count("gpus");
  jobs::Job job{.model = llama_of(table), .as = jobs::RunBy::Fsdp};
  job.layout.tp = table.count("tp");
  job.layout.dp_shard = table.count("fsdp");
  const std::int64_t micro = table.count("micro_batch");
  job.batch = {.sequence = 4096,
               .micro = micro,
               .global = micro * table.count("accumulation") * job.layout.dp_shard};
  job.precision = {.gradient = schedule::DType::BF16, .master_bytes = 0, .state_bytes = 4};
  job.zero = job.layout.dp_shard > 1 ? jobs::Zero::Parameters : jobs::Zero::Nothing;
  job.sync_each = false;
  job.recompute = jobs::Recompute::Full;
  job.kernels = table.text("options") == "compile" ? jobs::Kernels::Fused : jobs::Kernels::Eager;
  row.step = from_us(1e6 * static_cast<double>(job.tokens()) / table.number("tokens_per_s"));
  row.group = table.text("model") + " on " + std::to_string(gpus);
  set_job(row, std::move(job));
  return row;
}

}  // namespace

Yardstick kempnerforge(const std::string& folder) {
  Yardstick yardstick{.name = "kempnerforge"};
  for (const TableRow& table : read_table(folder + "/kempnerforge_h200.csv")) {
    yardstick.rows.push_back(kempnerforge_row(table));
  }
  return yardstick;
}

}  // namespace dovetail::yardsticks

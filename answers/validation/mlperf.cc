// MLPerf Training's runs of Llama 3.1 with NVIDIA's NeMo, closed division, rounds 5.0 and 5.1: times only.
//
// A step is the median over runs of what their logs give between two evaluations. Settings are those of the
// config that the submission names; where it names none, or two that fit, the row is no job. What all
// configs share, as round 5.0's pretrain.py and conf/custom.yaml have it: the optimizer is distributed,
// gradients are kept and reduced in bf16 (grad_reduce_in_fp32=False), both of its exchanges overlap, nothing is
// recomputed, context parallelism is Megatron's ring. With asym_pp embedding and loss each count as a layer when
// virtual stages are filled.
//
// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <utility>
#include <vector>

#include "answers/validation/table.h"
#include "answers/validation/yardstick.h"
#include "schedule/program.h"

namespace dovetail::yardsticks {
namespace {

std::string model_of_benchmark(const std::string& benchmark) {
  if (benchmark == "llama31_8b") return "llama3_8b";
  if (benchmark == "llama31_405b") return "llama3_405b";
  return "";
}

// Why a run is no job of ours, or "".
std::string reason_against_run(const TableRow& table) {
  const std::string& benchmark = table.text("benchmark");
  if (benchmark == "llama2_70b_lora") return "its submission's config is not in the table";
  if (model_of_benchmark(benchmark).empty()) return "benchmark " + benchmark + " is not known";
  if (table.text("config").empty()) return "its submission does not say with which config it ran";
  return {};
}

// Elements of a bucket of gradients; 0: the framework's. Where parameters are gathered with the optimizer's step,
// Megatron has no buckets but a chunk of the model, which none of this size closes before.
std::int64_t bucket_elements(const TableRow& table, const jobs::Model& model) {
  if (table.text("gather_with_optim_step") == "yes") return parameters(model);
  return table.count_or("bucket_elements", 0);
}

// Layers of each virtual stage, the first and the last of which has one less. Empty: they do not come out even.
std::vector<std::int64_t> between_embedding_and_loss(const jobs::Job& job) {
  const std::int64_t stages = job.layout.pp * job.layout.vp;
  const std::int64_t counted = job.model.layers + 2;
  if (stages < 2 || counted % stages != 0) return {};
  std::vector<std::int64_t> layers(static_cast<std::size_t>(stages), counted / stages);
  --layers.front();
  --layers.back();
  return layers;
}

Row mlperf_row(const TableRow& table) {
  Row row{.name = table.where(), .device = table.text("device")};
  row.step = from_us(table.number("step_ms_median") * 1e3);
  row.no_job = reason_against_run(table);
  if (!row.no_job.empty()) return row;
  const std::string& benchmark = table.text("benchmark");
  jobs::Job job{.model = jobs::known_model(model_of_benchmark(benchmark)),
                .as = jobs::RunBy::Megatron};
  jobs::Layout& layout = job.layout;
  layout.tp = table.count("tp");
  layout.pp = table.count("pp");
  layout.vp = table.count("vp");
  layout.cp = table.count("cp");
  const std::int64_t gpus = table.count("gpus");
  const std::int64_t of_a_replica = layout.tp * layout.pp * layout.cp;
  if (of_a_replica == 0 || gpus % of_a_replica != 0) {
    row.no_job = "its degrees do not divide its GPUs";
    return row;
  }
  layout.dp = gpus / of_a_replica;
  if (table.text("asym_pp") == "yes") {
    layout.layers = between_embedding_and_loss(job);
    if (layout.layers.empty()) {
      row.no_job = "its layers, embedding and loss are no multiple of its virtual stages";
      return row;
    }
  }
  job.batch = {.sequence = table.count("seq_len"),
               .micro = table.count("mbs"),
               .global = table.count("global_batch")};
  job.precision.gradient = job.precision.reduce = schedule::DType::BF16;
  if (table.text("precision") == "fp8") job.precision.products = schedule::Operands::Fp8;
  if (table.text("precision") == "nvfp4") job.precision.products = schedule::Operands::Fp4;
  job.zero = jobs::Zero::Optimizer;
  job.exchange = jobs::ContextExchange::Ring;
  job.async_tp = table.text("tp_comm_overlap") == "yes";
  if (const std::int64_t elements = bucket_elements(table, job.model); elements > 0)
    job.bucket_bytes = elements * element_size(job.precision.gradient).count();
  row.scaling = benchmark + " " + table.text("precision") + " on " + row.device;
  set_job(row, std::move(job));
  return row;
}

}  // namespace

Yardstick mlperf(const std::string& folder) {
  Yardstick yardstick{.name = "mlperf"};
  for (const TableRow& table : read_table(folder + "/mlperf_llama31.csv")) {
    yardstick.rows.push_back(mlperf_row(table));
  }
  return yardstick;
}

}  // namespace dovetail::yardsticks

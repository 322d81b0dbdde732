// NVIDIA's published performance of NeMo Megatron-Bridge on H100 and GB200: times only.
//
// docs/performance-summary*.md of NVIDIA-NeMo/Megatron-Bridge at 067f987. Its columns are Megatron's degrees; with
// `FSDP` that many ranks share each replica, else the optimizer is distributed. What its recipes set besides stands in
// megatron_bridge_recipes.csv: of v0.2.1 to v0.4.2 scripts/performance/configs, of v0.6.0 src/megatron/bridge/perf_recipes, by the
// container that a version belongs to. Fine-tuning of all weights is not priced.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "answers/validation/table.h"
#include "answers/validation/yardstick.h"
#include "base/error.h"
#include "models/networks/text.h"

namespace dovetail::yardsticks {
namespace {

// "DeepSeekV3 (w/o MTP)" -> "deepseek_v3"; "" where models/networks/ does not know it.
std::string known_name(const std::string& model) {
  static const std::map<std::string, std::string> kNames = {{"LLAMA3_8B", "llama3_8b"},
                                                            {"LLAMA3_70B", "llama3_70b"},
                                                            {"LLAMA3.1_405B", "llama3_405b"},
                                                            {"Qwen3_30B_a3B", "qwen3_30b_a3b"},
                                                            {"Qwen3_235B_a22B", "qwen3_235b_a22b"},
                                                            {"GPT OSS 120B", "gpt_oss_120b"},
                                                            {"DeepSeekV3", "deepseek_v3"}};
  const auto found = kNames.find(model.substr(0, model.find(" (")));
  return found == kNames.end() ? "" : found->second;
}

// Its recipes (perf_recipes/llama) have adapters of rank 16 on linear_qkv alone; here the output of attention has one, too.
const std::string kLora = "LoRA Performance";

// Why a row is none of ours, or "".
std::string reason_against(const TableRow& table, const std::string& known) {
  if (known.empty()) return "model " + table.text("model") + " is not known";
  const std::string& section = table.text("section");
  if (section != "Pre-Training Performance" && section != kLora) return section + " is not priced";
  if (table.text("precision").empty()) return "no precision is stated";
  return {};
}

// Whether "26.02|26.04" names it; "*" names all.
bool names(const std::string& list, const std::string& one) {
  return list == "*" || ("|" + list + "|").find("|" + one + "|") != std::string::npos;
}

// Of all recipes that are this row's, in the order of the file.
void follow(const std::vector<TableRow>& recipes, const TableRow& table, jobs::Job& job) {
  for (const TableRow& recipe : recipes) {
    const std::string model = table.text("model");
    const std::string precision = table.text("precision");
    if (!names(recipe.text("containers"), table.text("container")) ||
        !names(recipe.text("model"), model.substr(0, model.find(" ("))) ||
        !names(recipe.text("system"), table.text("system")) ||
        !names(recipe.text("precision"), precision.substr(0, precision.find(" ("))))
      continue;
    std::string options = recipe.text("options");
    std::ranges::replace(options, ';', ',');
    jobs::set_options(job, options, recipe.where());
  }
}

Row megatron_bridge_row(const TableRow& table, const std::vector<TableRow>& recipes) {
  Row row{.name = table.where(), .device = table.text("system")};
  row.step = from_us(table.number("step_ms") * 1e3);
  const std::string known = known_name(table.text("model"));
  row.no_job = reason_against(table, known);
  if (!row.no_job.empty()) return row;
  jobs::Job job{.model = jobs::known_model(known), .as = jobs::RunBy::Megatron};
  jobs::Layout& layout = job.layout;
  layout.tp = table.count_or("tp", 1);
  layout.pp = table.count_or("pp", 1);
  layout.cp = table.count_or("cp", 1);
  layout.vp = table.count_or("vp", 1);
  layout.ep = table.count_or("ep", 1);
  layout.etp = table.count_or("etp", 1);
  const std::int64_t gpus = table.count("gpus");
  const std::int64_t shards = std::max<std::int64_t>(table.count_or("fsdp", 0), 1);
  const std::int64_t of_a_replica = layout.tp * layout.pp * layout.cp;
  if (of_a_replica == 0 || gpus % of_a_replica != 0) {
    row.no_job = "its degrees do not divide its GPUs";
    return row;
  }
  const std::int64_t replicas = gpus / of_a_replica;
  layout.dp_shard = replicas % shards == 0 ? shards : 1;
  layout.dp = replicas / layout.dp_shard;
  job.zero = layout.dp_shard > 1 ? jobs::Zero::Parameters : jobs::Zero::Optimizer;
  job.batch = {
      .sequence = table.count("seq"), .micro = table.count("mbs"), .global = table.count("gbs")};
  const bool is_lora = table.text("section") == kLora;
  if (is_lora) {
    job.lora = 16;
    job.lora_on = jobs::LoraTargets::Attention;
  }
  const std::string precision = table.text("precision");
  if (precision != "BF16") {
    job.precision.products =
        precision == "NVFP4" ? schedule::Operands::Fp4 : schedule::Operands::Fp8;
  }
  job.precision.gradient = job.precision.reduce = schedule::DType::BF16;
  job.loss = jobs::Loss::Fused;
  job.exchange = jobs::ContextExchange::Ring;
  job.async_tp = known.starts_with("llama3_") && layout.tp > 1 && precision != "NVFP4";
  follow(recipes, table, job);
  row.group = known + (is_lora ? " LoRA " : " ") + precision + " on " + std::to_string(gpus) +
              " of " + row.device;
  set_job(row, std::move(job));
  return row;
}

}  // namespace

Yardstick megatron_bridge(const std::string& folder) {
  Yardstick yardstick{.name = "megatron-bridge"};
  const std::vector<TableRow> recipes = read_table(folder + "/megatron_bridge_recipes.csv");
  for (const TableRow& table : read_table(folder + "/megatron_bridge.csv")) {
    yardstick.rows.push_back(megatron_bridge_row(table, recipes));
  }
  return yardstick;
}

}  // namespace dovetail::yardsticks

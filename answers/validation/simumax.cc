// SimuMax's table of Megatron-LM jobs on eight B200: models cut to a few layers.
//
// Names carry the layout ("llama3_70b_l12_tp1_pp2_dp4_mbc4_cef": 12 layers, four micro-batches, a fused loss);
// configs/strategy/ of MooreThreads/SimuMax at 4dcaae5 says the rest: sequences of 4,096 unless named,
// micro-batches of one, bf16 with f32 sums, a distributed optimizer, flash attention, sequence parallelism, no
// recomputation; DeepSeek-V3 with one dense layer. Memory is the largest peak of allocated tensors.
//
// SimuMax prices them with products that were measured alone on that machine's GPU (simumax_b200_products.csv: 100 of each size in a row,
// the first 25 untimed, both matrices random numbers; those without a sum that take a millisecond and more). They take 1.32 times as long as the
// shipped ones (1.25 to 1.43, fifth and 95th percentile), shorter ones of the same file 1.04 times: in a tenth of a second that GPU lowers its
// clock by a quarter. `simumax_own` takes its products to be that much longer, so it says nothing of other machines.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "answers/validation/table.h"
#include "answers/validation/yardstick.h"
#include "base/error.h"
#include "base/statistics.h"
#include "models/rates/gemm_table.h"

namespace dovetail::yardsticks {
namespace {

// "tp" -> 2 for each part of a name that is letters and then digits.
std::map<std::string, std::int64_t> settings_of(const std::string& name) {
  std::map<std::string, std::int64_t> settings;
  std::size_t at = 0;
  while (at < name.size()) {
    const std::size_t end = std::min(name.find('_', at), name.size());
    const std::string part = name.substr(at, end - at);
    const auto digits =
        std::ranges::find_if(part, [](unsigned char c) { return std::isdigit(c) != 0; });
    const std::string number(digits, part.end());
    const bool is_setting =
        digits != part.begin() && !number.empty() && number.size() < 10 &&
        std::ranges::all_of(number, [](unsigned char c) { return std::isdigit(c) != 0; });
    if (is_setting) settings[std::string(part.begin(), digits)] = std::stoll(number);
    at = end + 1;
  }
  return settings;
}

std::string simumax_model(const std::string& model) {
  if (model == "llama3-70b") return "llama3_70b";
  if (model == "llama3-405b") return "llama3_405b";
  if (model == "deepseekv2") return "deepseek_v2";
  if (model == "deepseekv3") return "deepseek_v3";
  return {};
}

Row simumax_row(const TableRow& table) {
  Row row{.name = table.where(), .device = "B200"};
  row.step = from_us(table.number("real_ms") * 1e3);
  row.memory = Bytes(std::llround(table.number("real_alloc_gib") * 0x1p30));
  const std::string& model = table.text("model");
  const std::string known = simumax_model(model);
  if (known.empty()) {
    row.no_job = "model " + model + " is not known";
    return row;
  }
  const std::map<std::string, std::int64_t> settings = settings_of(table.text("case"));
  const auto setting = [&](const std::string& key, std::int64_t otherwise) {
    const auto found = settings.find(key);
    return found == settings.end() ? otherwise : found->second;
  };
  jobs::Job job{.model = jobs::known_model(known), .as = jobs::RunBy::Megatron};
  job.model.layers = table.count("layer_num");
  if (job.model.experts) job.model.experts->first_layer = 1;
  job.layout.tp = setting("tp", 1);
  job.layout.pp = setting("pp", 1);
  job.layout.dp = setting("dp", 1);
  job.layout.cp = setting("cp", 1);
  job.layout.ep = setting("ep", 1);
  job.batch = {
      .sequence = setting("seq", 4096), .micro = 1, .global = table.count("mbc") * job.layout.dp};
  job.zero = job.layout.dp * job.layout.cp > 1 ? jobs::Zero::Optimizer : jobs::Zero::Nothing;
  row.rules = memory_rules(job);
  if (table.text("case").ends_with("_cef")) job.loss = jobs::Loss::Fused;
  set_job(row, std::move(job));
  return row;
}

constexpr const char* kSteps = "/simumax_b200.csv";
constexpr const char* kProducts = "/simumax_b200_products.csv";

// Of a GPU's own products, the median of measured / shipped; 1 of none.
double products_stretch(const std::string& path) {
  const models::GemmTable& shipped = *models::gemm_table("b200");
  std::vector<double> ratios;
  for (const TableRow& row : read_table(path)) {
    const Duration time =
        shipped.time({.m = row.count("m"), .n = row.count("n"), .k = row.count("k")});
    ratios.push_back(row.number("us") / to_us(time));
  }
  return median_or(std::move(ratios), 1.0);
}

}  // namespace

Yardstick simumax(const std::string& folder) {
  Yardstick yardstick{.name = "simumax", .kind = MemoryKind::Allocated};
  for (const TableRow& table : read_table(folder + kSteps)) {
    yardstick.rows.push_back(simumax_row(table));
  }
  return yardstick;
}

Yardstick simumax_own(const std::string& folder) {
  Yardstick own{.name = "simumax-own"};
  if (!std::filesystem::exists(folder + kProducts)) return own;
  const double stretch = products_stretch(folder + kProducts);
  for (Row& row : simumax(folder).rows) {
    row.name += " by its own products";
    row.products_stretch = stretch;
    row.own_cause = "by its own products";
    row.memory = std::nullopt;
    own.rows.push_back(std::move(row));
  }
  return own;
}

}  // namespace dovetail::yardsticks

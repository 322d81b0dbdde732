// SimuMax's table of Megatron-LM jobs on eight B200: models cut to a few layers.
//
// Names carry the layout ("llama3_70b_l12_tp1_pp2_dp4_mbc4_cef": 12 layers, four micro-batches, a fused loss);
// configs/strategy/ of MooreThreads/SimuMax at 4dcaae5 says the rest: sequences of 4,096 unless named,
// micro-batches of one, bf16 with f32 sums, a distributed optimizer, flash attention, sequence parallelism, no
// recomputation; DeepSeek-V3 with one dense layer. Memory is the largest peak of allocated tensors.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "yardsticks/table.h"
#include "yardsticks/yardstick.h"

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
  jobs::Job job{.model = jobs::known_model(known), .framework = "megatron"};
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
  row.rules.fused_loss = table.text("case").ends_with("_cef");
  set_job(row, std::move(job));
  return row;
}

}  // namespace

Yardstick simumax(const std::string& folder) {
  Yardstick yardstick{.name = "simumax", .kind = MemoryKind::Allocated};
  for (const TableRow& table : read_table(folder + "/simumax_b200.csv")) {
    yardstick.rows.push_back(simumax_row(table));
  }
  return yardstick;
}

}  // namespace dovetail::yardsticks

// Puts two thin matrices behind every weight that LoRA adapts.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/adapters.h"

#include <string>
#include <utility>

namespace dovetail::jobs {
namespace {

bool is_adapted(const Job& job, const ParameterShape& parameter) {
  const bool is_router = parameter.module == "mlp.gate";
  return parameter.layer >= 0 && parameter.product && !parameter.expert && !is_router &&
         has_adapters(job, parameter.part);
}

}  // namespace

bool has_adapters(const Job& job, Part part) {
  const bool is_within = part == Part::Attention || part == Part::Mlp;
  return job.lora > 0 && is_within &&
         (part == Part::Attention || job.lora_on == LoraTargets::AllLinear);
}

std::vector<ParameterShape> job_parameters(const Job& job) {
  std::vector<ParameterShape> base = model_parameters(job.model);
  if (job.lora == 0) return base;
  std::vector<ParameterShape> all;
  for (ParameterShape& parameter : base) {
    parameter.trained = false;
    all.push_back(parameter);
    if (!is_adapted(job, parameter)) continue;
    const std::string name = parameter.name.substr(0, parameter.name.rfind('.'));
    ParameterShape adapter = std::move(parameter);
    const Cut cut = adapter.cut;
    const std::int64_t out = adapter.shape.front();
    const std::int64_t in = adapter.shape.back();
    adapter.trained = true;
    adapter.name = name + ".lora_A.weight";
    adapter.shape = {job.lora, in};
    adapter.cut = cut == Cut::Row ? Cut::Row : Cut::Whole;
    all.push_back(adapter);
    adapter.name = name + ".lora_B.weight";
    adapter.shape = {out, job.lora};
    adapter.cut = cut == Cut::Column ? Cut::Column : Cut::Whole;
    all.push_back(std::move(adapter));
  }
  return all;
}

std::int64_t trained_parameters(const Job& job) {
  std::int64_t count = 0;
  for (const ParameterShape& parameter : job_parameters(job)) {
    if (parameter.trained) count += parameter.numel();
  }
  return count;
}

}  // namespace dovetail::jobs

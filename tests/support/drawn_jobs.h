// Jobs that are drawn key by key.
//
//   Random random(37);
//   std::optional<jobs::Job> job = drawn_job(random, {"llama3_8b"}, kAnyKey);
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "models/networks/job.h"
#include "models/networks/text.h"

namespace dovetail::testing {

// A key and the values that are drawn for it; the first is what it is by itself.
struct Drawn {
  std::string key;
  std::vector<std::string> values;
};

// A job of these keys, each given in so many of three draws; nothing where they do not go together.
inline std::optional<jobs::Job> drawn_job(Random& random, const std::vector<std::string>& models,
                                          const std::vector<Drawn>& keys,
                                          std::int64_t of_three = 2) {
  const auto any_of = [&random](const std::vector<std::string>& values) {
    const auto last = static_cast<std::int64_t>(values.size()) - 1;
    return values[static_cast<std::size_t>(random.between(0, last))];
  };
  const bool has_length = std::ranges::find(keys, "seq", &Drawn::key) != keys.end();
  std::string text = any_of(models) + (has_length ? ":" : ":seq=4096");
  for (const Drawn& one : keys) {
    if (one.key == "zero" || random.between(0, 2) >= 3 - of_three)
      text += (text.ends_with(':') ? "" : ",") + one.key + "=" + any_of(one.values);
  }
  try {
    return jobs::parse_job(text);
  } catch (const InputError&) {
    return std::nullopt;
  }
}

// All keys, of which many jobs are refused and most lose something.
inline const std::vector<Drawn> kAnyKey = {
    {"dp", {"1", "2", "4"}},
    {"dp_shard", {"1", "2", "8"}},
    {"tp", {"1", "2", "4"}},
    {"sp", {"yes", "no"}},
    {"cp", {"1", "2"}},
    {"ep", {"1", "2", "4"}},
    {"etp", {"1", "2"}},
    {"pp", {"1", "2", "4"}},
    {"vp", {"1", "2", "3"}},
    {"schedule", {"1f1b", "sequential", "zero-bubble", "zbv"}},
    {"mbs", {"1", "2"}},
    {"gbs", {"96", "192"}},
    {"dtype", {"bf16", "f32", "f16"}},
    {"optimizer", {"adam", "sgd", "muon"}},
    {"lora", {"0", "0", "16"}},
    {"lora_on", {"attention", "all-linear"}},
    {"grads", {"f32", "bf16", "f16"}},
    {"reduce", {"f32", "bf16", "f16"}},
    {"products", {"own", "tf32", "fp8", "fp4"}},
    {"master", {"4", "2", "0"}},
    {"autocast", {"no", "bf16", "f16"}},
    {"states", {"8", "6", "4", "2"}},
    {"recompute", {"none", "selective", "op", "full"}},
    {"recompute_layers", {"0", "1", "5", "9"}},
    {"zero", {"0", "1", "2", "3"}},
    {"reshard", {"yes", "no"}},
    {"prefetch", {"1", "0", "2"}},
    {"bucket", {"25MiB", "100MB", "7B"}},
    {"overlap_grads", {"yes", "no"}},
    {"overlap_params", {"yes", "no"}},
    {"async_tp", {"no", "yes"}},
    {"sync_each", {"yes", "no"}},
    {"exchange", {"all-gather", "ring"}},
    {"imbalance", {"1", "1.25"}},
    {"flash", {"yes", "no"}},
    {"kernels", {"fused", "eager"}},
};

// Those that kAnyKey leaves out; `layers` follows from the others (uneven).
inline const std::vector<Drawn> kRareKeys = {
    {"seq", {"4096", "2048", "8192"}},
    {"recompute_modules", {"", "layernorm", "layernorm+moe_act", "mlp+moe+shared_experts"}},
    {"updates", {"fused", "foreach", "each"}},
    {"attention", {"cudnn", "fa2", "fa3"}},
    {"graph", {"no", "yes"}},
    {"wrap", {"auto", "always"}},
    {"scaling", {"delayed", "tensor", "block", "mx"}},
    {"dispatch", {"all-to-all", "deepep", "hybridep"}},
    {"loss", {"whole", "fused", "chunked"}},
    {"as", {"any", "torch", "fsdp", "megatron", "deepspeed"}},
};

// The job with a layer moved from its last stage to its first, where it has stages.
inline jobs::Job uneven(jobs::Job job) {
  if (job.layout.pp == 1) return job;
  job.layout.layers = jobs::layers_of_stages(job);
  if (job.layout.layers.back() < 2) return job;
  ++job.layout.layers.front();
  --job.layout.layers.back();
  return job;
}

}  // namespace dovetail::testing

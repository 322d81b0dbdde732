// Words of frameworks for one size of bucket.
//
// Sources: torch 2.14 nn/parallel/distributed.py (first bucket: 1 MiB only where no cap is given, from 2.x
// on; always in 1.13); Megatron-Core 0.20 arguments.py (--ddp-bucket-size in elements); DeepSpeed
// zero/config.py (reduce_bucket_size in elements); Horovod operations.cc; XLA xla.proto.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/framework_words.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/json_reader.h"

namespace dovetail::cli {
namespace {

using imports::BucketAdvice;
using imports::BucketSetting;

constexpr std::array<std::pair<std::string_view, Framework>, 6> kWords = {
    {{"torch", Framework::Torch},
     {"fsdp", Framework::Fsdp},
     {"megatron", Framework::Megatron},
     {"deepspeed", Framework::DeepSpeed},
     {"horovod", Framework::Horovod},
     {"xla", Framework::Xla}}};

bool is_list(const BucketSetting& setting) {
  return setting.setting.find("list") != std::string::npos;
}

std::string line_of(const BucketSetting& setting, Framework framework) {
  const std::int64_t bytes = setting.cap.value_or(mib(25)).count();
  switch (framework) {
    case Framework::Torch:
      return "DistributedDataParallel(model, " + setting.setting + ")";
    case Framework::Fsdp:
      return "fully_shard groups whole modules: give it lists of modules of about " +
             to_string(Bytes(bytes)) + " of gradients each, fully_shard([block_1, block_2], ...)";
    case Framework::Megatron:
      return "--overlap-grad-reduce --ddp-bucket-size " + std::to_string(bytes / 4) +
             "   # elements of main gradients in float32";
    case Framework::DeepSpeed:
      return "\"zero_optimization\": {\"overlap_comm\": true, \"reduce_bucket_size\": " +
             std::to_string(bytes / 4) + "}   # elements, of 4 bytes";
    case Framework::Horovod:
      return "HOROVOD_FUSION_THRESHOLD=" + std::to_string(bytes);
    case Framework::Xla:
      return "XLA_FLAGS=--xla_gpu_all_reduce_combine_threshold_bytes=" + std::to_string(bytes);
  }
  return {};
}

// The setting that gains most among those that the framework can say.
const BucketSetting* best_for(const BucketAdvice& advice, Framework framework) {
  const BucketSetting* best = nullptr;
  for (const BucketSetting& setting : advice.settings) {
    if (framework != Framework::Torch && !setting.cap) continue;
    if (best == nullptr || setting.gain.middle > best->gain.middle) best = &setting;
  }
  return best;
}

std::string alike_line(const BucketAdvice& advice) {
  std::string text = "cannot be told from the best: ";
  const char* separator = "";
  for (const std::size_t i : advice.alike) {
    const BucketSetting& setting = advice.settings[i];
    text += separator + (is_list(setting) ? std::string("bucket_cap_mb_list") : setting.setting);
    separator = ", ";
  }
  return text;
}

}  // namespace

Framework parse_framework(const std::string& word) {
  std::vector<std::string> known;
  for (const auto& [name, framework] : kWords) {
    if (word == name) return framework;
    known.emplace_back(name);
  }
  const std::string near = nearest_word(word, known);
  throw InputError("--framework \"" + word +
                   "\": expected torch, fsdp, megatron, deepspeed, horovod or xla" +
                   (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

std::string_view to_string(Framework framework) {
  for (const auto& [name, value] : kWords) {
    if (value == framework) return name;
  }
  return "";
}

std::vector<std::string> advice_lines(const BucketAdvice& advice, Framework framework) {
  std::vector<std::string> lines = {alike_line(advice)};
  const BucketSetting* const best = best_for(advice, framework);
  if (best == nullptr) return lines;
  const bool recorded_is_alike = best->gain.middle <= advice.tell;
  if (recorded_is_alike) {
    lines.push_back("keep what you have" +
                    (advice.recorded.empty() ? std::string() : " (" + advice.recorded + ")") +
                    ": no bucket size is better by more than can be told");
    return lines;
  } else if (best->gain.low <= Duration{}) {
    lines.emplace_back("no bucket size is better for certain: every interval holds 0");
    lines.push_back("likeliest: " + line_of(*best, framework));
  } else {
    lines.push_back("paste: " + line_of(*best, framework));
  }
  if (framework == Framework::Torch && best->setting.starts_with("bucket_cap_mb=") && best->cap) {
    lines.emplace_back(
        "(torch 1.13 closes the first bucket at 1 MiB whatever the cap; from 2.x on only "
        "where no cap is given)");
  }
  if (framework == Framework::Torch && is_list(*best)) {
    lines.emplace_back("(bucket_cap_mb_list: torch 2.13 or later)");
  }
  return lines;
}

}  // namespace dovetail::cli

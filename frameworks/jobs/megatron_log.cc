// Reads "name ..... value" lines back into flags.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/megatron_log.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "frameworks/jobs/keys.h"

namespace dovetail::frameworks {
namespace {

constexpr std::string_view kBegin = "- arguments -", kEnd = "- end of arguments -";

// Arguments that are kept under another name; `with` is the value that their flag stands for.
struct Renamed {
  std::string_view attribute, flag, with;
};
constexpr std::array kRenamed = {
    Renamed{"tp_comm_bulk_wgrad", "--no-tp-comm-bulk-wgrad", "False"},
    Renamed{"tp_comm_bulk_dgrad", "--no-tp-comm-bulk-dgrad", "False"},
    Renamed{"tp_comm_overlap_ag", "--no-tp-comm-overlap-ag", "False"},
    Renamed{"tp_comm_overlap_rs", "--no-tp-comm-overlap-rs", "False"},
    Renamed{"overlap_p2p_comm_warmup_flush", "--overlap-p2p-communication-warmup-flush", "True"},
    Renamed{"microbatch_group_size_per_vp_stage",
            "--microbatch-group-size-per-virtual-pipeline-stage", ""},
    Renamed{"add_bias_linear", "--disable-bias-linear", "False"},
    Renamed{"fp8", "--fp8-format", ""},
    Renamed{"fp8_wgrad", "--no-fp8-wgrad", "False"},
    Renamed{"fp4", "--fp4-format", ""},
    Renamed{"bias_swiglu_fusion", "--no-bias-swiglu-fusion", "False"},
    Renamed{"bias_dropout_fusion", "--no-bias-dropout-fusion", "False"},
    Renamed{"apply_rope_fusion", "--no-rope-fusion", "False"},
    Renamed{"gradient_accumulation_fusion", "--no-gradient-accumulation-fusion", "False"},
    Renamed{"logit_dtype", "--output-logit-dtype", ""},
    Renamed{"use_layer_wise_param_layout", "--no-use-layer-wise-param-layout", "False"},
    Renamed{"nccl_ub", "--use-nccl-ub", "True"},
    Renamed{"gradient_reduce_div_fusion", "--no-gradient-reduce-div-fusion", "False"},
    Renamed{"torch_fsdp2_reshard_after_forward", "--torch-fsdp2-no-reshard-after-forward", "False"},
    Renamed{"pad_vocab_size", "--no-pad-vocab-size", "False"},
};
// What validate_args sets by others, as it does those of an encoder.
constexpr std::array<std::string_view, 6> kFollow = {"tensor_parallel_num_weight_shards",
                                                     "expert_tensor_parallel_num_weight_shards",
                                                     "num_layers_at_start_in_bf16",
                                                     "num_layers_at_end_in_bf16",
                                                     "overlap_p2p_comm",
                                                     "bias_gelu_fusion"};
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kTypes = {
    {{"torch.float32", "fp32"},
     {"torch.bfloat16", "bf16"},
     {"torch.float16", "fp16"},
     {"torch.uint8", "fp8"}}};

std::string_view line_of(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// "num_layers" and "80" of "0:   num_layers ........ 80"; empty where it is no such line.
std::pair<std::string_view, std::string_view> attribute_of(std::string_view line) {
  const std::size_t dots = line.find(" .");
  if (dots == std::string_view::npos) return {};
  const std::size_t end = line.find_first_not_of('.', dots + 1);
  if (end == std::string_view::npos || line[end] != ' ') return {};
  std::string_view name = line.substr(0, dots);
  const std::size_t blank = name.find_last_of(" \t");
  if (blank != std::string_view::npos) name.remove_prefix(blank + 1);
  return {name, line.substr(end + 1)};
}

// Lists without their brackets and quotes where they are words, without blanks where they are numbers; "AttnBackend.flash" is "flash".
std::string value_of(std::string_view name, std::string_view value) {
  for (const auto& [theirs, word] : kTypes) {
    if (value == theirs) return std::string(word);
  }
  std::string text(value);
  if (name == "attention_backend") return text.substr(text.rfind('.') + 1);
  if (!text.starts_with('[')) return text;
  const bool is_of_words = text.find('\'') != std::string::npos;
  std::erase_if(text, [&](char c) {
    return c == '\'' || (is_of_words ? c == '[' || c == ']' || c == ',' : c == ' ');
  });
  return text;
}

bool follows_others(std::string_view name) {
  return name.starts_with("encoder_") || std::ranges::find(kFollow, name) != kFollow.end();
}

// Nothing where the value is what an absent flag means.
std::optional<OptionText> flag_of(std::string_view name, std::string_view value) {
  const bool follows = follows_others(name);
  if (value == "None" || value == "[]" || value.empty() || follows) return std::nullopt;
  const auto renamed = std::ranges::find(kRenamed, name, &Renamed::attribute);
  std::string flag = "--" + std::string(name);
  std::ranges::replace(flag, '_', '-');
  std::string_view with = "True";
  if (renamed != kRenamed.end()) {
    flag = renamed->flag;
    with = renamed->with;
  }
  if (value != "True" && value != "False")
    return OptionText{.name = std::move(flag), .value = value_of(name, value)};
  return value == with ? std::optional(OptionText{.name = std::move(flag)}) : std::nullopt;
}

// Those that a job depends on; what all models have by itself is left out where there are no experts.
bool matters(const OptionText& flag, bool has_experts) {
  const Key key = KeyTable::megatron().find(flag.name);
  // Dropout that is absent is 0.1.
  if (key.kind == Key::Class::Read || flag.name.ends_with("-dropout")) return true;
  const bool decides = key.kind == Key::Class::Decides || key.kind == Key::Class::Refused;
  return decides && !key.is_idle(flag.value) && (has_experts || !flag.name.starts_with("--moe-")) &&
         flag.name != "--moe-flex-dispatcher-backend";
}

std::vector<OptionText> that_matter(std::vector<OptionText> flags) {
  const bool has_experts =
      std::ranges::find(flags, "--num-experts", &OptionText::name) != flags.end();
  std::erase_if(flags, [&](const OptionText& flag) { return !matters(flag, has_experts); });
  return flags;
}

}  // namespace

bool has_megatron_arguments(std::string_view text) {
  return text.find(kBegin) != std::string_view::npos;
}

std::string_view last_megatron_run(std::string_view text) {
  const std::size_t begin = text.rfind(kBegin);
  return begin == std::string_view::npos ? text : text.substr(begin);
}

Script read_megatron_log(const std::string& file, std::string_view text) {
  text = last_megatron_run(text);
  if (text.find(kEnd) == std::string_view::npos)
    throw InputError(
        file + ": the arguments at its head are cut off: expected a line \"end of arguments\"");
  static_cast<void>(line_of(text));
  std::vector<OptionText> flags;
  Script script;
  while (!text.empty()) {
    const std::string_view line = line_of(text);
    if (line.find(kEnd) != std::string_view::npos) break;
    const auto [name, value] = attribute_of(line);
    if (name == "world_size") script.variables["WORLD_SIZE"] = value;
    if (auto flag = flag_of(name, value); flag && !name.empty()) flags.push_back(*std::move(flag));
  }
  script.flags = that_matter(std::move(flags));
  return script;
}

bool is_megatron_attribute(std::string_view name) {
  if (follows_others(name) ||
      std::ranges::find(kRenamed, name, &Renamed::attribute) != kRenamed.end())
    return true;
  std::string flag = "--" + std::string(name);
  std::ranges::replace(flag, '_', '-');
  return KeyTable::megatron().find(flag).kind != Key::Class::Unknown;
}

std::vector<OptionText> megatron_flags(const std::vector<OptionText>& attributes) {
  std::vector<OptionText> flags;
  for (const OptionText& one : attributes) {
    const std::string_view value = one.value == "true"    ? "True"
                                   : one.value == "false" ? "False"
                                                          : std::string_view(one.value);
    if (auto flag = flag_of(one.name, value)) flags.push_back(*std::move(flag));
  }
  return that_matter(std::move(flags));
}

}  // namespace dovetail::frameworks

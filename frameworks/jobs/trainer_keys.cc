// What the keys of transformers' TrainingArguments, of FSDP and of PEFT say of how a model is trained.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/trainer.h"

namespace dovetail::frameworks {
namespace {

using Sharding = Training::Sharding;
using schedule::DType;

jobs::LoraTargets targets_of(Training& training, std::string_view key, std::string_view list) {
  static const std::set<std::string, std::less<>> kAttention = {"q_proj", "k_proj", "v_proj",
                                                                "o_proj"};
  static const std::set<std::string, std::less<>> kDense = {"gate_proj", "up_proj", "down_proj"};
  std::set<std::string, std::less<>> named;
  for (std::string_view rest = list; !rest.empty();) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view one = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    while (one.starts_with(' ')) one.remove_prefix(1);
    if (!one.empty()) named.emplace(one);
  }
  if (named.empty() || named.contains("all") || named.contains("all-linear"))
    return jobs::LoraTargets::AllLinear;
  if (named == kAttention) return jobs::LoraTargets::Attention;
  std::set<std::string, std::less<>> all = kAttention;
  all.insert(kDense.begin(), kDense.end());
  if (named == all) return jobs::LoraTargets::AllLinear;
  const bool is_attention =
      std::ranges::none_of(named, [](const std::string& one) { return kDense.contains(one); });
  training.assume(key, list,
                  is_attention ? "counted as all four layers of attention"
                               : "counted as all linear layers but the last");
  return is_attention ? jobs::LoraTargets::Attention : jobs::LoraTargets::AllLinear;
}

// "full_shard auto_wrap", which a list is, too.
std::set<std::string, std::less<>> words_of_fsdp(std::string text) {
  std::set<std::string, std::less<>> words;
  for (char& c : text) {
    if (c == ',') c = ' ';
  }
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t blank = std::min(rest.find(' '), rest.size());
    if (blank > 0) words.emplace(rest.substr(0, blank));
    rest.remove_prefix(std::min(blank + 1, rest.size()));
  }
  return words;
}

void fsdp_of_trainer(Training& training, Options& options) {
  const auto words = words_of_fsdp(options.text("fsdp", ""));
  if (words.empty() || words.contains("false")) return;
  if (words.contains("offload"))
    throw InputError(options.file() +
                     ": fsdp: offload: moving parameters to the host is not modelled");
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kStrategies = {
      {{"full_shard", "FULL_SHARD"},
       {"true", "FULL_SHARD"},
       {"shard_grad_op", "SHARD_GRAD_OP"},
       {"no_shard", "NO_SHARD"},
       {"hybrid_shard", "HYBRID_SHARD"},
       {"hybrid_shard_zero2", "HYBRID_SHARD_ZERO2"}}};
  std::string strategy;
  for (const std::string& word : words) {
    const auto known =
        std::ranges::find(kStrategies, word, [](const auto& one) { return one.first; });
    if (known != kStrategies.end()) {
      strategy = known->second;
    } else if (word != "auto_wrap") {
      options.fail("fsdp",
                   "full_shard, shard_grad_op, no_shard, hybrid_shard, hybrid_shard_zero2, "
                   "auto_wrap or offload");
    }
  }
  set_fsdp(training, options, "fsdp_config.");
  // Version 2 has no strategies.
  if (options.whole("fsdp_config.version", 1, 1, 2) == 2 || strategy.empty()) return;
  training.sharding = strategy == "NO_SHARD" ? Sharding::None
                      : strategy == "FULL_SHARD" || strategy == "HYBRID_SHARD"
                          ? Sharding::Whole
                          : Sharding::NoReshard;
  training.is_hybrid = strategy.starts_with("HYBRID");
}

}  // namespace

// A file, or JSON itself.
void set_accelerator_config(Training& training, Options& options) {
  const std::string key = "accelerator_config";
  const std::string text = options.text(key, "");
  const std::string path = text.empty() ? "" : file_named(text, options.file());
  if (text.starts_with('{')) options.add_section(key, flat_json(options.file(), text));
  if (!path.empty()) options.add_section(key, read_flat(path).options);
  training.syncs_each = options.flag(key + ".gradient_accumulation_kwargs.sync_each_batch", false);
  if (!options.flag(key + ".split_batches", false)) return;
  throw InputError(options.file() + ": " + key +
                   ".split_batches: batches that are divided over the ranks are not read: say what "
                   "a rank gets as per_device_train_batch_size");
}

void Training::take_rest(const Options& options, const KeyTable& keys, const Behind& said) {
  Options::Rest rest = options.rest(keys, said.passes_unknown);
  std::ranges::move(rest.assumed, std::back_inserter(assumed));
  std::ranges::move(rest.notes, std::back_inserter(notes));
}

void set_fsdp(Training& training, Options& options, const std::string& front) {
  training.engine = Training::Engine::Fsdp;
  const std::int64_t version = options.whole(front + "version", 1, 1, 2);
  const std::string strategy = options.word<std::string>(front + "sharding_strategy", "1",
                                                         {{"FULL_SHARD", "1"},
                                                          {"1", "1"},
                                                          {"SHARD_GRAD_OP", "2"},
                                                          {"2", "2"},
                                                          {"NO_SHARD", "3"},
                                                          {"3", "3"},
                                                          {"HYBRID_SHARD", "4"},
                                                          {"4", "4"},
                                                          {"HYBRID_SHARD_ZERO2", "5"},
                                                          {"5", "5"}});
  training.recomputes |= options.flag(front + "activation_checkpointing", false);
  const std::string ahead = options.text(front + "backward_prefetch", "NO_PREFETCH");
  const std::string kept = front + "reshard_after_forward";
  if (version == 2) {
    const bool frees = options.flag(kept, true);
    training.sharding = frees ? Sharding::Whole : Sharding::NoReshard;
    return;
  }
  static_cast<void>(options.text(kept, ""));
  training.sharding = strategy == "3"                      ? Sharding::None
                      : strategy == "2" || strategy == "5" ? Sharding::NoReshard
                                                           : Sharding::Whole;
  training.is_hybrid = strategy == "4" || strategy == "5";
  if (!is_one_of(ahead, "backward_pre"))
    training.assume(front + "backward_prefetch", ahead, "counted as BACKWARD_PRE");
}

void note_engine(Training& training, const Options& options) {
  if (training.engine != Training::Engine::Ddp || training.is_launched) return;
  training.notes.push_back(options.file() +
                           " names neither deepspeed nor fsdp: DDP; where accelerate launch starts "
                           "it with a file of its own, say that command");
}

void set_held(Training& training, DType type) {
  training.is_held_narrow = true;
  if (training.narrow) return;
  training.narrow = type;
  training.is_pure = true;
}

schedule::AttentionKernel kernel_of_attention(std::string_view word) {
  using enum schedule::AttentionKernel;
  const auto names = [&](std::string_view part) {
    return word.find(part) != std::string_view::npos;
  };
  if (names("flash_attention_3") || names("flash-attn3") || word == "fa3") return Fa3;
  if (names("flash_attention_2") || names("flash-attn2") || word == "fa2") return Fa2;
  return Cudnn;
}

void set_lora(Training& training, std::int64_t rank, std::string_view key,
              std::string_view targets) {
  training.lora = rank;
  training.lora_on = targets_of(training, key, targets);
}

void set_deepspeed(Training& training, Options& options, std::string_view key) {
  const std::string path = options.text(key, "");
  const std::vector<OptionText> inside = options.take_section(key);
  if (path.empty() && inside.empty()) return;
  training.engine = Training::Engine::DeepSpeed;
  training.deepspeed_file = options.file();
  training.deepspeed = inside;
  if (path.empty()) return;
  training.deepspeed_file = file_named(path, options.file());
  if (training.deepspeed_file.empty()) {
    throw InputError(
        options.file() + ": " + std::string(key) + ": " + path +
        " is not at hand: looked for here, beside this file and in the folders above it");
  }
  training.deepspeed = read_flat(training.deepspeed_file).options;
}

void set_optimizer(Training& training, std::string_view key, const std::string& name) {
  using jobs::Optimizer;
  using jobs::Updates;
  struct Known {
    std::string_view name;
    Optimizer optimizer = Optimizer::Adam;
    Updates updates = Updates::Fused;
    std::int64_t state_bytes = 0;
    std::string_view counted = {};
  };
  constexpr std::string_view kBytes = "its states are counted as a byte each, without their scales";
  constexpr std::string_view kPaged = "its states are counted as a byte each, on the device";
  constexpr std::array kKnown = {
      Known{.name = "adamw_torch", .updates = Updates::Foreach},
      Known{.name = "adamw_hf", .updates = Updates::Foreach},
      Known{.name = "adamw_torch_fused"},
      Known{.name = "adamw_apex_fused"},
      Known{.name = "adamw_bnb_8bit", .state_bytes = 2, .counted = kBytes},
      Known{.name = "adamw_8bit", .state_bytes = 2, .counted = kBytes},
      Known{.name = "adamw_torch_8bit", .state_bytes = 2, .counted = kBytes},
      Known{.name = "ao_adamw_8bit", .state_bytes = 2, .counted = kBytes},
      Known{.name = "paged_adamw_8bit", .state_bytes = 2, .counted = kPaged},
      Known{.name = "paged_adamw", .counted = "its states are counted on the device"},
      Known{.name = "paged_adamw_32bit", .counted = "its states are counted on the device"},
      Known{.name = "muon", .optimizer = Optimizer::Muon},
      Known{.name = "sgd", .optimizer = Optimizer::Sgd, .updates = Updates::Foreach},
  };
  const auto known = std::ranges::find(kKnown, name, &Known::name);
  Known one{.name = name, .counted = "counted as Adam"};
  if (known != kKnown.end()) one = *known;
  training.optimizer = one.optimizer;
  training.updates = one.updates;
  training.state_bytes = one.state_bytes;
  if (!one.counted.empty()) training.assume(key, name, one.counted);
}

void set_trainer(Training& training, Options& options) {
  training.micro_key = "per_device_train_batch_size";
  training.steps_key = "gradient_accumulation_steps";
  training.narrow_key = "bf16 and fp16";
  set_accelerator_config(training, options);
  training.micro = options.degree(training.micro_key, 8);
  training.steps = options.degree(training.steps_key, 1);
  const bool is_bf16 = options.flag("bf16", false);
  const bool is_half = options.flag("fp16", false);
  if (is_bf16 && is_half)
    throw InputError(options.file() + ": bf16 and fp16: expected one of them, as Trainer does");
  if (is_bf16) training.narrow = DType::BF16;
  if (is_half) training.narrow = DType::F16;
  training.is_tf32 = options.flag("tf32", false);
  set_optimizer(training, "optim", options.text("optim", "adamw_torch_fused"));
  training.recomputes |= options.flag("gradient_checkpointing", false);
  if (options.flag("torch_compile", false)) training.kernels = jobs::Kernels::Fused;
  if (options.flag("use_liger_kernel", false)) {
    training.kernels = jobs::Kernels::Fused;
    training.loss = jobs::Loss::Chunked;
    training.assume("use_liger_kernel", "true", "counted as kernels=fused");
  }
  training.bucket_bytes = options.degree("ddp_bucket_cap_mb", 0, 0) << 20;
  set_deepspeed(training, options, "deepspeed");
  const std::string file = options.text("fsdp_config", "");
  if (!file.empty()) {
    const std::string path = file_named(file, options.file());
    if (path.empty())
      throw InputError(options.file() + ": fsdp_config: " + file + " is not at hand");
    options.add_section("fsdp_config", read_flat(path).options);
  }
  fsdp_of_trainer(training, options);
}

}  // namespace dovetail::frameworks

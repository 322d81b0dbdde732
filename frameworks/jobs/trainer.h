// A model of Hugging Face under transformers' Trainer or accelerate's Accelerator, whichever file or command says it: what accelerate,
// axolotl, LLaMA-Factory and the flags of a script come to before they are a job.
//
// Read in transformers 4.57.1 (trainer.py, training_args.py, integrations/deepspeed.py) and accelerate (commit 16cb6eb8: accelerator.py,
// utils/dataclasses.py, utils/fsdp_utils.py). In which types is what:
//
//   DDP, weights in f32      mixed precision is torch.autocast: weights, gradients and the sums that travel are f32
//   DDP, weights in bf16     all is bf16, the optimizer's states too, without master copies
//   FSDP, mixed precision    weights are raised to f32, gathered and reduced in the narrow type (MixedPrecision(param_dtype, reduce_dtype))
//   DeepSpeed                as its file says; "auto" in it is filled in from here, as integrations/deepspeed.py does it
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "frameworks/jobs/flat_json.h"
#include "frameworks/jobs/readers.h"

namespace dovetail::frameworks {

// Whose attention kernel a word of transformers (attn_implementation) or LLaMA-Factory (flash_attn) means: "flash_attention_2", "fa2",
// "kernels-community/flash-attn3"; PyTorch's own choice else, which is cuDNN's.
schedule::AttentionKernel kernel_of_attention(std::string_view word);

struct Training {
  enum class Engine : std::uint8_t { Ddp, Fsdp, DeepSpeed };
  enum class Sharding : std::uint8_t { Whole, NoReshard, None };

  jobs::Model model;
  Engine engine = Engine::Ddp;
  bool is_launched = false;  // by accelerate, whose file was read
  std::int64_t world = 0;    // 0: not said
  std::int64_t nodes = 1;
  std::int64_t micro = 0,
               steps = 1;  // samples of a micro-batch, micro-batches of a step; 0: not said
  std::string micro_key, steps_key, narrow_key;  // what says them, for messages

  std::optional<schedule::DType> narrow = std::nullopt;  // bf16 or fp16
  bool is_held_narrow = false;                           // weights are, where nothing raises them
  bool is_pure = false;                                  // nothing does: no mixed precision
  bool is_tf32 = false, is_fp8 = false;
  jobs::Optimizer optimizer = jobs::Optimizer::Adam;
  jobs::Updates updates = jobs::Updates::Fused;
  std::int64_t state_bytes = 0;  // of each parameter; 0: as the types say

  bool recomputes = false;
  bool flash = true;
  schedule::AttentionKernel attention = schedule::AttentionKernel::Cudnn;
  jobs::Kernels kernels = jobs::Kernels::Transformers;
  jobs::Loss loss = jobs::Loss::Whole;
  std::int64_t lora = 0;
  jobs::LoraTargets lora_on = jobs::LoraTargets::AllLinear;

  std::int64_t tp = 1, cp = 1;
  std::int64_t dp = 0, dp_shard = 0;  // 0: what the others leave
  jobs::ContextExchange exchange = jobs::ContextExchange::AllGather;
  Sharding sharding = Sharding::Whole;
  bool is_hybrid = false;   // a replica a node
  bool syncs_each = false;  // every micro-batch reduces (sync_each_batch); else the last one alone
  std::int64_t bucket_bytes = 0;

  std::string deepspeed_file = {};  // begins messages
  std::vector<OptionText> deepspeed = {};
  std::int64_t sequence = 0;  // 0: not said
  std::vector<jobs::Assumed> assumed = {};
  std::vector<std::string> notes = {};

  void assume(std::string_view option, std::string_view value, std::string_view counted) {
    assumed.push_back({.option = std::string(option),
                       .value = std::string(value),
                       .counted = std::string(counted)});
  }
  // What nobody asked for of a file that is not the job's own.
  void take_rest(const Options& options, const KeyTable& keys, const Behind& said);
};

// Throws InputError where something is missing: "FILE: ...: say it behind".
jobs::Job train(Training training, const Behind& said);

// The model that `key` names: one of the hub (keys/hub_models.keys), or a path with a config.json. What was said behind goes before it.
jobs::Model hub_model(Options& options, std::string_view key, const Behind& said);

// accelerator_config of TrainingArguments. Throws InputError for batches that are divided over the ranks.
void set_accelerator_config(Training& training, Options& options);
// Batch, types, optimizer, recomputation and engine by the keys of TrainingArguments.
void set_trainer(Training& training, Options& options);
// What accelerate's configuration says of engine, ranks and types. Throws InputError for what it or we refuse.
void set_accelerate(Training& training, const std::string& file, const Flat& text,
                    const Behind& said);
// FSDP's own keys, which begin with `front`: "fsdp_config.fsdp_".
void set_fsdp(Training& training, Options& options, const std::string& front);
// Weights are held in this type; without mixed precision they are multiplied and trained so, too.
void set_held(Training& training, schedule::DType type);
// An optimizer by the name that transformers has for it (OptimizerNames), with what is counted in its place.
void set_optimizer(Training& training, std::string_view key, const std::string& name);
// Of a DeepSpeed file that another file names, or of what stands in that file itself below `key`.
void set_deepspeed(Training& training, Options& options, std::string_view key);
// Adapters of a rank, and which layers they stand beside of PEFT's target_modules.
void set_lora(Training& training, std::int64_t rank, std::string_view key,
              std::string_view targets);

// A file that names neither DeepSpeed nor FSDP is DDP, unless accelerate's own file, which is not at hand, says otherwise.
void note_engine(Training& training, const Options& options);

// A file that another one names: as it is, beside that one, or in a folder above it. "" where it is none of these.
std::string file_named(const std::string& path, const std::string& in);

// The readers of whole files. flat_json.h makes `text` of a file.
jobs::Job read_accelerate(const std::string& file, const Flat& text, const Behind& said);
jobs::Job read_llamafactory(const std::string& file, const Flat& text, const Behind& said,
                            Training training = {});
jobs::Job read_axolotl(const std::string& file, const Flat& text, const Behind& said,
                       Training training = {});
// `flags`: keys that go before what the file overrides.
jobs::Job read_primus(const std::string& file, const Flat& text, const Behind& said,
                      std::vector<OptionText> flags = {});
// Flags of a program of its own that takes TrainingArguments, without their dashes.
jobs::Job read_trainer(const std::string& file, const Flat& text, const Behind& said,
                       Training training = {});

}  // namespace dovetail::frameworks

// Reads LLaMA-Factory's training files into a job: pre-training and supervised fine-tuning, whole models and LoRA.
//
// Read in LLaMA-Factory (commit ff6d4d12): hparams/*.py, hparams/parser.py, model/adapter.py, model/loader.py,
// model/model_utils/checkpointing.py, launcher.py.
//
//   gradient checkpointing        unless disable_gradient_checkpointing
//   weights of full fine-tuning   raised to f32, unless pure_bf16, ZeRO 3 or FSDP; those of LoRA stay in bf16, its adapters are f32
//   cutoff_len                    2,048; pre-training packs samples, fine-tuning pads each micro-batch to its longest
//
// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/trainer.h"

namespace dovetail::frameworks {
namespace {

constexpr std::string_view kCutoff = "cutoff_len";

void length_of_llamafactory(Training& t, Options& options) {
  const bool is_pretraining = options.is("stage", "pt");
  t.sequence = options.whole(kCutoff, 2048);
  const bool is_neat = options.flag("neat_packing", false);
  const bool packs = options.flag("packing", is_pretraining) || is_neat;
  const std::string length = std::to_string(t.sequence);
  if (!packs) {
    t.assume(
        kCutoff, length,
        "every sample is counted as that long; those that are shorter are padded to the longest "
        "of their micro-batch");
  } else if (is_neat) {
    t.assume("neat_packing", "true", "attention within documents is counted as over whole samples");
  }
}

// `type`: torch_dtype. What a checkpoint is stored in ("auto") is bf16 of the models that are known.
void hold_as_loaded(Training& t, const std::string& type) {
  if (!is_one_of(type, "bfloat16|bf16|float16|fp16|half|auto")) return;
  const bool is_half = is_one_of(type, "float16|fp16|half");
  if (!t.narrow && is_one_of(type, "auto"))
    t.assume("torch_dtype", type, "weights are counted as stored, loaded and trained in bf16");
  if (!t.narrow && t.engine == Training::Engine::DeepSpeed)
    t.assume("torch_dtype", type, "counted as what DeepSpeed's file has for auto");
  set_held(t, is_half ? schedule::DType::F16 : schedule::DType::BF16);
}

// TRL's use_peft, and what other programs call it. One that says a rank and no switch has adapters.
void adapters_of_program(Training& t, Options& options, const Behind& said) {
  const bool has_rank = options.has("lora_r");
  const bool is_peft = options.flag("use_peft", false);
  std::string_view by = has_rank ? "lora_r" : "";
  bool is_on = is_peft || has_rank;
  for (const std::string_view key : {"use_peft", "use_lora", "lora_enable"}) {
    if (!options.has(key)) continue;
    by = key;
    is_on = options.flag(key, false);
    if (is_on) break;
  }
  const std::string targets = options.text("lora_target_modules", "q_proj,v_proj");  // PEFT's own
  if (!is_on || (said.says("lora") && !has_rank)) return;
  if (!has_rank && !is_peft) {
    throw InputError(options.file() + ": " + std::string(by) +
                     ": the rank of its adapters is not said: expected --lora_r 16, or :lora=16 "
                     "behind");
  }
  set_lora(t, options.degree("lora_r", 16), "lora_target_modules", targets);
  if (!is_peft)
    t.assume("lora_r", std::to_string(t.lora), "counted as LoRA of PEFT beside frozen weights");
}

}  // namespace

jobs::Job read_llamafactory(const std::string& file, const Flat& text, const Behind& said,
                            Training training) {
  const KeyTable& keys = KeyTable::llamafactory();
  Options options(file, text.options);
  options.rename(keys);
  options.refuse(keys);
  if (!options.flag("do_train", false))
    throw InputError(file + ": do_train is not true: nothing is trained by this file");
  Training& t = training;
  set_trainer(t, options);
  if (t.world == 0) t.world = options.degree("ray_num_workers", 0);
  t.model = hub_model(options, "model_name_or_path", said);
  length_of_llamafactory(t, options);
  t.recomputes |= !options.flag("disable_gradient_checkpointing", false);
  t.flash = !options.is("flash_attn", "disabled");
  t.attention = kernel_of_attention(options.text("flash_attn", "auto"));
  if (options.text("finetuning_type", "lora") == "lora") {
    set_lora(t, options.degree("lora_rank", 8), "lora_target", options.text("lora_target", "all"));
  }
  t.is_held_narrow = t.lora > 0;
  if (options.flag("pure_bf16", false)) set_held(t, schedule::DType::BF16);
  if (options.flag("fp8", false)) t.is_fp8 = true;
  if (options.flag("use_muon", false)) t.optimizer = jobs::Optimizer::Muon;
  if (options.flag("enable_liger_kernel", false)) {
    t.kernels = jobs::Kernels::Fused;
    t.loss = jobs::Loss::Chunked;
    t.assume("enable_liger_kernel", "true", "counted as kernels=fused");
  }
  note_engine(t, options);
  jobs::Job job = train(std::move(training), said);
  take_rest(job, options, keys, said);
  return job;
}

jobs::Job read_trainer(const std::string& file, const Flat& text, const Behind& said,
                       Training training) {
  const KeyTable& keys = KeyTable::trainer();
  Options options(file, text.options);
  options.rename(keys);
  options.refuse(keys);
  Training& t = training;
  set_trainer(t, options);
  t.model = hub_model(options, "model_name_or_path", said);
  for (const std::string_view key :
       {"max_seq_length", "max_length", "model_max_length", "block_size", "cutoff_len"}) {
    if (!options.has(key)) continue;
    t.sequence = options.whole(key, 0);
    t.assume(key, std::to_string(t.sequence), "every sample is counted as that long");
  }
  const std::string attention = options.text("attn_implementation", "sdpa");
  t.flash = attention != "eager";
  t.attention = kernel_of_attention(attention);
  adapters_of_program(t, options, said);
  const std::string type = options.text("torch_dtype", options.text("dtype", ""));
  hold_as_loaded(t, type);
  if (type.empty() && t.narrow && t.engine == Training::Engine::Ddp)
    t.assume("torch_dtype", "", "weights are counted as loaded in f32, as transformers 4 does");
  static_cast<void>(options.has("packing"));
  jobs::Job job = train(std::move(training), said);
  take_rest(job, options, keys, said);
  return job;
}

}  // namespace dovetail::frameworks

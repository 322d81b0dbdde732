// Reads axolotl's files into a job: pre-training and supervised fine-tuning, whole models and LoRA.
//
// Read in axolotl (commit 067b021c): utils/schemas/*.py, utils/config/__init__.py, loaders/model.py, core/builders/base.py,
// utils/trainer.py.
//
//   bf16: true, full, auto, or absent
//                                 weights are loaded in bf16 ("auto" is that on any GPU that has it); DDP trains them so, FSDP raises them
//   batch_size                    micro_batch_size x gradient_accumulation_steps, of which it may stand in the second's place
//   fsdp, fsdp_config             version 1 unless fsdp_version says 2; dp_shard_size and its like lay out version 2
//   context_parallel_size         a ring (ring-flash-attn)
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/trainer.h"

namespace dovetail::frameworks {
namespace {

using Engine = Training::Engine;
using schedule::DType;

constexpr std::string_view kLength = "sequence_len", kMicro = "micro_batch_size",
                           kSteps = "gradient_accumulation_steps";

class AxolotlReader {
 public:
  AxolotlReader(Options& options, const Behind& said, Training training)
      : options_(options), said_(said), t_(std::move(training)) {}

  jobs::Job read() {
    const KeyTable& keys = KeyTable::axolotl();
    options_.refuse(keys);
    t_.model = hub_model(options_, "base_model", said_);
    batch();
    types();
    engine();
    kernels();
    if (options_.has("adapter")) adapters();
    note_engine(t_, options_);
    jobs::Job job = train(std::move(t_), said_);
    take_rest(job, options_, keys, said_);
    return job;
  }

 private:
  void batch() {
    t_.micro_key = kMicro;
    t_.steps_key = kSteps;
    t_.narrow_key = "bf16 and fp16";
    set_accelerator_config(t_, options_);
    t_.micro = options_.degree(kMicro, 1);
    const std::int64_t all = options_.degree("batch_size", 0);
    t_.steps = options_.degree(kSteps, all > 0 ? std::max<std::int64_t>(1, all / t_.micro) : 1);
    t_.sequence = options_.whole(kLength, 512);
    const bool packs = !options_.is("sample_packing", "false") && options_.has("sample_packing");
    const bool pads = options_.flag("pad_to_sequence_len", packs);
    if (packs) {
      t_.assume("sample_packing", options_.text("sample_packing", "true"),
                "attention within documents is counted as over whole samples");
    } else if (!pads) {
      t_.assume(kLength, std::to_string(t_.sequence),
                "every sample is counted as that long; those that are shorter are padded to the "
                "longest of their micro-batch");
    }
  }

  [[nodiscard]] bool says_yes(std::string_view name) {
    return is_one_of(options_.text(name, "false"), "true|auto|full");
  }

  void types() {
    const bool is_half = says_yes("fp16") || says_yes("float16");
    const bool is_auto = options_.text("bf16", "false") == "auto";
    const bool is_bf16 = is_auto ? !is_half : says_yes("bf16") || says_yes("bfloat16");
    if (is_bf16) {
      t_.narrow = DType::BF16;
    } else if (is_half) {
      t_.narrow = DType::F16;
    }
    t_.is_held_narrow = t_.narrow.has_value();
    t_.is_tf32 = says_yes("tf32");
    if (says_yes("fp8")) {
      t_.is_fp8 = true;
      if (!t_.narrow) t_.narrow = DType::BF16;
    }
    set_optimizer(t_, "optimizer", options_.text("optimizer", "adamw_torch_fused"));
    t_.recomputes = is_one_of(options_.text("gradient_checkpointing", "false"), "true");
    if (options_.is("gradient_checkpointing", "offload") ||
        options_.is("gradient_checkpointing", "unsloth") ||
        options_.is("gradient_checkpointing", "offload_disk")) {
      options_.fail("gradient_checkpointing",
                    "true or false: moving activations to the host (unsloth is offload) is not "
                    "modelled");
    }
    t_.bucket_bytes = options_.degree("ddp_bucket_cap_mb", 0, 0) << 20;
  }

  void engine() {
    set_deepspeed(t_, options_, "deepspeed");
    const std::string fsdp = options_.text("fsdp", "");
    const bool has_version = options_.has("fsdp_version");
    const std::int64_t version = options_.whole("fsdp_version", 1, 1, 2);
    if (!fsdp.empty() || has_version || has_fsdp_config()) {
      if (fsdp.find("offload") != std::string::npos)
        options_.fail("fsdp", "no offload: moving parameters to the host is not modelled");
      if (has_version) options_.set_or_add("fsdp_config.version", std::to_string(version));
      set_fsdp(t_, options_, "fsdp_config.");
      if (fsdp.find("shard_grad_op") != std::string::npos)
        t_.sharding = Training::Sharding::NoReshard;
    }
    t_.tp = options_.degree("tensor_parallel_size", 1);
    t_.cp = options_.degree("context_parallel_size", 1);
    t_.exchange = jobs::ContextExchange::Ring;
    t_.dp = options_.degree("dp_replicate_size", 0);
    t_.dp_shard = options_.degree("dp_shard_size", 0);
    if (t_.dp_shard > 1) t_.engine = Engine::Fsdp;
  }
  [[nodiscard]] bool has_fsdp_config() const { return options_.has_section("fsdp_config"); }

  void kernels() {
    const std::string attention = options_.text("attn_implementation", "sdpa");
    bool is_eager = attention == "eager";
    for (const std::string_view key :
         {"sdp_attention", "flex_attention", "xformers_attention", "sage_attention"})
      static_cast<void>(options_.has(key));
    t_.attention = kernel_of_attention(options_.flag("flash_attention", false) ? "flash_attention_2"
                                                                               : attention);
    is_eager |= options_.flag("eager_attention", false);
    t_.flash = !is_eager;
    if (says_yes("torch_compile") && !options_.is("torch_compile", "auto"))
      t_.kernels = jobs::Kernels::Fused;
    const std::string plugins = options_.text("plugins", "");
    const bool cuts = plugins.find("CutCrossEntropy") != std::string::npos;
    for (const auto& [key, is_on] : {std::pair{"liger_fused_linear_cross_entropy", false},
                                     {"cut_cross_entropy", cuts},
                                     {"chunked_cross_entropy", false}}) {
      if (options_.flag(key, is_on)) t_.loss = jobs::Loss::Chunked;
    }
    const bool has_liger = plugins.find("liger") != std::string::npos;
    bool uses_liger = false;
    for (const std::string_view key :
         {"liger_rope", "liger_rms_norm", "liger_glu_activation", "liger_swiglu"})
      uses_liger |= options_.flag(key, false);
    if (has_liger && uses_liger) {
      t_.kernels = jobs::Kernels::Fused;
      t_.assume("plugins", plugins, "counted as kernels=fused");
    }
  }

  void adapters() {
    const bool is_linear = options_.flag("lora_target_linear", false);
    const std::string modules = options_.text("lora_target_modules", "");
    set_lora(t_, options_.degree("lora_r", 8), "lora_target_modules",
             is_linear         ? "all"
             : modules.empty() ? "q_proj,v_proj"  // PEFT's own
                               : modules);
  }

  Options& options_;
  const Behind& said_;
  Training t_;
};

}  // namespace

jobs::Job read_axolotl(const std::string& file, const Flat& text, const Behind& said,
                       Training training) {
  constexpr std::string_view kFront = "fsdp_config.fsdp_";
  std::vector<OptionText> keys = text.options;
  for (OptionText& option : keys) {
    if (option.name.starts_with(kFront)) option.name.erase(kFront.size() - 5, 5);
  }
  // A key without a value is none; one that is not there is what its schema has.
  for (const std::string_view key : {"bf16", "tf32"}) {
    if (!text.has(key)) keys.push_back({.name = std::string(key), .value = "auto"});
  }
  Options options(file, std::move(keys));
  options.rename(KeyTable::axolotl());
  return AxolotlReader(options, said, std::move(training)).read();
}

}  // namespace dovetail::frameworks

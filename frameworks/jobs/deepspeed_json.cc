// Reads DeepSpeed's ds_config.json into a job: batch sizes, ZeRO's stage, element types, buckets.
//
// Read in DeepSpeed 0.19.6 (commit edaa722): runtime/config.py, runtime/zero/config.py, runtime/engine.py,
// runtime/precision_config.py. The file says neither the model nor the world nor the length of a sample, and whether layers are
// computed again is the model's own code: all of that is said behind it.
//
//   train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x replicas; one of them follows
//   stage 3           parameters are divided over all replicas, or over mics_shard_size of them
//   overlap_comm      absent: with stage 3 only. Stages 1 and 2 gather parameters after the update
//   gradients         kept in data_types.grad_accum_dtype, reduced in communication_data_type; absent: as compute
//   "auto"            is decided by the program that hands the file on, and counts as absent
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "frameworks/jobs/deepspeed_words.h"
#include "frameworks/jobs/readers.h"
#include "models/networks/tensors.h"

namespace dovetail::frameworks {
namespace {

using jobs::Job;
using schedule::DType;

constexpr std::string_view kHost = "moving states to the host is not modelled";

constexpr std::array kDeepSpeedRefused = {
    NotModelled{"zero_optimization.offload_param.device", "none", kHost},
    NotModelled{"zero_optimization.offload_optimizer.device", "none", kHost},
    NotModelled{"zero_optimization.cpu_offload", "false", kHost},
    NotModelled{"zero_optimization.cpu_offload_param", "false", kHost},
    NotModelled{"activation_checkpointing.cpu_checkpointing", "false",
                "moving activations to the host is not modelled"},
    NotModelled{"elasticity.enabled", "false", "a batch that depends on the world is not modelled"},
};

constexpr std::array kDeepSpeedNotModelled = {
    NotModelled{"zero_optimization.allgather_bucket_size", "500000000",
                "parameters are gathered in buckets like those of gradients"},
    NotModelled{"zero_optimization.reduce_scatter", "true", "gradients are counted as scattered"},
    NotModelled{"zero_optimization.allgather_partitions", "true",
                "parameters are counted as gathered"},
    NotModelled{"zero_optimization.use_multi_rank_bucket_allreduce", "true",
                "a bucket is reduced by one collective"},
    NotModelled{"zero_optimization.stage3_param_persistence_threshold", "100000",
                "small parameters are counted as divided, too"},
    NotModelled{"zero_optimization.stage3_max_live_parameters", "1000000000",
                "parameters are freed layer by layer"},
    NotModelled{"zero_optimization.stage3_max_reuse_distance", "1000000000",
                "parameters are freed layer by layer"},
    NotModelled{"zero_optimization.stage3_use_all_reduce_for_fetch_params", "false",
                "parameters are gathered by all-gather"},
    NotModelled{"zero_optimization.stage3_module_granularity_threshold", "0",
                "parameters are gathered layer by layer"},
    NotModelled{"zero_optimization.zero_hpz_partition_size", "1",
                "the second copy within a node is not modelled"},
    NotModelled{"zero_optimization.zero_quantized_weights", "false",
                "parameters are gathered in the element type of compute"},
    NotModelled{"zero_optimization.zero_quantized_gradients", "false",
                "gradients are counted in communication_data_type"},
    NotModelled{"zero_optimization.mics_hierarchical_params_gather", "false", "not modelled"},
    NotModelled{"zero_optimization.round_robin_gradients", "false", "not modelled"},
    NotModelled{"bf16.immediate_grad_update", "false", "not modelled"},
    NotModelled{"activation_checkpointing.partition_activations", "false", "not modelled"},
    NotModelled{"pipeline.*", "", "a pipeline is the model's own code: say :pp="},
    NotModelled{"sequence_parallel_size", "1", "say :cp="},
    NotModelled{"sparse_attention.*", "", "attention is counted as dense"},
    NotModelled{"sparse_gradients", "false", "gradients are counted as dense"},
    NotModelled{"progressive_layer_drop.enabled", "false", "all layers are counted"},
    NotModelled{"compression_training.*", "", "not modelled"},
    NotModelled{"compile.deepcompile", "false", "what DeepCompile moves is not modelled"},
    NotModelled{"flops_profiler.enabled", "false", "its cost is not modelled"},
    NotModelled{"wall_clock_breakdown", "false", "its waits for the device are not modelled"},
    NotModelled{"memory_breakdown", "false", "its waits for the device are not modelled"},
};

// Neither time nor memory of a step depends on these.
constexpr std::array kDeepSpeedHarmless = std::to_array<std::string_view>({
    "optimizer.*",
    "scheduler.*",
    "steps_per_print",
    "gradient_clipping",
    "prescale_gradients",
    "gradient_predivide_factor",
    "gradient_allreduce_op",
    "dump_state",
    "log_level",
    "dataloader_drop_last",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    "checkpoint.*",
    "tensorboard.*",
    "wandb.*",
    "comet.*",
    "csv_monitor.*",
    "comms_logger.*",
    "flops_profiler.*",
    "autotuning.*",
    "aio.*",
    "elasticity.*",
    "hybrid_engine.*",
    "bf16.*",
    "fp16.*",
    "amp.*",
    "data_types.*",
    "activation_checkpointing.*",
    "compile.*",
    "zero_optimization.contiguous_gradients",
    "zero_optimization.sub_group_size",
    "zero_optimization.load_from_fp32_weights",
    "zero_optimization.elastic_checkpoint",
    "zero_optimization.ignore_unused_parameters",
    "zero_optimization.legacy_stage1",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save",
    "zero_optimization.stage3_gather_fp16_weights_on_model_save",
    "zero_optimization.stage3_model_persistence_threshold",
    "zero_optimization.memory_efficient_linear",
    "zero_optimization.override_module_apply",
    "zero_optimization.log_trace_cache_warnings",
    "zero_optimization.enable_sanity_checks",
    "zero_optimization.offload_param.*",
    "zero_optimization.offload_optimizer.*",
    "zero_optimization.leaf_module.*",
    "seed",
    "local_rank",
    "dovetail",  // where the file comes from, if dovetail export wrote it
});

jobs::Model deepspeed_model(Options& options) {
  throw InputError(
      options.file() +
      ": the model is not in this file: say it behind, :model=llama3_8b,world=64,seq=8192 "
      "(or model=config.json)");
}

class DeepSpeedReader {
 public:
  DeepSpeedReader(Options& options, const Behind& said)
      : options_(options), said_(said), job_{.model = said.model_or(deepspeed_model, options)} {}

  Job read() {
    job_.as = jobs::RunBy::Deepspeed;
    job_.batch.sequence = job_.model.sequence;
    options_.refuse(kDeepSpeedRefused);
    layout();
    batch();
    precision();
    buckets();
    if (!said_.says("recompute")) {
      note("activation_checkpointing",
           "whether layers are computed again is the model's code: "
           "counted as not; say :recompute=full");
    }
    for (std::string& note : options_.notes(kDeepSpeedNotModelled, kDeepSpeedHarmless)) {
      job_.notes.push_back(std::move(note));
    }
    return std::move(job_);
  }

 private:
  void note(std::string_view name, std::string_view text) {
    job_.notes.push_back(std::string(name) + ": " + std::string(text));
  }

  void layout() {
    using jobs::Zero;
    job_.zero = kDeepSpeedStage.read(options_, Zero::Nothing);
    const bool is_whole = job_.zero == Zero::Parameters;
    job_.layout.tp = options_.degree(kDeepSpeedTensor.name, 1, 0);
    if (job_.layout.tp == 0) job_.layout.tp = 1;
    job_.layout.sp = job_.layout.tp == 1;
    const std::int64_t mics = options_.degree(kDeepSpeedShard, -1, -1);
    if (is_whole && mics > 0) job_.layout.dp_shard = mics;
    lay_out(job_, said_, is_whole && mics < 1 ? Free::Sharded : Free::DataParallel,
            "how many ranks there are is not in this file: say it behind, :world=64");
    job_.overlap_gradients =
        options_.flag(kDeepSpeedOverlap, is_whole) && job_.zero != Zero::Nothing;
    if (job_.zero != Zero::Nothing) job_.overlap_parameters = is_whole;
  }

  void batch() {
    jobs::Batch& b = job_.batch;
    const std::int64_t replicas = job_.layout.replicas();
    const std::int64_t micro = options_.degree(kDeepSpeedMicro, said_.says("mbs") ? b.micro : 0);
    const std::int64_t steps = options_.degree(kDeepSpeedSteps, 0);
    const std::int64_t global = options_.degree(kDeepSpeedGlobal, said_.says("gbs") ? b.global : 0);
    if (micro == 0 && global == 0) {
      throw InputError(options_.file() + ": " + std::string(kDeepSpeedMicro) + " or " +
                       std::string(kDeepSpeedGlobal) +
                       " is needed, as a number, or :mbs= behind the file");
    }
    b.micro = micro > 0 ? micro : global / replicas / std::max<std::int64_t>(1, steps);
    b.global = global > 0 ? global : micro * std::max<std::int64_t>(1, steps) * replicas;
    const bool is_said = said_.says("mbs") || said_.says("gbs");
    const std::int64_t rounds =
        steps > 0 ? steps : b.global / std::max<std::int64_t>(1, b.micro * replicas);
    if (!is_said && (b.micro < 1 || b.micro * rounds * replicas != b.global)) {
      throw InputError(options_.file() + ": " + std::string(kDeepSpeedGlobal) + ": " +
                       std::to_string(b.global) + " is not " + std::string(kDeepSpeedMicro) + "=" +
                       std::to_string(b.micro) + " x " + std::string(kDeepSpeedSteps) + "=" +
                       std::to_string(rounds) + " x " + std::to_string(replicas) + " replicas");
    }
  }

  void precision() {
    jobs::Precision& p = job_.precision;
    const bool is_half = options_.flag("fp16.enabled", false);
    const bool is_bf16 = options_.flag("bf16.enabled", false);
    const bool is_cast = options_.flag(kDeepSpeedAutocast, false);
    p.compute = is_half ? DType::F16 : is_bf16 ? DType::BF16 : DType::F32;
    p.gradient = kDeepSpeedGradients.read(options_, p.compute);
    p.reduce = kDeepSpeedReduce.read(options_, p.compute);
    if (p.compute == DType::F32) p.master_bytes = 0;
    if (options_.flag(kDeepSpeedBf16Master, false) || options_.flag(kDeepSpeedFp16Master, false)) {
      p.master_bytes = 2;
      p.gradient = p.compute;
    }
    if (options_.flag(kDeepSpeedBf16States, false)) p.state_bytes = 4;
    if (is_cast && p.compute != DType::F32)
      throw InputError(options_.file() + ": " + std::string(kDeepSpeedAutocast) +
                       ": expected neither fp16 nor bf16 beside it, as DeepSpeed does");
    if (is_cast) p.autocast = kDeepSpeedAutocastType.read(options_, jobs::Autocast::Bf16);
    if (options_.flag("amp.enabled", false))
      note("amp.enabled", "casts between element types are not modelled");
    optimizer();
  }

  void optimizer() {
    using jobs::Optimizer;
    const std::string type = options_.text("optimizer.type", "AdamW");
    const bool is_sgd = type == "SGD";
    job_.optimizer = is_sgd ? Optimizer::Sgd : type == "Muon" ? Optimizer::Muon : Optimizer::Adam;
    if (job_.optimizer != Optimizer::Adam) job_.precision.state_bytes = 4;
    if (!is_sgd && type != "Muon" && type != "Adam" && type != "AdamW" && type != "FusedAdam") {
      note("optimizer.type " + type, "counted as Adam");
    }
  }

  void buckets() {
    const std::int64_t elements = options_.whole(kDeepSpeedBucket, 0, 1, kMostElements);
    if (elements > 0 && job_.zero != jobs::Zero::Nothing) {
      job_.bucket_bytes = elements * element_size(job_.precision.gradient).count();
    }
    if (!options_.has(kDeepSpeedPrefetch)) return;
    const std::int64_t ahead = options_.whole(kDeepSpeedPrefetch, 0, 0, kMostElements);
    if (job_.zero != jobs::Zero::Parameters) return;
    const std::int64_t layer = deepspeed_layer(job_.model);
    const double layers =
        static_cast<double>(ahead) / static_cast<double>(std::max<std::int64_t>(1, layer));
    job_.prefetch = ahead == 0 ? 0 : std::max<std::int64_t>(1, std::llround(layers));
    if (layers != static_cast<double>(job_.prefetch)) {
      const auto percent = std::to_string(std::llround(100 * layers));
      note(std::string(kDeepSpeedPrefetch) + " " + std::to_string(ahead),
           percent + " % of a layer, counted as " + std::to_string(job_.prefetch));
    }
  }

  static constexpr std::int64_t kMostElements = std::int64_t{1} << 40;

  Options& options_;
  const Behind& said_;
  Job job_;
};

// Messages are of one line.
std::string in_one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

std::string plain_number(const nlohmann::json& value) {
  const double number = value.get<double>();
  const bool is_whole = std::abs(number) < 1e15 && number == std::floor(number);
  return is_whole ? std::to_string(static_cast<std::int64_t>(number)) : value.dump();
}

void flatten(const nlohmann::json& value, const std::string& name, int depth,
             std::vector<OptionText>& options) {
  if (value.is_object() && depth < 8) {
    for (const auto& [key, member] : value.items()) {
      flatten(member, (name.empty() ? "" : name + ".") + in_one_line(key), depth + 1, options);
    }
  } else if (value.is_string()) {
    if (value != "auto") options.push_back({.name = name, .value = in_one_line(value)});
  } else if (!value.is_null()) {
    options.push_back({.name = name,
                       .value = value.is_number()    ? plain_number(value)
                                : value.is_boolean() ? value.dump()
                                                     : "[...]"});
  }
}

}  // namespace

jobs::Job read_deepspeed(Options& options, const Behind& said) {
  return DeepSpeedReader(options, said).read();
}

std::int64_t deepspeed_layer(const jobs::Model& model) {
  std::int64_t layer = 0;
  for (const jobs::ParameterShape& shape : jobs::model_parameters(model)) {
    if (shape.layer == model.layers - 1) layer += shape.numel();
  }
  return std::max<std::int64_t>(1, layer);
}

std::vector<OptionText> flat_json(const std::string& file, const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false, true);
  if (!json.is_object()) throw InputError(file + ": expected an object of JSON");
  std::vector<OptionText> options;
  flatten(json, "", 0, options);
  return options;
}

}  // namespace dovetail::frameworks

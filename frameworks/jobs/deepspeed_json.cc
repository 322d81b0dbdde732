// Reads DeepSpeed's ds_config.json into a job: batch sizes, ZeRO's stage, element types, buckets.
//
// Read in DeepSpeed 0.19.6 (commit edaa722): runtime/config.py, runtime/zero/config.py, runtime/engine.py,
// runtime/precision_config.py. The file says neither the model nor the world nor the length of a sample, and whether layers are
// computed again is the model's own code: all of that is said behind it.
//
//   train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x replicas; one of them follows
//   stage 3           parameters are divided over all replicas, or over mics_shard_size of them
//   overlap_comm      absent: with stage 3 only, which without it gathers on the stream of compute. Stages 1 and 2 gather
//                     parameters after the update
//   gradients         kept in data_types.grad_accum_dtype, reduced in communication_data_type; absent: as compute
//   stage 0 in bf16   BF16_Optimizer: gradients kept in f32, master weights and states divided over the replicas
//   "auto"            is filled in by the program that hands the file on: sizes of buckets as transformers' Trainer does it
//                     (integrations/deepspeed.py), from the model; the batch and the element type are asked for
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "frameworks/jobs/deepspeed_words.h"
#include "frameworks/jobs/readers.h"
#include "models/networks/tensors.h"

namespace dovetail::frameworks {
namespace {

using jobs::Job;
using schedule::DType;

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
    options_.refuse(KeyTable::deepspeed());
    fill_in_sizes();
    layout();
    fill_in_types();
    batch();
    precision();
    buckets();
    if (!said_.says("recompute")) {
      assume(job_, "activation_checkpointing", "",
             "whether layers are computed again is the model's code: "
             "counted as not; say :recompute=full");
    }
    take_rest(job_, options_, KeyTable::deepspeed(), said_);
    return std::move(job_);
  }

 private:
  static constexpr std::string_view kAuto = "auto";
  [[nodiscard]] bool is_auto(std::string_view name) const { return options_.is(name, kAuto); }

  // What follows from the model, and what somebody must say.
  void fill_in_sizes() {
    const std::int64_t square = job_.model.width * job_.model.width;
    for (const auto& [name, elements] :
         {std::pair{kDeepSpeedBucket, square}, std::pair{kDeepSpeedPrefetch, square * 9 / 10},
          std::pair{kDeepSpeedPersistent, 10 * job_.model.width}}) {
      if (is_auto(name)) options_.set(name, std::to_string(elements));
    }
    if (is_auto(kDeepSpeedSteps) && !said_.says("gbs"))
      assume(job_, kDeepSpeedSteps, kAuto, "counted as 1; say :gbs= behind the file");
    for (const std::string_view name : {kDeepSpeedMicro, kDeepSpeedSteps, kDeepSpeedGlobal}) {
      if (is_auto(name)) options_.drop(name);
    }
  }

  // REQUIRES: the job has what was said behind the file.
  void fill_in_types() {
    const DType said = job_.precision.compute;
    for (const auto& [name, type, word] : {std::tuple{kDeepSpeedBf16, DType::BF16, "bf16"},
                                           std::tuple{kDeepSpeedFp16, DType::F16, "fp16"}}) {
      if (!is_auto(name)) continue;
      if (!said_.says("dtype") && !options_.is(kDeepSpeedBf16, kTrue) &&
          !options_.is(kDeepSpeedFp16, kTrue)) {
        throw InputError(options_.file() + ": " + std::string(name) +
                         ": \"auto\" is filled in by the program that hands the file on: say " +
                         "behind it whether that has --" + word + ", :" + word +
                         "=yes or :" + word + "=no");
      }
      options_.set(name, said_.says("dtype") && said == type ? "true" : "false");
    }
  }

  void layout() {
    using jobs::Zero;
    job_.zero = kDeepSpeedStage.read(options_, Zero::Nothing);
    const bool is_whole = job_.zero == Zero::Parameters;
    job_.layout.tp = options_.degree(kDeepSpeedTensor.name, 1, 0);
    if (job_.layout.tp == 0) job_.layout.tp = 1;
    job_.layout.sp = job_.layout.tp == 1;
    const std::int64_t mics = options_.degree(kDeepSpeedShard, -1, -1);
    if (is_whole && mics > 0) {
      job_.layout.dp_shard = mics;
      job_.notes.push_back(std::string(kDeepSpeedShard) + ": MiCS went with DeepSpeed 0.19.7");
    }
    lay_out(job_, said_, is_whole && mics < 1 ? Free::Sharded : Free::DataParallel,
            "how many ranks there are is not in this file: say it behind, :world=64");
    job_.overlap_gradients =
        options_.flag(kDeepSpeedOverlap, is_whole) && job_.zero != Zero::Nothing;
    if (job_.zero != Zero::Nothing) job_.overlap_parameters = is_whole;
    // Stage 3 gathers and reduces on the stream of compute then.
    if (!is_whole || job_.overlap_gradients) return;
    job_.prefetch = 0;
    assume(job_, kDeepSpeedOverlap, "false",
           "no gather is hidden; reductions are counted as hidden behind the backward pass");
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
    const bool is_half = options_.flag(kDeepSpeedFp16, false);
    const bool is_bf16 = options_.flag(kDeepSpeedBf16, false);
    if (is_half && is_bf16)
      throw InputError(options_.file() + ": " + std::string(kDeepSpeedFp16) + " and " +
                       std::string(kDeepSpeedBf16) + ": expected one of them, as DeepSpeed does");
    const bool is_cast = options_.flag(kDeepSpeedAutocast, false);
    if (!said_.says("dtype")) p.compute = is_half ? DType::F16 : is_bf16 ? DType::BF16 : DType::F32;
    // Stage 0 in bf16 is BF16_Optimizer: sums in f32, master weights and states divided.
    const bool is_divided = job_.zero == jobs::Zero::Nothing && p.compute == DType::BF16;
    p.gradient = kDeepSpeedGradients.read(options_, is_divided ? DType::F32 : p.compute);
    p.reduce = kDeepSpeedReduce.read(options_, p.compute);
    if (is_divided) {
      job_.zero = jobs::Zero::Optimizer;
      job_.overlap_parameters = false;
      assume(job_, kDeepSpeedStage.name, "0",
             "counted as 1, which reduces to shards: in bf16 gradients are summed in f32 and the "
             "optimizer is divided");
    }
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
      assume(job_, "amp.enabled", "true", "casts between element types are not modelled");
    optimizer();
  }

  void optimizer() {
    using jobs::Optimizer;
    const std::string type = options_.text("optimizer.type", "AdamW");
    const bool is_sgd = type == "SGD";
    job_.optimizer = is_sgd ? Optimizer::Sgd : type == "Muon" ? Optimizer::Muon : Optimizer::Adam;
    if (job_.optimizer != Optimizer::Adam) job_.precision.state_bytes = 4;
    if (!is_sgd && type != "Muon" && type != "Adam" && type != "AdamW" && type != "FusedAdam") {
      assume(job_, "optimizer.type", type, "counted as Adam");
    }
  }

  void buckets() {
    const std::int64_t elements = options_.whole(kDeepSpeedBucket, 0, 1, kMostElements);
    if (elements > 0 && job_.zero != jobs::Zero::Nothing) {
      job_.bucket_bytes = elements * element_size(job_.precision.gradient).count();
    }
    if (job_.zero == jobs::Zero::Parameters) gathers();
  }

  // Each module that begins gathers the next stage3_prefetch_bucket_size elements until stage3_max_live_parameters
  // are there, and does not free what it passed by or what is used again within stage3_max_reuse_distance
  // (partitioned_param_coordinator.py of 0.19.8; scripts/checks/check_deepspeed.py counts it).
  void gathers() {
    const auto elements = [&](std::string_view name, std::int64_t usual) {
      return options_.whole(name, usual, 0, kMostElements);
    };
    std::int64_t all = 0;
    std::int64_t small = 0;
    const std::int64_t persistent = elements(kDeepSpeedPersistent, 100'000);
    for (const jobs::ParameterShape& shape : jobs::model_parameters(job_.model)) {
      all += shape.numel();
      if (shape.numel() <= persistent) ++small;
    }
    const bool is_ahead = elements(kDeepSpeedPrefetch, 50'000'000) > 0;
    const std::int64_t live = elements(kDeepSpeedLive, kDeepSpeedUsualLive);
    const std::int64_t reuse = elements(kDeepSpeedReuse, kDeepSpeedUsualLive);
    job_.reshard = all > std::max(reuse / 2, is_ahead ? live : 0);
    if (!is_ahead) job_.prefetch = 0;
    if (is_ahead && job_.overlap_gradients) {
      job_.prefetch = std::clamp<std::int64_t>(live / jobs::layer_elements(job_.model) - 1, 1,
                                               job_.model.layers);
    }
    if (small > 0) {
      assume(job_, kDeepSpeedPersistent, std::to_string(persistent),
             std::to_string(small) +
                 " small parameters stay, and are gathered one by one behind each update: not in "
                 "the step");
    }
    if (!options_.flag(kDeepSpeedScatter, true) && options_.flag(kDeepSpeedContiguous, true)) {
      assume(job_, kDeepSpeedScatter, "false",
             "stage 3 all-reduces whole buckets then, twice the bytes: counted as reduce-scatters");
    }
  }

  static constexpr std::int64_t kMostElements = std::int64_t{1} << 44;

  Options& options_;
  const Behind& said_;
  Job job_;
};

}  // namespace

jobs::Job read_deepspeed(Options& options, const Behind& said) {
  options.rename(KeyTable::deepspeed());
  return DeepSpeedReader(options, said).read();
}

}  // namespace dovetail::frameworks

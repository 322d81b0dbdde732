// What DeepSpeed's JSON says, for its reader (deepspeed_json.cc) and its writer (write_deepspeed_json.cc).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "frameworks/jobs/words.h"
#include "schedule/program.h"

namespace dovetail::frameworks {

inline constexpr std::string_view kDeepSpeedMicro = "train_micro_batch_size_per_gpu";
inline constexpr std::string_view kDeepSpeedSteps = "gradient_accumulation_steps";
inline constexpr std::string_view kDeepSpeedGlobal = "train_batch_size";
inline constexpr Degree kDeepSpeedTensor{"tensor_parallel.autotp_size", &jobs::Layout::tp};
inline constexpr Choice<jobs::Zero, 4> kDeepSpeedStage{"zero_optimization.stage",
                                                       {{{"0", jobs::Zero::Nothing},
                                                         {"1", jobs::Zero::Optimizer},
                                                         {"2", jobs::Zero::Gradients},
                                                         {"3", jobs::Zero::Parameters}}}};
inline constexpr std::string_view kDeepSpeedShard = "zero_optimization.mics_shard_size";
inline constexpr std::string_view kDeepSpeedOverlap = "zero_optimization.overlap_comm";
inline constexpr std::string_view kDeepSpeedBucket = "zero_optimization.reduce_bucket_size";
inline constexpr std::string_view kDeepSpeedPrefetch =
    "zero_optimization.stage3_prefetch_bucket_size";
inline constexpr std::string_view kDeepSpeedPersistent =
    "zero_optimization.stage3_param_persistence_threshold";
inline constexpr std::string_view kDeepSpeedLive = "zero_optimization.stage3_max_live_parameters";
inline constexpr std::string_view kDeepSpeedReuse = "zero_optimization.stage3_max_reuse_distance";
inline constexpr std::string_view kDeepSpeedScatter = "zero_optimization.reduce_scatter";
inline constexpr std::string_view kDeepSpeedContiguous = "zero_optimization.contiguous_gradients";
inline constexpr std::int64_t kDeepSpeedUsualLive = 1'000'000'000;  // and reuse
inline constexpr std::string_view kDeepSpeedBf16 = "bf16.enabled";
inline constexpr std::string_view kDeepSpeedFp16 = "fp16.enabled";
inline constexpr std::array<std::pair<std::string_view, schedule::DType>, 3> kDeepSpeedTypes = {
    {{"fp32", schedule::DType::F32},
     {"bf16", schedule::DType::BF16},
     {"fp16", schedule::DType::F16}}};
inline constexpr Choice<schedule::DType, 3> kDeepSpeedGradients{"data_types.grad_accum_dtype",
                                                                kDeepSpeedTypes};
inline constexpr Choice<schedule::DType, 3> kDeepSpeedReduce{"communication_data_type",
                                                             kDeepSpeedTypes};
inline constexpr std::string_view kDeepSpeedAutocast = "torch_autocast.enabled";
inline constexpr Choice<jobs::Autocast, 2> kDeepSpeedAutocastType{
    "torch_autocast.dtype",
    {{{"bfloat16", jobs::Autocast::Bf16}, {"float16", jobs::Autocast::F16}}}};
// Master weights and gradients in the type of compute; without them the master weights are f32.
inline constexpr std::string_view kDeepSpeedBf16Master = "bf16.bf16_master_weights_and_grads";
inline constexpr std::string_view kDeepSpeedFp16Master = "fp16.fp16_master_weights_and_grads";
inline constexpr std::string_view kDeepSpeedBf16States = "bf16.bf16_optimizer_states";

}  // namespace dovetail::frameworks

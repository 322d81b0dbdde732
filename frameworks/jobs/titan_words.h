// What torchtitan's TOML says, for its reader (torchtitan.cc) and its writer (write_torchtitan.cc).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "frameworks/jobs/words.h"
#include "schedule/program.h"

namespace dovetail::frameworks {

struct Flavor {
  std::string_view name, flavor, model;
};

inline constexpr std::array kTitanFlavors = {
    Flavor{"llama3", "8B", "llama3_8b"},
    Flavor{"llama3", "70B", "llama3_70b"},
    Flavor{"llama3", "405B", "llama3_405b"},
    Flavor{"qwen3", "0.6B", "qwen3_0.6b"},
    Flavor{"qwen3", "1.7B", "qwen3_1.7b"},
    Flavor{"qwen3", "4B", "qwen3_4b"},
    Flavor{"qwen3", "8B", "qwen3_8b"},
    Flavor{"qwen3", "14B", "qwen3_14b"},
    Flavor{"qwen3", "32B", "qwen3_32b"},
    Flavor{"qwen3", "30B-A3B", "qwen3_30b_a3b"},
    Flavor{"qwen3", "235B-A22B", "qwen3_235b_a22b"},
    Flavor{"deepseek_v3", "671B", "deepseek_v3"},
    Flavor{"gpt_oss", "20b", "gpt_oss_20b"},
    Flavor{"gpt_oss", "120b", "gpt_oss_120b"},
};

inline constexpr std::string_view kTitanModel = "model.name";
inline constexpr std::string_view kTitanFlavor = "model.flavor";
inline constexpr std::string_view kTitanConverters = "model.converters";

inline constexpr Choice<jobs::Dispatch, 3> kTitanDispatch{
    "parallelism.expert_parallel_comm_backend",
    {{{"standard", jobs::Dispatch::AllToAll},
      {"deepep", jobs::Dispatch::DeepEp},
      {"hybridep", jobs::Dispatch::HybridEp}}}};
inline constexpr std::array kTitanDegrees = {
    Degree{"parallelism.data_parallel_replicate_degree", &jobs::Layout::dp},
    Degree{"parallelism.tensor_parallel_degree", &jobs::Layout::tp},
    Degree{"parallelism.context_parallel_degree", &jobs::Layout::cp},
    Degree{"parallelism.pipeline_parallel_degree", &jobs::Layout::pp},
    Degree{"parallelism.expert_parallel_degree", &jobs::Layout::ep},
    Degree{"parallelism.expert_tensor_parallel_degree", &jobs::Layout::etp},
};
// -1: what the others leave of the world.
inline constexpr std::string_view kTitanShards = "parallelism.data_parallel_shard_degree";
inline constexpr std::string_view kTitanPerStage = "parallelism.pipeline_parallel_layers_per_stage";
inline constexpr std::string_view kTitanReshard = "parallelism.fsdp_reshard_after_forward";
inline constexpr std::string_view kTitanAsync = "parallelism.enable_async_tensor_parallel";
inline constexpr Choice<jobs::ContextExchange, 2> kTitanRotate{
    "parallelism.context_parallel_rotate_method",
    {{{"allgather", jobs::ContextExchange::AllGather}, {"alltoall", jobs::ContextExchange::Ring}}}};

inline constexpr std::string_view kTitanSchedule = "parallelism.pipeline_parallel_schedule";
// Orders that divide backward, of several stages per rank; none of them has compiled stages (pytorch#161904).
inline constexpr const char* kTitanZeroBubble = "InterleavedZeroBubble";
inline constexpr const char* kTitanZbv = "ZBVZeroBubble";
inline constexpr std::string_view kTitanPiece = "parallelism.pipeline_parallel_microbatch_size";
// Until May 2025: how many micro-batches.
inline constexpr std::string_view kTitanPieces = "parallelism.pipeline_parallel_microbatches";
inline constexpr std::string_view kTitanParts = "parallelism.module_fqns_per_model_part";

inline constexpr std::string_view kTitanLocalBatch = "training.local_batch_size";
inline constexpr std::string_view kTitanGlobalBatch = "training.global_batch_size";
inline constexpr std::string_view kTitanSequence = "training.seq_len";

inline constexpr std::array<std::pair<std::string_view, schedule::DType>, 2> kTitanTypes = {
    {{"float32", schedule::DType::F32}, {"bfloat16", schedule::DType::BF16}}};
inline constexpr Choice<schedule::DType, 2> kTitanHeld{"training.dtype", kTitanTypes};
inline constexpr Choice<schedule::DType, 2> kTitanMixed{"training.mixed_precision_param",
                                                        kTitanTypes};
inline constexpr Choice<schedule::DType, 2> kTitanReduce{"training.mixed_precision_reduce",
                                                         kTitanTypes};

inline constexpr std::string_view kTitanCheckpoints = "activation_checkpoint.mode";
inline constexpr std::string_view kTitanSelective = "activation_checkpoint.selective_ac_option";
inline constexpr Choice<jobs::Optimizer, 2> kTitanOptimizer{
    "optimizer.name", {{{"AdamW", jobs::Optimizer::Adam}, {"Adam", jobs::Optimizer::Adam}}}};
inline constexpr std::string_view kTitanCompile = "compile.enable";

// torch.distributed's DDP in torchtitan: replicate(model, bucket_cap_mb=100).
inline constexpr std::int64_t kTitanDdpBucket = std::int64_t{100} << 20;

}  // namespace dovetail::frameworks

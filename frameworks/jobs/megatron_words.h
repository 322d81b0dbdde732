// What Megatron-LM's arguments say, for their reader (megatron_job.cc) and their writer (write_megatron.cc).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "frameworks/jobs/words.h"
#include "models/networks/tensors.h"
#include "schedule/program.h"

namespace dovetail::frameworks {

inline constexpr std::array kMegatronDegrees = {
    Degree{"--tensor-model-parallel-size", &jobs::Layout::tp},
    Degree{"--context-parallel-size", &jobs::Layout::cp},
    Degree{"--pipeline-model-parallel-size", &jobs::Layout::pp},
    Degree{"--expert-model-parallel-size", &jobs::Layout::ep},
};
inline constexpr std::string_view kMegatronChunks = "--num-virtual-stages-per-pipeline-rank";
// "Ett|tt|ttL": the layers of each stage.
inline constexpr std::string_view kMegatronLayout = "--pipeline-model-parallel-layout";

inline constexpr Choice<jobs::Norm, 2> kMegatronNorm{
    "--normalization", {{{"LayerNorm", jobs::Norm::Layer}, {"RMSNorm", jobs::Norm::Rms}}}};
inline constexpr Choice<jobs::ContextExchange, 4> kMegatronExchange{
    "--cp-comm-type",
    {{{"p2p", jobs::ContextExchange::Ring},
      {"allgather", jobs::ContextExchange::AllGather},
      {"a2a", jobs::ContextExchange::AllGather},
      {"a2a+p2p", jobs::ContextExchange::Ring}}}};
inline constexpr std::string_view kMegatronLoss = "--cross-entropy-fusion-impl";
inline constexpr std::string_view kMegatronDispatcher = "--moe-token-dispatcher-type";
inline constexpr Choice<jobs::Dispatch, 2> kMegatronFlex{
    "--moe-flex-dispatcher-backend",
    {{{"deepep", jobs::Dispatch::DeepEp}, {"hybridep", jobs::Dispatch::HybridEp}}}};
inline constexpr Choice<jobs::Scaling, 4> kMegatronScaling{"--fp8-recipe",
                                                           {{{"delayed", jobs::Scaling::Delayed},
                                                             {"tensorwise", jobs::Scaling::Tensor},
                                                             {"blockwise", jobs::Scaling::Block},
                                                             {"mxfp8", jobs::Scaling::Mx}}}};
inline constexpr Choice<jobs::Zero, 4> kMegatronStrategy{
    "--data-parallel-sharding-strategy",
    {{{"no_shard", jobs::Zero::Nothing},
      {"optim", jobs::Zero::Optimizer},
      {"optim_grads", jobs::Zero::Gradients},
      {"optim_grads_params", jobs::Zero::Parameters}}}};
// Megatron-FSDP gathers layers ahead until half of so many elements are on their way: by itself two layers' (of one rank), 10^9 at least
// (megatron_fsdp.py of Megatron-Core 0.19.2).
inline constexpr std::string_view kMegatronUnit = "--suggested-communication-unit-size";
// Of one layer on one rank of tensor and expert parallelism, the mean.
inline std::int64_t megatron_layer_elements(const jobs::Job& job) {
  const jobs::Layout& l = job.layout;
  std::int64_t elements = 0;
  for (const jobs::ParameterShape& shape : jobs::model_parameters(job.model)) {
    if (shape.layer < 0) continue;
    std::int64_t numel = 1;
    for (const std::int64_t extent : jobs::local_shape(shape, l.tp, l.ep, l.etp)) numel *= extent;
    elements += numel;
  }
  return std::max<std::int64_t>(1, elements / std::max<std::int64_t>(1, job.model.layers));
}
// Layers, at least 1 and fewer than a stage has where it has several; unit: elements, where it is said.
inline std::int64_t megatron_prefetch(const jobs::Job& job, std::optional<std::int64_t> unit) {
  const std::int64_t layer = megatron_layer_elements(job);
  const std::int64_t half = unit.value_or(std::max<std::int64_t>(1'000'000'000, 2 * layer)) / 2;
  const std::int64_t others = std::max<std::int64_t>(1, job.model.layers / job.layout.pp - 1);
  return std::min((half + layer - 1) / layer, others);
}
inline constexpr Choice<jobs::Optimizer, 4> kMegatronOptimizer{
    "--optimizer",
    {{{"adam", jobs::Optimizer::Adam},
      {"sgd", jobs::Optimizer::Sgd},
      {"muon", jobs::Optimizer::Muon},
      {"dist_muon", jobs::Optimizer::Muon}}}};
inline constexpr Choice<jobs::Recompute, 2> kMegatronRecompute{
    "--recompute-granularity",
    {{{"selective", jobs::Recompute::Selective}, {"full", jobs::Recompute::Full}}}};

// Of gradients; "auto" is what is kept by itself.
inline constexpr std::array<std::pair<std::string_view, schedule::DType>, 4> kMegatronTypes = {
    {{"fp32", schedule::DType::F32},
     {"bf16", schedule::DType::BF16},
     {"fp16", schedule::DType::F16},
     {"auto", schedule::DType::F32}}};
inline constexpr Choice<schedule::DType, 4> kMegatronGradients{"--main-grads-dtype",
                                                               kMegatronTypes};
inline constexpr Choice<schedule::DType, 4> kMegatronFsdpGradients{
    "--megatron-fsdp-main-grads-dtype", kMegatronTypes};
inline constexpr Choice<schedule::DType, 4> kMegatronFsdpReduce{"--megatron-fsdp-grad-comm-dtype",
                                                                kMegatronTypes};

// Bytes of each of Adam's moments.
inline constexpr std::array<std::pair<std::string_view, std::int64_t>, 4> kMegatronMoments = {
    {{"fp32", 4}, {"bf16", 2}, {"fp16", 2}, {"fp8", 1}}};
inline constexpr Choice<std::int64_t, 4> kMegatronFirst{"--exp-avg-dtype", kMegatronMoments};
inline constexpr Choice<std::int64_t, 4> kMegatronSecond{"--exp-avg-sq-dtype", kMegatronMoments};

}  // namespace dovetail::frameworks

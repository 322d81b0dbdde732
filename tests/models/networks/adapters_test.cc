// LoRA jobs: counts as PEFT prints them, what is computed and held, and what is refused.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/adapters.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/error.h"
#include "models/networks/figures.h"
#include "models/networks/memory.h"
#include "models/networks/program.h"
#include "models/networks/text.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"

namespace dovetail::jobs {
namespace {

using schedule::Phase;
using schedule::Program;
using schedule::TensorKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::int64_t trained(const std::string& text) { return trained_parameters(parse_job(text)); }

// As print_trainable_parameters() of PEFT has it for Llama 3.1 8B: r=16 on all linear layers, r=16 on q, k, v and o.
TEST(AdaptersTest, TrainAsManyParametersAsPeftPrints) {
  EXPECT_EQ(trained("llama3_8b:lora=16"), 41'943'040);
  EXPECT_EQ(trained("llama3_8b:lora=16,lora_on=attention"), 13'631'488);
  EXPECT_EQ(trained("llama3_8b:lora=8"), 20'971'520);
  EXPECT_EQ(trained("llama2_7b:lora=8"), 19'988'480);
  EXPECT_EQ(trained("llama3_8b:dp=2"), 8'030'261'248);
}

TEST(AdaptersTest, AreCutOverTensorParallelRanksAsTheirWeightIs) {
  std::vector<std::string> seen;
  for (const ParameterShape& parameter : job_parameters(parse_job("llama3_8b:tp=2,lora=16"))) {
    if (parameter.layer != 0 || !parameter.trained) continue;
    const std::vector<std::int64_t> shape = local_shape(parameter, 2, 1, 1);
    const bool is_shown = parameter.name.find("k_proj") != std::string::npos ||
                          parameter.name.find("down_proj") != std::string::npos;
    if (is_shown)
      seen.push_back(parameter.name.substr(15) + " " + std::to_string(shape[0]) + "x" +
                     std::to_string(shape[1]));
  }
  EXPECT_THAT(
      seen,
      ElementsAre("self_attn.k_proj.lora_A.weight 16x4096", "self_attn.k_proj.lora_B.weight 512x16",
                  "mlp.down_proj.lora_A.weight 16x7168", "mlp.down_proj.lora_B.weight 4096x16"));
}

double flop_of(const Program& program, Phase phase) {
  double total = 0;
  for (const schedule::Op& op : program.ops) {
    if (op.phase == phase) total += op.flop().count();
  }
  return total;
}

// Full training's backward has a product for the weights as large as forward's; adapters have two for each of theirs.
TEST(LoraProgramTest, BackwardComputesNoGradientOfAFrozenWeight) {
  const Program full = program_of(parse_job("llama3_8b:dp=2,seq=4096"));
  const Program lora = program_of(parse_job("llama3_8b:dp=2,lora=16,seq=4096"));
  const double adapters = 2.0 * 41'943'040 * 4096;
  const double products = 4096 * forward_flop_per_token(known_model("llama3_8b"), 0);
  EXPECT_NEAR((flop_of(lora, Phase::Forward) - flop_of(full, Phase::Forward)) / adapters, 1, 1e-6);
  const double saved = flop_of(full, Phase::Backward) - flop_of(lora, Phase::Backward);
  EXPECT_NEAR(saved / (products - 2 * adapters), 1, 1e-6);
}

TEST(LoraProgramTest, OnlyAdaptersAreReducedAndUpdated) {
  const Program program = program_of(parse_job("llama3_8b:dp=2,lora=16"));
  const auto is_adapter = [](const std::string& name) {
    return name.find(".lora_A.") != std::string::npos || name.find(".lora_B.") != std::string::npos;
  };
  std::size_t gradients = 0;
  for (const schedule::Tensor& tensor : program.tensors) {
    if (tensor.kind != TensorKind::Gradient) continue;
    ++gradients;
    EXPECT_TRUE(is_adapter(tensor.name)) << tensor.name;
  }
  EXPECT_EQ(gradients, 2U * 7 * 32);
  EXPECT_EQ(program.reductions.size(), gradients);
  for (const schedule::Op& op : program.ops) {
    EXPECT_TRUE(op.phase != Phase::Optimizer || is_adapter(op.name)) << op.name;
    // The gradient of what the embedding gives has no reader.
    EXPECT_NE(op.name, "model.embed_tokens.backward");
  }
}

TEST(LoraProgramTest, FsdpGathersFrozenWeightsAndScattersNone) {
  const Program program = program_of(parse_job("llama3_8b:dp_shard=4,lora=16"));
  const schedule::Schedule schedule =
      schedule::make_schedule(program, schedule::parse_policy("fsdp"));
  std::int64_t frozen = 0;
  for (const schedule::FrozenBlock& block : schedule.frozen) {
    for (const TensorId id : block.parameters) frozen += program.tensor(id).numel();
  }
  EXPECT_EQ(frozen, 8'030'261'248);
  std::int64_t scattered = 0;
  for (const schedule::Bucket& bucket : schedule.buckets) {
    for (const schedule::Slice& slice : bucket.gradients)
      scattered += program.tensor(slice.tensor).numel();
  }
  EXPECT_EQ(scattered, 41'943'040);
}

TEST(LoraMemoryTest, HoldsOfAFrozenWeightTheWeightAlone) {
  constexpr std::int64_t kAdapters = 41'943'040;
  const StageMemory one = memory_of(parse_job("llama3_8b:gbs=2,lora=16")).front();
  EXPECT_EQ(one.parameters, Bytes(2 * (8'030'261'248 + kAdapters)));
  EXPECT_EQ(one.gradients, Bytes(4 * kAdapters));
  EXPECT_EQ(one.master, Bytes(4 * kAdapters));
  EXPECT_EQ(one.optimizer, Bytes(8 * kAdapters));
  // FSDP2 holds what it trains in f32 only, and the rest as it computes.
  const StageMemory shard = memory_of(parse_job("llama3_8b:dp_shard=8,lora=16")).front();
  EXPECT_EQ(shard.parameters, Bytes(2 * 8'030'261'248 / 8));
  EXPECT_EQ(shard.master, Bytes(4 * kAdapters / 8));
}

// Of each of 32 layers the output of one norm and the product of gate and up.
TEST(LoraMemoryTest, KeepsNoInputOfAFrozenNetwork) {
  const Bytes all = memory_of(parse_job("llama3_8b:lora=16,seq=4096")).front().activations;
  const Bytes attention =
      memory_of(parse_job("llama3_8b:lora=16,lora_on=attention,seq=4096")).front().activations;
  EXPECT_EQ(all - attention, Bytes(std::int64_t{32} * 2 * 4096 * (4096 + 14'336)));
}

TEST(LoraFiguresTest, CountWhatIsComputed) {
  const Job job = parse_job("llama3_8b:lora=16,seq=8192");
  const double attention =
      forward_flop_per_token(job.model, 8192) - forward_flop_per_token(job.model, 0);
  // 7,504,658,432 weights of products: without embedding and norms.
  EXPECT_NEAR(model_flop_per_token(job), 4 * 7'504'658'432.0 + 6 * 41'943'040.0 + 3 * attention, 1);
  const Job full = parse_job("llama3_8b:seq=8192");
  EXPECT_EQ(model_flop_per_token(full), 3 * forward_flop_per_token(full.model, 8192));
}

std::string refusal_of_adapters(const std::string& text) {
  try {
    parse_job(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(LoraTest, RefusesWhatItDoesNotModelInOneLine) {
  EXPECT_THAT(
      refusal_of_adapters("mixtral_8x7b:dp=2,lora=8"),
      HasSubstr("lora_on=all-linear: adapters of experts are not modelled; use lora_on=attention"));
  EXPECT_THAT(
      refusal_of_adapters("mixtral_8x7b:ep=2,dp_shard=4,lora=8,lora_on=attention"),
      HasSubstr("lora: frozen experts that are divided over ep x etp are not sharded; use zero=1"));
  EXPECT_THAT(refusal_of_adapters("llama3_8b:lora=5000"),
              HasSubstr("expected lora from 0 to 4096, found 5000"));
  EXPECT_THAT(refusal_of_adapters("llama3_8b:lora_on=mlp"), HasSubstr("lora_on: expected"));
}

}  // namespace
}  // namespace dovetail::jobs

// The memory of jobs: each part by hand, the moments, and the smallest change that fits.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/memory.h"

#include <gmock/gmock.h>

#include <set>
#include <string>

#include "models/networks/program.h"
#include "models/networks/text.h"

namespace dovetail::jobs {
namespace {

// Of each of 2 x 2 chunks of 8 layers the first 3 are computed again: 6 of the 16 layers of a stage.
TEST(JobMemoryTest, RecomputedLayersCountInEachVirtualStageAsTheProgramHasThem) {
  const auto kept = [](const std::string& recompute) {
    const Job job = parse_job("llama3_8b:pp=2,vp=2,gbs=8,recompute=" + recompute);
    return static_cast<double>(memory_of(job).front().activations.count());
  };
  const double saved = kept("none") - kept("full");
  EXPECT_NEAR(kept("none") - kept("full,recompute_layers=3"), saved * 6 / 16, 16);

  const Job job = parse_job("llama3_8b:pp=2,vp=2,gbs=8,recompute=full,recompute_layers=3");
  std::set<std::string> again;
  for (const schedule::Op& op : program_of(job).ops) {
    if (op.name.ends_with("mlp.recompute")) again.insert(op.name);
  }
  EXPECT_EQ(again.size(), 12U);
  EXPECT_TRUE(again.contains("model.layers.10.mlp.recompute"));
  EXPECT_TRUE(is_recomputed(job, 10));
  EXPECT_FALSE(is_recomputed(job, 11));
}

// Megatron-Core's --recompute-modules: what a module makes is not kept, and its kernels run again.
TEST(JobMemoryTest, ModulesAreComputedAgainOneByOne) {
  const auto job = [](const std::string& modules) {
    return parse_job("deepseek_v3:ep=8,pp=8,dp=8,gbs=64,as=megatron,recompute=selective" +
                     (modules.empty() ? "" : ",recompute_modules=" + modules));
  };
  const auto kept = [&](const std::string& modules) {
    return static_cast<double>(memory_of(job(modules))[4].kept.count());
  };
  const double tokens = 4096, layers = 8;  // of the fifth stage
  const double all = kept("");
  EXPECT_EQ(all - kept("layernorm"), layers * tokens * 2 * 2 * 7168);
  EXPECT_EQ(all - kept("moe_act"), layers * tokens * 8 * 2 * 2048);
  EXPECT_EQ(all - kept("shared_experts"), layers * tokens * 2 * 3 * 2048);
  EXPECT_EQ(all - kept("mla_up_proj"), layers * tokens * 2 * 128 * (2 * 192 + 128 + 128));
  EXPECT_EQ(all - kept("layernorm+moe_act"), 2 * all - kept("layernorm") - kept("moe_act"));
  EXPECT_LT(kept("moe"), kept("moe_act+shared_experts"));
  EXPECT_EQ(kept("mlp"), all);
  const auto again = [&](const std::string& modules) {
    std::set<std::string> names;
    for (const schedule::Op& op : program_of(job(modules)).ops) {
      if (op.name.starts_with("model.layers.30.") && op.name.ends_with(".recompute"))
        names.insert(op.name.substr(std::string("model.layers.30.").size()));
    }
    return names;
  };
  using Names = std::set<std::string>;
  EXPECT_EQ(again(""), Names{});
  EXPECT_EQ(again("layernorm"), (Names{"self_attn.recompute", "mlp.gate.recompute"}));
  EXPECT_EQ(again("moe_act"), Names{"mlp.experts.recompute"});
  EXPECT_EQ(again("moe"),
            (Names{"mlp.gate.recompute", "mlp.dispatch.recompute", "mlp.experts.recompute",
                   "mlp.combine.recompute", "mlp.sum.recompute"}));
}

// torchtitan 0.2.2's policy (models/deepseek_v3/infra/parallelize.py): of a layer with experts it keeps the first and third product of
// attention, what attention gives and what travelled; grouped products are no aten.mm and the router's is forced.
TEST(JobMemoryTest, ExpertsAreComputedAgainOpByOp) {
  const auto job = [](const std::string& options) {
    return parse_job("qwen3_30b_a3b:dp_shard=8,seq=4096,gbs=8,recompute=" + options);
  };
  const auto kept = [&](const std::string& options) {
    return static_cast<double>(memory_of(job(options)).front().kept.count());
  };
  const double tokens = 4096, width = 2048, layers = 48, chosen = 8;
  const double attention = 2 * tokens * 128 * (2 * 32 + 4);  // q, v, what attention gives
  EXPECT_NEAR((kept("op") - kept("full")) / layers, attention, attention / 100);
  EXPECT_NEAR((kept("op,ep=8") - kept("full,ep=8")) / layers,
              attention + 4 * tokens * chosen * width, attention / 100);
  EXPECT_LT(kept("op"), kept("none") / 3);
  std::set<std::string> again;
  for (const schedule::Op& op : program_of(job("op,ep=8")).ops) {
    if (op.name.starts_with("model.layers.0.mlp") && op.name.ends_with(".recompute"))
      again.insert(op.name);
  }
  EXPECT_EQ(again, (std::set<std::string>{"model.layers.0.mlp.gate.recompute",
                                          "model.layers.0.mlp.experts.recompute"}));
}

// Two layers of width 8, two heads of 4, an inner size of 16 and 32 words, without anything that a job of
// this size would not have.
Job tiny(const std::string& options) {
  Job job;
  job.model = {.name = "tiny",
               .layers = 2,
               .width = 8,
               .vocabulary = 32,
               .inner = 16,
               .attention = {.heads = 2, .key_value_heads = 2, .head_dim = 4}};
  job.batch.sequence = 4;
  if (!options.empty()) set_options(job, options, "test");
  complete(job, "test");
  return job;
}

// A layer has 4 x 8 x 8 + 3 x 8 x 16 + 2 x 8 = 656 parameters, embedding and head 256 each, the last norm 8.
constexpr std::int64_t kParameters = 2 * 656 + 2 * 256 + 8;

TEST(JobMemoryTest, ParametersSumsMasterAndMomentsByTheirTypes) {
  const std::vector<StageMemory> stages = memory_of(tiny("gbs=2"));
  ASSERT_EQ(stages.size(), 1U);
  EXPECT_EQ(stages[0].parameters, Bytes(2 * kParameters));
  EXPECT_EQ(stages[0].gradients, Bytes(4 * kParameters));
  EXPECT_EQ(stages[0].master, Bytes(4 * kParameters));
  EXPECT_EQ(stages[0].optimizer, Bytes(8 * kParameters));
}

TEST(JobMemoryTest, ZeroDividesMomentsThenSumsThenParameters) {
  const auto at = [](const std::string& zero) {
    return memory_of(tiny("dp=4,gbs=8,zero=" + zero))[0];
  };
  EXPECT_EQ(at("0").optimizer, Bytes(8 * kParameters));
  EXPECT_EQ(at("1").optimizer, Bytes(2 * kParameters));
  EXPECT_EQ(at("1").gradients, Bytes(4 * kParameters));
  EXPECT_EQ(at("2").gradients, Bytes(kParameters));
  EXPECT_EQ(at("2").parameters, Bytes(2 * kParameters));
  // Zero 3 keeps the master copy only, and gathers it layer by layer in the compute type.
  EXPECT_EQ(at("3").parameters, Bytes());
  EXPECT_EQ(at("3").master, Bytes(kParameters));
  EXPECT_EQ(at("3").gathered, Bytes(2 * 2 * 656));
}

// Per token of a layer: norms 4 x 8, attention 4 x 8, a gated network 4 x 16: 128 elements, and two heads'
// log-sum-exp; the last norm 2 x 8.
// Without a reduction between micro-batches whole sums of f32 stay, 4 B x 8.03e9 on each of 8 ranks.
TEST(JobMemoryTest, SumsStayWholeWhereOnlyTheLastMicroBatchReduces) {
  const auto gradients = [](const std::string& keys) {
    return memory_of(parse_job("llama3_8b:dp_shard=8," + keys)).front().gradients;
  };
  EXPECT_EQ(gradients("gbs=16,sync_each=no"), gradients("gbs=16") * 8);
  EXPECT_EQ(gradients("gbs=8,sync_each=no"), gradients("gbs=8"));
}

TEST(JobMemoryTest, ActivationsOfALayerAreWhatItsBackwardReads) {
  constexpr std::int64_t kTokens = 4;
  const std::int64_t layer = kTokens * (2 * 128 + 4 * 2);
  EXPECT_EQ(memory_of(tiny("gbs=2"))[0].activations, Bytes(2 * layer + kTokens * 2 * 16));
  // Full recomputation keeps the input of a layer.
  EXPECT_EQ(memory_of(tiny("gbs=2,recompute=full"))[0].activations,
            Bytes(kTokens * 2 * (2 * 8 + 16)));
  EXPECT_EQ(memory_of(tiny("gbs=2,recompute=full,recompute_layers=1"))[0].activations,
            Bytes(layer + kTokens * 2 * (8 + 16)));
  // One kernel for silu(gate) x up keeps 3 x 16.
  EXPECT_EQ(memory_of(tiny("gbs=2"), {.fused_gate = true})[0].activations,
            Bytes(2 * (layer - kTokens * 2 * 16) + kTokens * 2 * 16));
  // Written out each norm keeps its input in f32 and what it is times the root; the last one as well.
  EXPECT_EQ(memory_of(tiny("gbs=2,kernels=transformers"))[0].activations,
            Bytes(2 * (layer + kTokens * 8 * 8) + kTokens * 2 * 32));
  // Without flash attention the scores of 2 heads x 4 x 4 tokens stay, but not with selective recomputation.
  EXPECT_EQ(memory_of(tiny("gbs=2,flash=no"))[0].activations,
            Bytes(2 * (layer + 2 * 2 * 16) + kTokens * 2 * 16));
  EXPECT_EQ(memory_of(tiny("gbs=2,flash=no,recompute=selective"))[0].activations,
            memory_of(tiny("gbs=2"))[0].activations);
}

TEST(JobMemoryTest, TensorParallelismDividesHeadsAndNetworksAndWithSequencesTheRest) {
  constexpr std::int64_t kTokens = 4;
  const std::int64_t within = kTokens * (2 * (32 + 64) + 4 * 2) / 2;
  const auto of = [](const std::string& options) {
    return memory_of(tiny(options))[0].activations;
  };
  EXPECT_EQ(of("tp=2,gbs=2"), Bytes(2 * (within + kTokens * 32) + kTokens * 16));
  EXPECT_EQ(of("tp=2,sp=no,gbs=2"), Bytes(2 * (within + kTokens * 64) + kTokens * 32));
}

// 1F1B over two stages: the first has two micro-batches in flight and keeps what it sent of each, the second
// one, and the logits: 32 words x (2 + 4 + 4) bytes x 4 tokens.
TEST(JobMemoryTest, EarlyStagesKeepMicroBatchesInFlightAndTheLastOneHasTheLogits) {
  constexpr std::int64_t kTokens = 4;
  const std::int64_t layer = kTokens * (2 * 128 + 4 * 2);
  const std::vector<StageMemory> stages = memory_of(tiny("pp=2,gbs=8"));
  ASSERT_EQ(stages.size(), 2U);
  EXPECT_EQ(stages[0].activations, Bytes(2 * (layer + kTokens * 16)));
  EXPECT_EQ(stages[1].activations, Bytes(layer + kTokens * 32));
  EXPECT_EQ(stages[0].logits, Bytes());
  EXPECT_EQ(stages[1].logits, Bytes(kTokens * 32 * 10));
  EXPECT_EQ(stages[0].parameters, Bytes(2 * (656 + 256)));
  EXPECT_EQ(stages[1].parameters, Bytes(2 * (656 + 256 + 8)));
}

// With weights last, the second stage has as many in flight as the first: both of the two micro-batches that fill them.
TEST(JobMemoryTest, LateWeightsKeepActivationsOnEveryStage) {
  constexpr std::int64_t kTokens = 4;
  const std::int64_t layer = kTokens * (2 * 128 + 4 * 2);
  const std::vector<StageMemory> stages = memory_of(tiny("pp=2,gbs=8,schedule=zero-bubble"));
  EXPECT_EQ(stages[0].activations, Bytes(2 * (layer + kTokens * 16)));
  EXPECT_EQ(stages[1].activations, Bytes(2 * (layer + kTokens * 32)));
}

// 32 layers in 8 parts, there and back over 4 stages: the first stage has embedding and head, all have 8 layers.
TEST(JobMemoryTest, AVHasBothEndsOnItsFirstStage) {
  const std::vector<StageMemory> loop = memory_of(parse_job("llama3_8b:pp=4,vp=2,gbs=16"));
  const std::vector<StageMemory> v =
      memory_of(parse_job("llama3_8b:pp=4,vp=2,schedule=zbv,gbs=16"));
  const Bytes ends = loop[0].parameters + loop[3].parameters;
  EXPECT_EQ(v[0].parameters + v[1].parameters, ends);
  EXPECT_EQ(v[1].parameters, v[3].parameters);
  EXPECT_GT(v[0].logits + v[0].working, Bytes());
  EXPECT_EQ(v[3].logits, Bytes());
}

TEST(JobMemoryTest, SumsThatAreMadeAnewComeWhereActivationsGo) {
  // One micro-batch: at the first backward there are no gradients yet, and this model's activations are small.
  const StageMemory made = memory_of(tiny("gbs=1"))[0];
  EXPECT_EQ(made.moment, Moment::Gradients);
  EXPECT_EQ(made.gradients, Bytes(4 * kParameters));
  EXPECT_EQ(made.activations, Bytes());
  const StageMemory kept = memory_of(tiny("gbs=1"), {.resident_gradients = true})[0];
  EXPECT_EQ(kept.moment, Moment::Activations);
  EXPECT_GT(kept.activations, Bytes());
}

TEST(JobMemoryTest, FrameworksKeepWhatTheirSourcesSay) {
  const auto as = [](const std::string& framework, const std::string& options) {
    return memory_of(tiny(options + ",as=" + framework))[0];
  };
  // DDP's buckets are copies of the gradients, in f32.
  EXPECT_EQ(as("torch", "dp=2,gbs=4").buffers - as("any", "dp=2,gbs=4").buffers,
            Bytes(4 * kParameters));
  EXPECT_EQ(as("torch", "gbs=2").buffers, as("any", "gbs=2").buffers);
  // DeepSpeed keeps a shard in bf16 beside the master copy.
  EXPECT_EQ(as("deepspeed", "dp=2,gbs=4,zero=3").parameters, Bytes(kParameters));
  // FSDP2 in a pipeline keeps whole sums until the last micro-batch; Megatron does not.
  EXPECT_EQ(as("fsdp", "dp=2,pp=2,gbs=8,zero=3").gradients, Bytes(4 * (656 + 256)));
  EXPECT_EQ(as("megatron", "dp=2,pp=2,gbs=8,zero=3").gradients, Bytes(2 * (656 + 256)));
  // Recomputation by op, per token: input and last product 2 x 8, queries, values and what
  // attention gives 3 x 8, the first product of the network 16.
  EXPECT_EQ(as("fsdp", "gbs=2,recompute=op").activations,
            Bytes(2 * 4 * 2 * (16 + 24 + 16) + 4 * 2 * 16));
}

TEST(JobMemoryTest, ExpertsHoldTheTokensThatComeToThem) {
  const Job job = parse_job("mixtral_8x7b:ep=8,dp=8,gbs=16,zero=1,seq=1024");
  Job busy = job;
  busy.expert_imbalance = 1.5;
  const StageMemory even = memory_of(job)[0];
  const StageMemory crowded = memory_of(busy)[0];
  // 32 layers x 2 x 1024 x 0.5 tokens more x (2 x 4096 + 4 x 14336) elements of 2 bytes.
  EXPECT_EQ(crowded.activations - even.activations,
            Bytes(std::int64_t{32} * 1024 * (2 * 4096 + 4 * 14'336) * 2));
  // An expert of 8: an eighth of what experts have, over one rank.
  EXPECT_EQ(even.parameters.count(),
            2 * (46'702'792'704 - std::int64_t{32} * 7 * 3 * 4096 * 14'336));
}

// Transformer Engine keeps what it multiplied: both norms' results, what attention gives beside itself, what goes into the last product.
TEST(JobMemoryTest, InputsOfNarrowProductsAreKeptNarrow) {
  const auto kept = [](const std::string& options) {
    return memory_of(parse_job("llama3_8b:dp=8,zero=1,seq=4096,mbs=1,gbs=8" + options))
        .front()
        .kept.count();
  };
  const std::int64_t wide = kept(",as=megatron");
  const std::int64_t tokens = 4096, layers = 32;
  EXPECT_EQ(wide - kept(",as=megatron,products=fp8"),
            tokens * layers * (2 * 4096 - 4096 + 14336));  // a byte each, and a copy of attention's
  EXPECT_EQ(kept(",products=fp8"), kept(""));              // others keep them as they were
}

TEST(JobMemoryTest, WhatTheDeviceMustHaveIsTensorsFragmentsAndWhatLiesOutside) {
  const StageMemory memory = memory_of(tiny("dp=2,gbs=4"))[0];
  EXPECT_NEAR(static_cast<double>(memory.reserved().count()) * 0.85,
              static_cast<double>(memory.allocated().count()), 2);
  // The context, and one communicator of 32 connections.
  EXPECT_EQ(memory.outside, mib(300) + 32 * Bytes(4'194'304 + 4'915'200 + 524'288));
  EXPECT_EQ(memory.total(), memory.reserved() + memory.outside);
  EXPECT_THAT(describe(memory), ::testing::HasSubstr("context and NCCL"));
}

// Peaks of PyTorch's own lifetimes: every storage of the dispatched list on the meta device, blocks of 512 bytes (PyTorch 2.11,
// transformers 5.17; all but the work spaces of cuBLAS).
TEST(JobMemoryTest, AutocastKeepsWhatAutogradDoes) {
  struct Played {
    std::string job;
    std::int64_t layers;  // 0: all
    double peak;
  };
  const double spaces = static_cast<double>(mib(64).count());
  for (const Played& one : std::vector<Played>{
           {"llama3_8b:gbs=1,seq=4096,autocast=bf16", 4, 36'310'714'368},
           {"llama3_8b:gbs=1,seq=1024,autocast=bf16", 4, 30'786'791'424},
           {"llama3_8b:gbs=1,seq=8192,recompute=full,autocast=bf16", 4, 37'617'223'680},
           {"qwen3_0.6b:gbs=1,seq=1024,autocast=bf16", 0, 12'576'733'184},
           {"gpt2:gbs=16,mbs=16,seq=1024,autocast=bf16", 0, 24'393'197'056},
           {"gpt2:gbs=16,mbs=16,seq=1024,dtype=f32,master=0", 0, 28'399'157'248}}) {
    Job job = parse_job(one.job + ",kernels=transformers");
    if (one.layers > 0) job.model.layers = one.layers;
    const double held = static_cast<double>(memory_of(job).front().allocated().count());
    EXPECT_NEAR((held - spaces) / one.peak, 1, 0.005) << one.job;
  }
}

TEST(JobMemoryTest, TheSmallestChangeThatFitsIsNamed) {
  const Job job = parse_job("llama3_8b:dp=8,mbs=2,gbs=128,seq=8192");
  const auto needs = [](const std::string& text) {
    const std::vector<StageMemory> stages = memory_of(parse_job(text));
    return stages[fullest(stages)].total();
  };
  EXPECT_EQ(smallest_change(job, needs("llama3_8b:dp=8,mbs=2,gbs=128,seq=8192")), std::nullopt);
  EXPECT_EQ(smallest_change(job, needs("llama3_8b:dp=8,mbs=2,gbs=128,seq=8192,zero=1")), "zero=1");
  EXPECT_EQ(smallest_change(job, gib(1)), std::nullopt);
  // What is named does what it says.
  const std::optional<std::string> change = smallest_change(job, gib(80));
  ASSERT_TRUE(change.has_value());
  Job other = job;
  set_options(other, *change, "test");
  complete(other, "test");
  const std::vector<StageMemory> stages = memory_of(other);
  EXPECT_LE(stages[fullest(stages)].total(), gib(80));
}

TEST(JobMemoryTest, AChangeKeepsTheWorldAndTheBatch) {
  const Job job = parse_job("llama3_70b:dp=16,zero=3,recompute=full,gbs=64,seq=8192,mbs=1");
  const std::vector<StageMemory> stages = memory_of(job);
  const std::optional<std::string> change = smallest_change(job, stages[0].total() - mib(1));
  ASSERT_TRUE(change.has_value());
  Job other = job;
  set_options(other, *change, "test");
  EXPECT_EQ(other.layout.world(), job.layout.world());
  EXPECT_EQ(other.batch.global, job.batch.global);
}

}  // namespace
}  // namespace dovetail::jobs

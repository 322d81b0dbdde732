// Jobs in frameworks' own words: public configurations as they are, one job said in five ways, and what is refused.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/job_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "frameworks/jobs/keys.h"
#include "frameworks/jobs/shell.h"
#include "frameworks/jobs/toml.h"
#include "models/networks/decisions.h"
#include "models/networks/memory.h"
#include "models/networks/text.h"
#include "tests/support/errors.h"

namespace dovetail::frameworks {
namespace {

using dovetail::testing::error_of;
using jobs::Job;
using jobs::Recompute;
using jobs::Zero;
using schedule::DType;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::string data(const std::string& file) {
  return std::string(DOVETAIL_SOURCE_DIR) + "/tests/frameworks/data/" + file;
}

class JobSourceTest : public ::testing::Test {
 protected:
  JobSourceTest() { std::filesystem::create_directories(folder_); }
  ~JobSourceTest() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string file(const std::string& name, const std::string& text) const {
    const std::string path = (folder_ / name).string();
    write_file(path, text);
    return path;
  }

  static std::string error(const std::string& text) {
    return error_of([&] { load_job(text); });
  }

 private:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() /
                                  ("dovetail_job_source." + std::to_string(::getpid()));
};

// Who said it, and what could not be held, are not part of the job itself.
Job as_work(Job job) {
  job.as = jobs::RunBy::Any;
  job.notes.clear();
  job.assumed.clear();
  return job;
}

std::vector<std::string> assumed_of(const Job& job) {
  std::vector<std::string> texts;
  for (const jobs::Assumed& one : job.assumed) texts.push_back(to_string(one));
  return texts;
}

constexpr const char* kTitan = R"(
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 1
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1  # the rest
[activation_checkpoint]
mode = "full"
[compile]
enable = true
)";

constexpr const char* kDeepSpeed = R"({
  "train_micro_batch_size_per_gpu": 1,  // hjson allows that
  "gradient_accumulation_steps": 1,
  "bf16": {"enabled": true},
  "communication_data_type": "fp32",
  "data_types": {"grad_accum_dtype": "fp32"},
  "zero_optimization": {"stage": 3, "stage3_max_live_parameters": 5e8, "stage3_param_persistence_threshold": 0}
})";

constexpr const char* kHuggingFace = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 32,
  "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
  "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072,
  "tie_word_embeddings": false
})";

const std::string kLlama8b =
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention --num-query-groups 8 --swiglu --normalization RMSNorm "
    "--disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256 "
    "--position-embedding-type rope --attention-dropout 0 --hidden-dropout 0 --bf16 "
    "--seq-length 8192 --micro-batch-size 1 ";

// megatron_fsdp.py of 0.19.2: layers are added while those ahead have less than half the unit's elements. A layer has 218,112,000.
TEST_F(JobSourceTest, MegatronFsdpGathersHalfAUnitAhead) {
  const auto ahead = [](const std::string& more) {
    return load_job(kLlama8b +
                    "--use-megatron-fsdp --data-parallel-sharding-strategy "
                    "optim_grads_params " +
                    more + ":world=64")
        .prefetch;
  };
  EXPECT_EQ(ahead(""), 3);
  EXPECT_EQ(ahead("--suggested-communication-unit-size 436224000"), 1);
  EXPECT_EQ(ahead("--suggested-communication-unit-size 436224002"), 2);
  EXPECT_EQ(ahead("--suggested-communication-unit-size 0"), 0);
  EXPECT_EQ(ahead("--tensor-model-parallel-size 4"), 10);
  EXPECT_EQ(ahead("--fsdp-double-buffer"), 1);
  const Job job = load_job(
      kLlama8b + "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads:world=64");
  EXPECT_TRUE(job.overlap_gradients);
  EXPECT_FALSE(job.overlap_parameters);
}

TEST_F(JobSourceTest, OneJobInFiveWays) {
  const Job text = load_job("llama3_8b:zero=3,world=64,seq=8192,mbs=1,gbs=64,recompute=full");
  EXPECT_EQ(text.layout.dp_shard, 64);
  EXPECT_EQ(text.micro_batches(), 1);

  const Job titan = load_job(file("train.toml", kTitan) + ":world=64");
  const Job megatron =
      load_job(kLlama8b +
               "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "
               "--suggested-communication-unit-size 436224000 --recompute-granularity full "
               "--recompute-method uniform --recompute-num-layers 1:world=64");
  const Job deepspeed = load_job(file("ds_config.json", kDeepSpeed) +
                                 ":model=llama3_8b,world=64,seq=8192,recompute=full");
  const Job hugging_face = load_job(file("config.json", kHuggingFace) +
                                    ":zero=3,world=64,seq=8192,mbs=1,gbs=64,recompute=full");
  EXPECT_EQ(as_work(titan), text);
  EXPECT_EQ(as_work(megatron), text);
  EXPECT_EQ(as_work(deepspeed), text);
  EXPECT_EQ(as_work(hugging_face), text);
  EXPECT_EQ(titan.as, jobs::RunBy::Fsdp);
  EXPECT_EQ(megatron.as, jobs::RunBy::Megatron);
  EXPECT_EQ(deepspeed.as, jobs::RunBy::Deepspeed);
  for (const Job* job : {&titan, &megatron, &deepspeed, &hugging_face}) {
    EXPECT_THAT(job->notes, IsEmpty());
    EXPECT_EQ(jobs::to_string(as_work(*job)), jobs::to_string(text));
  }
}

// Whose memory rules count is a key of the line, so the line that a file prints is the same job, and takes as much.
TEST_F(JobSourceTest, TheLineOfAFileSaysWhoRunsItAndTakesTheSameMemory) {
  const std::string behind =
      "world=64,tp=4,pp=4,vp=2,zero=1,seq=8192,gbs=64,overlap_grads=yes,overlap_params=yes";
  const Job megatron = load_job(kLlama8b + "--use-distributed-optimizer:" + behind);
  const Job deepspeed = load_job(file("ds_config.json", kDeepSpeed) +
                                 ":model=llama3_8b,world=64,seq=8192,recompute=full");
  const Job titan = load_job(file("train.toml", kTitan) + ":world=64");
  for (const Job& job : {megatron, deepspeed, titan}) {
    const Job line = jobs::parse_job(jobs::to_string(job));
    EXPECT_EQ(line, job) << jobs::to_string(job);
    EXPECT_EQ(jobs::memory_of(line), jobs::memory_of(job));
  }
  // Megatron's gate and activation are one kernel, which keeps less.
  Job plain = megatron;
  plain.as = jobs::RunBy::Any;
  EXPECT_GT(jobs::memory_of(plain).front().activations,
            jobs::memory_of(megatron).front().activations);
}

TEST_F(JobSourceTest, AJobOfAllKindsOfParallelismInThreeWays) {
  const Job text = load_job(
      "llama3_70b:tp=8,pp=4,vp=2,cp=2,world=128,zero=1,seq=8192,mbs=1,gbs=64,exchange=ring,"
      "recompute=selective,async_tp=yes,bucket=160MB");
  EXPECT_EQ(text.layout.dp, 2);
  const Job megatron = load_job(file("train.sh", R"(#!/bin/bash
GPUS_PER_NODE=8
NNODES=${SLURM_NNODES:-"16"}
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
MODEL=(
  --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64
  --group-query-attention --num-query-groups 8 --kv-channels 128
  --swiglu --normalization RMSNorm --disable-bias-linear # no biases
  --untie-embeddings-and-output-weights --vocab-size 128256 --make-vocab-size-divisible-by 1
  --use-rotary-position-embeddings --attention-dropout 0.0 --hidden-dropout 0.0
)
export PARALLEL="--tensor-model-parallel-size 8 --sequence-parallel \
  --pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 10 \
  --context-parallel-size 2 --tp-comm-overlap --use-distributed-optimizer"
torchrun --nproc_per_node $GPUS_PER_NODE pretrain_gpt.py ${MODEL[@]} $PARALLEL --bf16 \
  --seq-length 8192 --micro-batch-size=1 --global-batch-size 64 --recompute-activations \
  --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 40000000
)"));
  EXPECT_EQ(as_work(megatron), text);
  EXPECT_THAT(megatron.notes, IsEmpty());
}

TEST_F(JobSourceTest, TorchtitansOwnFilesSayWhatTheirSourceDoes) {
  const Job small = load_job(data("torchtitan_llama3_8b.toml") + ":world=64");
  EXPECT_EQ(small.model.name, "llama3_8b");
  EXPECT_EQ(small.layout.dp_shard, 64);
  EXPECT_EQ(small.zero, Zero::Parameters);
  EXPECT_TRUE(small.reshard);
  EXPECT_EQ(small.batch, (jobs::Batch{.sequence = 8192, .micro = 1, .global = 64}));
  EXPECT_EQ(small.recompute, Recompute::Op);
  EXPECT_EQ(small.kernels, jobs::Kernels::Eager);
  EXPECT_EQ(small.precision, jobs::Precision{});
  EXPECT_THAT(small.notes, IsEmpty());

  // 70B: 64 ranks are 8 x tp 8, eight samples each.
  const Job middle = load_job(data("torchtitan_llama3_70b.toml") + ":world=64");
  EXPECT_EQ(middle.layout.dp_shard, 8);
  EXPECT_EQ(middle.layout.tp, 8);
  EXPECT_EQ(middle.batch, (jobs::Batch{.sequence = 8192, .micro = 8, .global = 64}));
  EXPECT_EQ(middle.recompute, Recompute::Full);
  EXPECT_THAT(middle.notes, IsEmpty());

  const Job large = load_job(data("torchtitan_llama3_405b.toml") + ":world=128");
  EXPECT_EQ(large.layout.dp_shard, 16);
  EXPECT_TRUE(large.async_tp);
  EXPECT_EQ(large.precision.products, schedule::Operands::Fp8);
  EXPECT_EQ(large.kernels, jobs::Kernels::Fused);
  EXPECT_EQ(large.batch.global, 32);
  EXPECT_THAT(assumed_of(large),
              ElementsAre(EndsWith("but for the reduce-scatters of backward"),
                          StartsWith("quantize.linear.float8.enable_fsdp_float8_all_gather true: "
                                     "parameters are gathered in the element type of compute")));
  EXPECT_THAT(assumed_of(load_job(data("torchtitan_llama3_405b.toml") + ":world=128,mbs=1")),
              Contains(AllOf(StartsWith("parallelism.enable_async_tensor_parallel true: "),
                             EndsWith("no gather and nothing of backward"))));
}

TEST_F(JobSourceTest, ATorchtitanPipelineCutsTheLocalBatchAndKeepsParameters) {
  const std::string toml = file("train.toml", R"(
model = {name = "llama3", flavor = "70B"}
training.local_batch_size = 16
[parallelism]
pipeline_parallel_degree = 4
pipeline_parallel_schedule = "Interleaved1F1B"
tensor_parallel_degree = 8
data_parallel_shard_degree = 2
data_parallel_replicate_degree = 1
[activation_checkpoint]
selective_ac_option = "2"
)");
  const Job job = load_job(toml);
  EXPECT_EQ(job.layout.world(), 64);
  EXPECT_EQ(job.layout.vp, 2);
  EXPECT_EQ(job.layout.order, schedule::PipelineKind::Interleaved);
  EXPECT_EQ(job.batch, (jobs::Batch{.sequence = 2048, .micro = 1, .global = 32}));
  EXPECT_FALSE(job.reshard);
  // Every second of the 10 layers of a chunk.
  EXPECT_EQ(job.recompute, Recompute::Full);
  EXPECT_EQ(job.recompute_layers, 5);

  // 82 layers, embedding and head among them, are 8 times 11 at most; 4 times 21 are one chunk per rank.
  const Job per_stage = load_job(toml + " --parallelism.pipeline_parallel_layers_per_stage=11");
  EXPECT_EQ(per_stage.layout.vp, 2);
  EXPECT_THAT(error(toml + " --parallelism.pipeline_parallel_layers_per_stage=21"),
              HasSubstr("pipeline_parallel_layers_per_stage: expected what makes several stages"));
  const std::string three = toml + " --parallelism.pipeline_parallel_layers_per_stage=3";
  EXPECT_THAT(assumed_of(load_job(three)),
              Contains(HasSubstr("keeps those of 3 of its 7 stages and gathers the others again")));
  EXPECT_THAT(assumed_of(load_job(toml + " --parallelism.fsdp_reshard_after_forward=always")),
              Contains(HasSubstr("a pipeline keeps them from a backward to the next forward")));

  const Job flags = load_job(toml +
                             " --parallelism.pipeline_parallel_schedule DualPipeV "
                             "--training.seq_len 4096 --compile.no_enable:mbs=2,recompute=none");
  EXPECT_EQ(flags.batch, (jobs::Batch{.sequence = 4096, .micro = 2, .global = 32}));
  EXPECT_EQ(flags.recompute, Recompute::None);
  EXPECT_THAT(assumed_of(flags),
              ElementsAre(StartsWith("parallelism.pipeline_parallel_schedule DualPipeV: ")));

  const std::string split = toml + " --parallelism.pipeline_parallel_schedule ";
  EXPECT_EQ(load_job(split + "InterleavedZeroBubble").layout.order,
            schedule::PipelineKind::ZeroBubble);
  EXPECT_EQ(load_job(split + "ZBVZeroBubble").layout.order, schedule::PipelineKind::Zbv);
  EXPECT_THAT(assumed_of(load_job(split + "ZBVZeroBubble")), IsEmpty());
  EXPECT_THAT(assumed_of(load_job(split + "ZBVZeroBubble --compile.enable")),
              ElementsAre(HasSubstr("torch refuses compiled stages in ZBVZeroBubble")));
}

TEST_F(JobSourceTest, TorchtitansUpdatesAreAsItsFileSays) {
  const auto updates = [this](const std::string& how) {
    return load_job(file("t.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n" + how) +
                    ":world=8");
  };
  EXPECT_EQ(updates("").updates, jobs::Updates::Fused);
  const std::string front = "[optimizer]\nimplementation = ";
  EXPECT_EQ(updates(front + "\"fused\"").updates, jobs::Updates::Fused);
  EXPECT_EQ(updates(front + "\"foreach\"").updates, jobs::Updates::Foreach);
  EXPECT_EQ(updates(front + "\"for-loop\"").updates, jobs::Updates::Each);
}

TEST_F(JobSourceTest, TorchtitansListOfModulesSaysItsStages) {
  const std::string start = R"(
model = {name = "qwen3", flavor = "0.6B"}
parallelism.data_parallel_shard_degree = 1
parallelism.pipeline_parallel_degree = 2
parallelism.module_fqns_per_model_part = [["tok_embeddings", "layers.0"],)";
  // 28 layers in two stages are 14 and 14.
  const auto layers = [](int first, int last) {
    std::string list;
    for (int i = first; i <= last; ++i) list += "\"layers." + std::to_string(i) + "\", ";
    return list;
  };
  const std::string even = start.substr(0, start.size() - 12) + layers(0, 13) + "], [" +
                           layers(14, 27) + "\"norm\", \"output\"]]\n";
  const Job job = load_job(file("even.toml", even));
  EXPECT_EQ(job.layout.vp, 1);
  EXPECT_THAT(job.notes, IsEmpty());
  const std::string uneven = start + "[" + layers(1, 27) + "\"norm\", \"output\"]]\n";
  EXPECT_EQ(load_job(file("uneven.toml", uneven)).layout.layers,
            (std::vector<std::int64_t>{1, 27}));
  EXPECT_THAT(error(file("few.toml", start + "]\n")),
              HasSubstr("module_fqns_per_model_part: expected a list of modules for the stage of "
                        "each of 2 ranks"));
}

TEST_F(JobSourceTest, TorchtitanWithoutFsdpIsDdpWithItsBuckets) {
  const Job job = load_job(
      file("train.toml", kTitan) +
      " --parallelism.data_parallel_shard_degree 1 --parallelism.data_parallel_replicate_degree 8");
  EXPECT_EQ(job.layout.dp, 8);
  EXPECT_EQ(job.zero, Zero::Nothing);
  EXPECT_EQ(job.bucket_bytes, std::int64_t{100} << 20);
  EXPECT_EQ(job.as, jobs::RunBy::Torch);
  // Its mixed_precision_param is autocast there.
  EXPECT_EQ(job.precision.autocast, jobs::Autocast::Bf16);
  EXPECT_EQ(job.precision.compute, DType::F32);
  EXPECT_EQ(load_job(file("train.toml", kTitan) + ":world=8").precision.autocast,
            jobs::Autocast::No);
}

// Its own way gathers all tokens (transformer_config.py).
TEST_F(JobSourceTest, HowMegatronDispatchesTokensIsReadOrAssumed) {
  const std::string experts =
      "--num-layers 2 --hidden-size 64 --ffn-hidden-size 128 --num-attention-heads 4 --swiglu "
      "--seq-length 64 --micro-batch-size 1 --vocab-size 128 --bf16 --num-experts 8 "
      "--position-embedding-type rope --expert-model-parallel-size ";
  const std::string gathers = "--moe-token-dispatcher-type allgather: ";
  EXPECT_THAT(assumed_of(load_job(experts + "2:world=8")), ElementsAre(StartsWith(gathers)));
  EXPECT_THAT(assumed_of(load_job(experts + "2 --moe-token-dispatcher-type allgather:world=8")),
              ElementsAre(StartsWith(gathers)));
  EXPECT_THAT(assumed_of(load_job(experts + "1:world=8")), IsEmpty());
  EXPECT_THAT(assumed_of(load_job(experts + "2 --moe-token-dispatcher-type alltoall:world=8")),
              IsEmpty());
  const Job flex = load_job(experts +
                            "2 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend "
                            "hybridep --cross-entropy-loss-fusion --cross-entropy-fusion-impl te "
                            "--fp8-format hybrid --fp8-recipe mxfp8:world=8");
  EXPECT_THAT(assumed_of(flex), IsEmpty());
  EXPECT_EQ(flex.dispatch, jobs::Dispatch::HybridEp);
  EXPECT_EQ(flex.loss, jobs::Loss::Fused);
  EXPECT_EQ(flex.precision.scaling, jobs::Scaling::Mx);
}

TEST_F(JobSourceTest, MegatronsOwnScriptsSayWhatTheirSourceDoes) {
  const Job llama = load_job(data("megatron_train_llama3_8b_h100_fp8.sh"));
  EXPECT_EQ(llama.model.name, "llama3_8b");
  EXPECT_EQ(llama.layout.world(), 8);
  EXPECT_EQ(llama.layout.dp, 8);
  EXPECT_EQ(llama.zero, Zero::Optimizer);
  EXPECT_EQ(llama.batch, (jobs::Batch{.sequence = 8192, .micro = 1, .global = 128}));
  EXPECT_EQ(llama.micro_batches(), 16);
  EXPECT_EQ(llama.precision.gradient, DType::BF16);
  EXPECT_EQ(llama.precision.reduce, DType::BF16);
  EXPECT_EQ(llama.precision.products, schedule::Operands::Fp8);
  EXPECT_TRUE(llama.overlap_gradients && llama.overlap_parameters);
  EXPECT_THAT(assumed_of(llama), ElementsAre(StartsWith("--fp8-param-gather: ")));

  // GPT-3: the script as it stands starts 8 ranks, too few for 8 x 16.
  const std::string gpt3 = data("megatron_train_gpt3_175b_distributed.sh");
  EXPECT_THAT(error(gpt3), HasSubstr("--vocab-size is missing: the tokenizer decides it"));
  EXPECT_THAT(
      error(gpt3 + " --vocab-size 50257"),
      EndsWith("world: 8 ranks are no multiple of dp=1 x dp_shard=1 x cp=1 x tp=8 x pp=16"));
  const Job large = load_job(gpt3 + " --vocab-size 50257:world=1024");
  EXPECT_EQ(large.model.name, "gpt3_175b");  // 50257 padded to a multiple of 128 x 8: 51200
  EXPECT_EQ(large.model.vocabulary, 51'200);
  EXPECT_EQ(large.layout.dp, 8);
  EXPECT_FALSE(large.layout.sp);
  EXPECT_EQ(large.precision.compute, DType::F16);
  EXPECT_EQ(large.precision.gradient, DType::F16);
  EXPECT_FALSE(large.overlap_gradients);
  EXPECT_EQ(large.zero, Zero::Nothing);
  EXPECT_THAT(large.notes, ElementsAre(StartsWith("--hidden-dropout: absent, which means 0.1"),
                                       StartsWith("--attention-dropout: absent, which means 0.1")));
  EXPECT_THAT(assumed_of(large),
              ElementsAre(StartsWith("--step-batch-size-schedule 0:16: the step is the one of ")));

  // A padded vocabulary makes another model of a known shape: 128256 to a multiple of 128 x 8.
  const Job padded =
      load_job(kLlama8b + "--tensor-model-parallel-size 8 --sequence-parallel:world=8");
  EXPECT_EQ(padded.model.name, "llama3_8b-vocab129024");
  EXPECT_EQ(padded.model.vocabulary, 129'024);

  const Job mixtral =
      load_job(data("megatron_train_mixtral_8x7b_distributed.sh") + " --vocab-size 32000:world=64");
  EXPECT_EQ(mixtral.model.name, "mixtral_8x7b");
  EXPECT_EQ(mixtral.layout.ep, 8);
  EXPECT_EQ(mixtral.layout.etp, 1);
  EXPECT_EQ(mixtral.layout.pp, 4);
  EXPECT_EQ(mixtral.layout.dp, 16);
  EXPECT_THAT(mixtral.notes, IsEmpty());
}

TEST_F(JobSourceTest, MegatronsBlockRecomputesSoManyLayersOfEachChunk) {
  const Job job =
      load_job(kLlama8b +
               "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 8 "
               "--global-batch-size 8 --recompute-granularity full "
               "--recompute-method block --recompute-num-layers 3:world=2");
  EXPECT_EQ(job.layout.vp, 2);
  EXPECT_EQ(job.recompute_layers, 3);
}

TEST_F(JobSourceTest, MegatronsExpertsAreTensorParallelAsTheRestIs) {
  const std::string experts =
      "--num-layers 61 --hidden-size 7168 --ffn-hidden-size 18432 --num-attention-heads 128 "
      "--swiglu --normalization RMSNorm --disable-bias-linear --position-embedding-type rope "
      "--untie-embeddings-and-output-weights --vocab-size 129280 --multi-latent-attention "
      "--q-lora-rank 1536 --kv-lora-rank 512 --qk-layernorm --num-experts 256 --moe-router-topk 8 "
      "--moe-ffn-hidden-size 2048 --moe-shared-expert-intermediate-size 2048 "
      "--moe-layer-freq ([0]*3+[1]*58) --hidden-dropout 0 --attention-dropout 0 --bf16 "
      "--seq-length 4096 --tensor-model-parallel-size 2 --sequence-parallel "
      "--expert-model-parallel-size 32 --make-vocab-size-divisible-by 64 ";
  const Job job = load_job(experts + ":world=64");
  EXPECT_EQ(job.model.name, "deepseek_v3");
  EXPECT_EQ(job.layout.etp, 2);
  EXPECT_EQ(job.layout.dp, 32);
  EXPECT_EQ(load_job(experts + "--expert-tensor-parallel-size 1:world=64").layout.etp, 1);
  for (const char* const same :
       {"[0,0,0]+[1]*58", "([0]*0+(([0]*3+[1])+[1]*57))", "[0]*3+[1]*2*29"})
    EXPECT_EQ(load_job(experts + "--moe-layer-freq \"" + same + "\":world=64").model, job.model);
  for (const char* const wrong : {"[1]*3+[0]*58", "[0]*3[1]*58", "[0]*3+[1]*58+", "([0]*3+[1]*58",
                                  "[0]*3+[1]*99999999999", "[0]*3+[2]*58", "0*3+[1]*58"}) {
    EXPECT_THAT(error(experts + "--moe-layer-freq \"" + wrong + "\":world=64"),
                HasSubstr("--moe-layer-freq: expected dense layers first"))
        << wrong;
  }
}

TEST_F(JobSourceTest, MegatronsLayoutSaysItsStages) {
  const std::string piped = kLlama8b + "--pipeline-model-parallel-size 2 --global-batch-size 4 ";
  const auto with = [&](const std::string& layout) {
    return piped + "--pipeline-model-parallel-layout \"" + layout + "\":world=2";
  };
  const Job chunks = load_job(with("Et*8|(t*8|)*2,t*8L"));
  EXPECT_EQ(chunks.layout.vp, 2);
  EXPECT_THAT(chunks.notes, IsEmpty());
  EXPECT_EQ(load_job(with("Et*15|t*17L")).layout.layers, (std::vector<std::int64_t>{15, 17}));
  for (const char* const wrong : {"Et*15|t*16L", "Et*32L", "E(t*16", "x|y", "Et*99999999|tL",
                                  "E[t*16|t*16]L", "Et*16+|t*16L"}) {
    EXPECT_THAT(error(with(wrong)), HasSubstr("--pipeline-model-parallel-layout: expected stages "
                                              "for 2 ranks with 32 layers together"));
  }
}

TEST_F(JobSourceTest, DeepSpeedsOwnFileSaysWhatItsSourceDoes) {
  const std::string path = data("deepspeed_zero3.json");
  const Job job = load_job(path + ":model=llama3_8b,world=16");
  EXPECT_EQ(job.layout.dp_shard, 16);
  EXPECT_EQ(job.zero, Zero::Parameters);
  EXPECT_EQ(job.precision.gradient, DType::BF16);
  EXPECT_EQ(job.bucket_bytes, 50'000'000 * 2);
  EXPECT_EQ(job.batch, (jobs::Batch{.sequence = 8192, .micro = 1, .global = 16}));
  EXPECT_THAT(
      assumed_of(job),
      ElementsAre(
          "zero_optimization.stage3_param_persistence_threshold 100000: 65 small "
          "parameters stay, and are gathered one by one behind each update: not in the step",
          StartsWith("activation_checkpointing: whether layers are computed again"),
          StartsWith("zero_optimization.allgather_bucket_size 50000000: ")));
}

// As findings/megatron_muon_pads_its_buckets.sh shows: with Muon no matrix is cut.
TEST_F(JobSourceTest, MegatronsBucketsGrowWithItsRanks) {
  const auto sharded = [](const std::string& arguments, int world) {
    return load_job(kLlama8b + "--overlap-grad-reduce --use-distributed-optimizer " + arguments +
                    ":gbs=256,world=" + std::to_string(world));
  };
  EXPECT_THAT(jobs::policy_text(sharded("", 8)), HasSubstr("cap=160000000B"));
  EXPECT_THAT(jobs::policy_text(sharded("", 64)), HasSubstr("cap=256000000B"));
  EXPECT_EQ(sharded("", 64).bucket_bytes, std::nullopt);
  // 0.9 x 8 ranks x the 117,440,512 elements of gate and up.
  const Job muon = sharded("--optimizer muon", 8);
  EXPECT_EQ(muon.zero, Zero::Optimizer);
  EXPECT_EQ(muon.bucket_bytes, std::int64_t{117'440'512} * 8 / 10 * 9 * 4);
  EXPECT_THAT(assumed_of(muon), Contains(StartsWith("--optimizer muon: matrices stay whole")));
  EXPECT_EQ(sharded("--optimizer muon --ddp-bucket-size 1000000000", 8).bucket_bytes,
            4'000'000'000);
}

// As scripts/checks/check_deepspeed.py counts: what is gathered ahead, kept, and reduced together.
TEST_F(JobSourceTest, DeepSpeedsThirdStageGathersAsFarAsParametersMayLive) {
  const auto stage = [this](const std::string& options, const std::string& model = "llama3_8b") {
    return load_job(file("ds.json", "{\"train_batch_size\": 64, \"bf16\": {\"enabled\": true}, " +
                                        ("\"zero_optimization\": {\"stage\": 3" + options + "}}")) +
                    ":world=16,model=" + model);
  };
  const Job usual = stage("");
  EXPECT_TRUE(usual.reshard);
  EXPECT_EQ(usual.prefetch, 3);  // four layers of 218,112,000 elements are less than 10^9
  EXPECT_THAT(jobs::policy_text(usual), HasSubstr("batch=2"));  // layers in 500,000,000 elements
  EXPECT_EQ(stage(R"(, "stage3_prefetch_bucket_size": 1e9)").prefetch, 3);
  EXPECT_EQ(stage(R"(, "stage3_prefetch_bucket_size": 0)").prefetch, 0);
  EXPECT_EQ(stage(R"(, "stage3_max_live_parameters": 1)").prefetch, 1);
  EXPECT_THAT(jobs::policy_text(stage(R"(, "reduce_bucket_size": 1e9)")), HasSubstr("batch=4"));

  EXPECT_FALSE(stage("", "qwen3_0.6b").reshard);
  const std::string short_reuse = R"(, "stage3_max_reuse_distance": 0)";
  EXPECT_FALSE(stage(short_reuse, "qwen3_0.6b").reshard);  // all of it may live
  EXPECT_TRUE(stage(short_reuse + R"(, "stage3_prefetch_bucket_size": 0)", "qwen3_0.6b").reshard);
  EXPECT_FALSE(stage(R"(, "stage3_max_reuse_distance": 2e10)").reshard);

  EXPECT_THAT(assumed_of(stage(R"(, "reduce_scatter": false)")),
              Contains(StartsWith("zero_optimization.reduce_scatter false: stage 3 all-reduces")));
  EXPECT_THAT(assumed_of(stage(R"(, "reduce_scatter": false, "contiguous_gradients": false)")),
              Not(Contains(StartsWith("zero_optimization.reduce_scatter"))));
}

TEST_F(JobSourceTest, DeepSpeedsStagesDifferInWhatTheyHide) {
  const auto stage = [this](const std::string& zero, const std::string& options) {
    return load_job(file("ds.json", "{\"train_batch_size\": 64, \"bf16\": {\"enabled\": true}, " +
                                        ("\"zero_optimization\": {" + zero + "}}")) +
                    ":model=llama3_8b,world=16" + options);
  };
  const Job whole = stage("\"stage\": 0", "");
  EXPECT_EQ(whole.batch.micro, 4);  // 64 over 16 replicas, in one step
  EXPECT_FALSE(whole.overlap_gradients);
  const Job second = stage(R"("stage": 2, "reduce_bucket_size": 5e8)", "");
  EXPECT_EQ(second.layout.dp, 16);
  EXPECT_EQ(second.bucket_bytes, 1'000'000'000);
  EXPECT_FALSE(second.overlap_gradients);
  EXPECT_FALSE(second.overlap_parameters);
  EXPECT_TRUE(stage(R"("stage": 2, "overlap_comm": true)", "").overlap_gradients);
  EXPECT_EQ(
      jobs::policy_text(stage(R"("stage": 1, "overlap_comm": true)", "")),
      "sharded:cap=1000000000B,p=1,gather=after-update,wait=before-next-batch,reduce=all-reduce");
  const Job groups = stage(R"("stage": 3, "mics_shard_size": 8)", "");
  EXPECT_EQ(groups.layout.dp_shard, 8);
  EXPECT_EQ(groups.layout.dp, 2);
  EXPECT_THAT(error_of([&] { stage(R"("stage": 2, "offload_optimizer": {"device": "cpu"})", ""); }),
              EndsWith("zero_optimization.offload_optimizer.device: moving states to the host is "
                       "not modelled"));
}

// BF16_Optimizer: gradients are summed in f32, master weights and states are divided.
TEST_F(JobSourceTest, DeepSpeedsStage0InBf16DividesItsOptimizer) {
  const auto job = [this](const std::string& type, const std::string& more) {
    return load_job(file("ds.json", "{\"train_batch_size\": 8, \"" + type +
                                        "\": {\"enabled\": true}, \"zero_optimization\": " +
                                        "{\"stage\": 0}" + more + "}") +
                    ":model=llama3_8b,world=8");
  };
  const Job bf16 = job("bf16", "");
  EXPECT_EQ(bf16.zero, Zero::Optimizer);
  EXPECT_EQ(bf16.precision.gradient, DType::F32);
  EXPECT_EQ(bf16.precision.reduce, DType::BF16);
  EXPECT_FALSE(bf16.overlap_gradients || bf16.overlap_parameters);
  EXPECT_THAT(assumed_of(bf16),
              ::testing::Contains(StartsWith("zero_optimization.stage 0: counted as 1")));
  const Job half = job("fp16", "");
  EXPECT_EQ(half.zero, Zero::Nothing);
  EXPECT_EQ(half.precision.gradient, DType::F16);
}

TEST_F(JobSourceTest, DeepSpeedsAutocastKeepsF32AndStandsAlone) {
  const auto job = [this](const std::string& more) {
    return load_job(file("ds.json", "{\"train_batch_size\": 4" + more + "}") +
                    ":model=llama3_8b,world=4");
  };
  const std::string cast = R"(, "torch_autocast": {"enabled": true, "dtype": "float16"})";
  EXPECT_EQ(job(cast).precision.autocast, jobs::Autocast::F16);
  EXPECT_EQ(job(cast).precision.compute, DType::F32);
  EXPECT_THAT(error_of([&] { job(cast + R"(, "bf16": {"enabled": true})"); }),
              HasSubstr("torch_autocast.enabled: expected neither fp16 nor bf16 beside it"));
}

TEST_F(JobSourceTest, AWorldIsWhatTheOtherDegreesLeaveOfIt) {
  EXPECT_EQ(load_job("llama3_70b:world=64,tp=8,pp=4").layout.dp, 2);
  const Job sharded = load_job("llama3_70b:world=64,tp=8,zero=3");
  EXPECT_EQ(sharded.layout.dp_shard, 8);
  EXPECT_EQ(sharded.layout.dp, 1);
  const Job hybrid = load_job("llama3_70b:world=64,tp=8,dp_shard=4");
  EXPECT_EQ(hybrid.layout.dp, 2);
  EXPECT_EQ(hybrid.zero, Zero::Parameters);
  EXPECT_EQ(load_job("llama3_70b:world=64,tp=8,dp=8").layout.world(), 64);
  EXPECT_EQ(load_job("llama3_8b:dp=2,gbs=8"), jobs::parse_job("llama3_8b:dp=2,gbs=8"));
  EXPECT_EQ(
      error("llama3_70b:world=64,tp=8,dp=4"),
      "job \"llama3_70b:world=64,tp=8,dp=4\": world: 64 ranks are not dp=4 x dp_shard=1 x cp=1 "
      "x tp=8 x pp=1");
  EXPECT_THAT(error("llama3_70b:world=60,tp=8"), HasSubstr("60 ranks are no multiple of"));
  EXPECT_THAT(error("llama3_70b:world=many"), HasSubstr("world: expected the number of ranks"));
}

TEST_F(JobSourceTest, WhatIsMissingOrWrongIsOneLineWithFileAndKey) {
  const std::string toml = file("train.toml", kTitan);
  EXPECT_EQ(error(toml),
            toml +
                ": parallelism.data_parallel_shard_degree is what the other degrees leave of "
                "the world: say how many ranks, " +
                toml + ":world=64");
  EXPECT_EQ(error(toml + " --parallelism.tensor_parallel_degree two:world=64"),
            toml +
                ": parallelism.tensor_parallel_degree: expected a whole number from 1 to 1048576, "
                "found \"two\"");
  EXPECT_THAT(error(toml + " --model.flavor 9B:world=64"),
              HasSubstr("model.flavor: llama3 9B is not known here (known: 8B, 70B, 405B); say a "
                        "model behind the file"));
  EXPECT_THAT(error(toml + " --training.enable_cpu_offload:world=64"),
              EndsWith("training.enable_cpu_offload: moving states to the host is not modelled"));
  EXPECT_EQ(error(toml + ":world=64,tp=5"),
            toml + ": world: 64 ranks are no multiple of dp=1 x dp_shard=1 x cp=1 x tp=5 x pp=1");
  EXPECT_EQ(error(toml + ":world=64,tpp=4"),
            toml + ": unknown option \"tpp\"; did you mean \"tp\"?");
  EXPECT_EQ(
      error(kLlama8b),
      "Megatron's arguments: how many ranks there are is said by no WORLD_SIZE: say it behind the "
      "arguments, :world=64");
  EXPECT_EQ(error("--num-layers 80:world=8"), "Megatron's arguments: --hidden-size is missing");
  EXPECT_THAT(error(kLlama8b + "--optimizer-cpu-offload:world=8"),
              EndsWith("--optimizer-cpu-offload: moving states to the host is not modelled"));
  const std::string ds = file("ds.json", R"({"train_batch_size": "auto"})");
  EXPECT_THAT(error(ds + ":world=8"), HasSubstr("the model is not in this file: say it behind"));
  EXPECT_THAT(error(ds + ":model=llama3_8b"),
              EndsWith("is not in this file: say it behind, :world=64"));
  EXPECT_THAT(error(ds + ":model=llama3_8b,world=8"),
              HasSubstr("train_micro_batch_size_per_gpu or train_batch_size is needed"));
  const std::string uneven =
      file("uneven.json", R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 3})");
  EXPECT_THAT(error(uneven + ":model=llama3_8b,world=8"),
              EndsWith("train_batch_size: 64 is not train_micro_batch_size_per_gpu=3 x "
                       "gradient_accumulation_steps=2 x 8 replicas"));
  EXPECT_THAT(error(file("broken.json", "{\n  \"a\": 1,\n  \"b\": ]\n}") + ":world=8"),
              AllOf(HasSubstr("broken.json: not valid JSON: parse error at line 3, column 8"),
                    Not(HasSubstr("\n"))));
  EXPECT_THAT(error(file("list.json", "[]") + ":world=8"), EndsWith("expected an object of JSON"));
  EXPECT_THAT(error(file("twice.json", R"({"a": 1, "a": 2})") + ":world=8"),
              EndsWith("key \"a\" stands twice in one object"));
  EXPECT_THAT(error("nothing.toml"), HasSubstr("nothing.toml: cannot be read"));
  EXPECT_THAT(error("lama3_8b:tp=2"), HasSubstr("did you mean \"llama3_8b\"?"));
}

// get_num_layers_to_build of Megatron-Core, by hand.
TEST_F(JobSourceTest, MegatronsStagesHaveTheLayersThatItBuilds) {
  const auto layers = [](const std::string& more) {
    return jobs::layers_of_stages(load_job(kLlama8b + more + ":world=4,gbs=16"));
  };
  EXPECT_THAT(layers("--pipeline-model-parallel-size 4"), ElementsAre(8, 8, 8, 8));
  const std::string both =
      "--num-layers 30 --account-for-embedding-in-pipeline-split "
      "--account-for-loss-in-pipeline-split "
      "--pipeline-model-parallel-size 4 ";
  EXPECT_THAT(layers(both), ElementsAre(7, 8, 8, 7));
  EXPECT_THAT(layers(both + "--num-layers-per-virtual-pipeline-stage 4"),
              ElementsAre(3, 4, 4, 4, 4, 4, 4, 3));
  const std::string ends =
      "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 6 "
      "--decoder-last-pipeline-num-layers 4 --num-layers 30 ";
  EXPECT_THAT(layers(ends), ElementsAre(6, 10, 10, 4));
  EXPECT_THAT(layers(ends + "--num-virtual-stages-per-pipeline-rank 2"),
              ElementsAre(3, 5, 5, 2, 3, 5, 5, 2));
  for (const std::string& wrong :
       {std::string("--num-layers 30 --pipeline-model-parallel-size 4"),
        both + "--decoder-first-pipeline-num-layers 6", ends + "--num-layers 31"}) {
    EXPECT_THAT(error(kLlama8b + wrong + ":world=4"), HasSubstr("as Megatron-LM divides it"));
  }
}

// As _print_args writes them, behind what a launcher puts before each line.
TEST_F(JobSourceTest, MegatronsLogSaysItsArgumentsAndItsIterations) {
  const std::string log = data("made_up_megatron.log");
  const Job job = load_job(log);
  EXPECT_EQ(jobs::to_string(job),
            "llama3_8b:dp=2,tp=2,pp=2,gbs=64,recompute=selective,recompute_modules=layernorm,as="
            "megatron");
  EXPECT_THAT(assumed_of(job),
              ElementsAre("--mtp-num-layers 1: multi-token prediction is not modelled"));
  EXPECT_THAT(
      job.notes,
      ElementsAre(
          "measured: iterations of this log took 8.11 s in the median of 8 behind the first 2"));
  EXPECT_EQ(load_job(log + " --micro-batch-size 2").batch.micro, 2);
}

TEST_F(JobSourceTest, WhatDecidesAndIsNotModelledIsAssumed) {
  const Job job =
      load_job(kLlama8b +
               "--lr 1e-4 --tensorboard-dir x --hidden-dropout 0.2 --attention-dropout 0 "
               "--micro-batch-size 2 --recompute-granularity selective "
               "--recompute-modules moe x layernorm --nproc-per-node 8:world=8");
  EXPECT_EQ(job.batch.micro, 2);
  EXPECT_TRUE(recomputes(job, jobs::RecomputedModule::Moe));
  EXPECT_TRUE(recomputes(job, jobs::RecomputedModule::LayerNorm));
  EXPECT_FALSE(recomputes(job, jobs::RecomputedModule::Mlp));
  EXPECT_THAT(assumed_of(job), ElementsAre("--recompute-modules x: counted as kept",
                                           "--hidden-dropout 0.2: dropout is not modelled"));
  EXPECT_THAT(job.notes, ElementsAre("--micro-batch-size is there as 1 and as 2; the last counts"));
}

// As their owners do: argparse and tyro any, DeepSpeed those within its sections.
TEST_F(JobSourceTest, KeysThatTheirOwnerRefusesAreRefused) {
  const std::string arguments = kLlama8b + "--frobnicate 3 --overlap-grad-reducee";
  EXPECT_THAT(error(arguments + ":world=8"),
              HasSubstr("--frobnicate, and 1 more: not known to Megatron-LM (Megatron-Core 0.20)"));
  EXPECT_THAT(error(kLlama8b + "--overlap-grad-reducee:world=8"),
              HasSubstr("did you mean --overlap-grad-reduce?"));
  EXPECT_THAT(assumed_of(load_job(arguments + ":world=8,unknown=ignored")),
              ElementsAre("--frobnicate 3: not heeded", "--overlap-grad-reducee: not heeded"));
  const std::string toml = file("train.toml", std::string(kTitan) + "[parallelism2]\ndegree = 3\n");
  EXPECT_THAT(error(toml + ":world=8"), HasSubstr("parallelism2.degree: not known to torchtitan"));
  const auto deepspeed = [this](const std::string& more) {
    return file("ds.json", "{\"train_batch_size\": 16" + more + "}") + ":model=llama3_8b,world=16";
  };
  EXPECT_THAT(error(deepspeed(R"(, "zero_optimization": {"stage": 2, "overlap_com": true})")),
              HasSubstr("zero_optimization.overlap_com: not known to DeepSpeed (0.19.6); did you "
                        "mean zero_optimization.overlap_comm?"));
  EXPECT_THAT(load_job(deepspeed(R"(, "mine": {"a": 1})")).notes,
              ElementsAre("mine.a: no key of DeepSpeed, which passes over it"));
}

TEST_F(JobSourceTest, WhatIsFilledInLaterIsAskedForOrFollowsFromTheModel) {
  const std::string automatic = file("auto.json", R"({
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto", "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
    "zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": "auto"}})");
  const std::string behind = automatic + ":model=llama3_8b,world=8";
  EXPECT_THAT(error(behind + ",bf16=yes"),
              HasSubstr("is needed, as a number, or :mbs= behind the file"));
  EXPECT_THAT(
      error(behind + ",mbs=1"),
      HasSubstr("bf16.enabled: \"auto\" is filled in by the program that hands the file on"));
  EXPECT_THAT(error(behind + ",mbs=1"), EndsWith("has --bf16, :bf16=yes or :bf16=no"));
  const Job half = load_job(behind + ",mbs=1,bf16=yes");
  EXPECT_EQ(half.precision.compute, DType::BF16);
  EXPECT_EQ(half.precision.gradient, DType::BF16);
  EXPECT_EQ(half.bucket_bytes, 4096 * 4096 * 2);  // Trainer's reduce_bucket_size
  EXPECT_THAT(assumed_of(half),
              ::testing::Contains(StartsWith("gradient_accumulation_steps auto")));
  EXPECT_EQ(load_job(behind + ",mbs=1,fp16=yes").precision.compute, DType::F16);
  const Job whole = load_job(behind + ",mbs=1,bf16=no,fp16=no");
  EXPECT_EQ(whole.precision.compute, DType::F32);
  EXPECT_EQ(whole.precision.master_bytes, 0);
  const std::string stage =
      file("stage.json", R"({"train_batch_size": 8, "zero_optimization": {"stage": "auto"}})");
  EXPECT_THAT(error(stage + ":model=llama3_8b,world=8"),
              HasSubstr("zero_optimization.stage: expected"));
}

TEST_F(JobSourceTest, WhatItsOwnerCannotRunIsRefused) {
  const auto deepspeed = [this](const std::string& more) {
    return file("ds.json", "{\"train_batch_size\": 16" + more + "}") + ":model=llama3_8b,world=16";
  };
  EXPECT_THAT(error(deepspeed(R"(, "bf16": true)")),
              EndsWith(R"(bf16: expected a section, {"enabled": true})"));
  EXPECT_THAT(error(deepspeed(R"(, "bf16": {"enabled": true}, "fp16": {"enabled": true})")),
              HasSubstr("expected one of them"));
  EXPECT_THAT(error(deepspeed("") + ",bf16=true"),
              EndsWith("bf16: expected yes or no, found \"true\""));
  EXPECT_THAT(error(kLlama8b + "--fp16:world=8"),
              HasSubstr("--fp16 and --bf16: expected one of them"));
  // As pydantic reads a bool, and no other numbers.
  const std::string whole =
      R"(, "zero_optimization": {"stage": 2, "overlap_comm": 0}, "bf16": {"enabled": 1})";
  EXPECT_EQ(load_job(deepspeed(whole)).precision.compute, DType::BF16);
  EXPECT_FALSE(load_job(deepspeed(whole)).overlap_gradients);
  EXPECT_THAT(load_job(deepspeed(R"(, "sparse_gradients": 0)")).assumed.size(), 1);
  EXPECT_THAT(error(deepspeed(R"(, "bf16": {"enabled": 2})")),
              EndsWith("bf16.enabled: expected true or false, found \"2\""));
  EXPECT_THAT(error("llama3_8b:pp=2,vp=2,schedule=sequential"),
              HasSubstr("schedule=sequential: expected vp=1, found vp=2"));
  const std::string cut =
      "------------------------ arguments ------------------------\n  num_layers ... 2\n";
  EXPECT_THAT(error(file("cut.log", cut)), HasSubstr("are cut off"));
  EXPECT_EQ(load_job("llama3_8b:dp=8,recompute=selective,recompute_modules=mlp").recompute_modules,
            8);
}

// transformers 5.24: validate_architecture, validate_layer_type, torch.topk, and products of queries and keys.
TEST_F(JobSourceTest, AConfigThatTransformersCannotRunIsRefused) {
  const auto config = [this](const std::string& type, const std::string& more) {
    return file("config.json", R"({"model_type": ")" + type +
                                   R"(", "num_hidden_layers": 4, "hidden_size": 512,
      "intermediate_size": 1024, "vocab_size": 32000, )" +
                                   more + "}");
  };
  EXPECT_THAT(error(config("llama", R"("num_attention_heads": 7)") + ":dp=2"),
              EndsWith("/num_attention_heads: expected what divides hidden_size=512, found 7"));
  EXPECT_THAT(
      error(config("qwen2", R"("num_attention_heads": 8, "num_key_value_heads": 3)") + ":dp=2"),
      EndsWith("/num_key_value_heads: expected what divides num_attention_heads=8, found 3"));
  EXPECT_THAT(
      error(config("mixtral", R"("num_attention_heads": 8, "num_local_experts": 4,
                                        "num_experts_per_tok": 5)") +
            ":dp=2"),
      EndsWith("/num_experts_per_tok: expected from 1 to the 4 experts of a layer, found 5"));
  EXPECT_THAT(
      error(config("qwen3", R"("num_attention_heads": 8, "layer_types": ["full_attention"])") +
            ":dp=2"),
      EndsWith("/layer_types: expected num_hidden_layers=4 of them, found 1"));
}

// pipelining_utils.py until May 2025.
TEST_F(JobSourceTest, AnEarlierTorchtitanSaysHowManyMicroBatchesThereAre) {
  const auto pieces = [this](const std::string& said) {
    return file("before.toml", R"(
[model]
name = "llama3"
flavor = "8B"
[training]
batch_size = 8
[experimental]
pipeline_parallel_degree = 4
pipeline_parallel_microbatches = )" +
                                   said + "\n") +
           ":world=8";
  };
  EXPECT_EQ(load_job(pieces("4")).batch.micro, 2);
  EXPECT_EQ(load_job(pieces("8")).micro_batches(), 8);
  EXPECT_THAT(error(pieces("3")),
              EndsWith("parallelism.pipeline_parallel_microbatches: expected what divides "
                       "training.local_batch_size=8, found \"3\""));
}

TEST_F(JobSourceTest, EarlierNamesOfKeysSayTheSame) {
  const std::string now = file("now.toml", R"(
[model]
name = "llama3"
flavor = "8B"
converters = ["float8"]
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
tensor_parallel_degree = 2
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
[compile]
enable = true
)");
  const std::string before = file("before.toml", R"(
[model]
name = "llama3"
flavor = "8B"
norm_type = "rmsnorm"
[training]
batch_size = 2
seq_len = 8192
tensor_parallel_degree = 2
compile = true
[experimental]
pipeline_parallel_degree = 2
pipeline_parallel_schedule = "Interleaved1F1B"
[float8]
enable_float8_linear = true
)");
  EXPECT_EQ(load_job(before + ":world=16"), load_job(now + ":world=16"));
  const std::string deepspeed = R"({"train_batch_size": 16, "zero_optimization": {"stage": 3, )";
  const auto job = [&](const std::string& rest) {
    return load_job(file("ds.json", deepspeed + rest) + ":model=llama3_8b,world=16");
  };
  EXPECT_EQ(job(R"("prefetch_bucket_size": 5e8}, "bfloat16": {"enabled": true}})"),
            job(R"("stage3_prefetch_bucket_size": 5e8}, "bf16": {"enabled": true}})"));
}

TEST(KeysTest, EveryTableIsReadAndTheLongestPatternCounts) {
  const KeyTable table("somebody", "# a comment\nharmless;a.*;;why\nunknown;a.b.*\nread;a.b.c\n");
  EXPECT_EQ(table.find("a.x").kind, Key::Class::Harmless);
  EXPECT_EQ(table.find("a.b.x").kind, Key::Class::Unknown);
  EXPECT_EQ(table.find("a.b.c").kind, Key::Class::Read);
  EXPECT_EQ(table.find("x").kind, Key::Class::Unknown);
  EXPECT_EQ(KeyTable::megatron().find("--lr").kind, Key::Class::Harmless);
  EXPECT_EQ(KeyTable::torchtitan().find("training.seq_len").kind, Key::Class::Read);
  EXPECT_EQ(KeyTable::deepspeed().find("zero_optimization.stage").kind, Key::Class::Read);
  EXPECT_TRUE(KeyTable::megatron().find("--hidden-dropout").is_idle("0.0"));
  EXPECT_FALSE(KeyTable::megatron().find("--mtp-num-layers").is_idle("1"));
}

TEST_F(JobSourceTest, AModelBehindTheFileGoesBeforeItsOwn) {
  const std::string toml = file("train.toml", kTitan);
  const Job other = load_job(toml + ":world=8,model=" + file("config.json", kHuggingFace));
  EXPECT_EQ(other, load_job(toml + ":world=8"));
  const Job megatron =
      load_job("--num-layers 2 --seq-length 4096 --vocab-size 7:world=8,model=qwen3_8b");
  EXPECT_EQ(megatron.model.name, "qwen3_8b");
  EXPECT_THAT(megatron.notes, ElementsAre(HasSubstr("dropout"), HasSubstr("dropout")));
}

TEST(TomlTest, TablesKeysAndValuesBecomeAFlatList) {
  const auto options = read_toml("f.toml", R"(
top = "a # b"  # comment
[a."b c"]
d.e = 1_000
list = [1, [2.5, 3],
        "x"]  # over lines
inner = {yes = true, text = 'C:\x'}
)");
  std::string all;
  for (const OptionText& option : options) all += option.name + "=" + option.value + ";";
  EXPECT_EQ(all,
            "top=a # b;a.b c.d.e=1000;a.b c.list=1,[2.5,3],x;a.b c.inner.yes=true;"
            "a.b c.inner.text=C:\\x;");
}

TEST(TomlTest, MistakesNameFileAndLine) {
  const auto error = [](const char* text) { return error_of([&] { read_toml("f.toml", text); }); };
  EXPECT_EQ(error("a = 1\na = 2"), "f.toml:2: the key a is there twice");
  EXPECT_EQ(error("[a\nb = 1"), "f.toml:1: expected ] behind the name of a table");
  EXPECT_EQ(error("\na 1"), "f.toml:2: expected = behind the key a");
  EXPECT_EQ(error("a = yes"),
            "f.toml:1: expected a number, a string in quotes, true or false, found \"yes\"");
  EXPECT_EQ(error("a = \"b"), "f.toml:1: a string without its closing quote");
  EXPECT_EQ(error("a = \"\"\"b\"\"\""), "f.toml:1: strings over several lines are not read");
  EXPECT_EQ(error("[[a]]"), "f.toml:1: arrays of tables, [[NAME]], are not read");
  EXPECT_EQ(error("a = 1 b = 2"), "f.toml:1: expected the end of the line");
  EXPECT_EQ(error("a = [1, 2"), "f.toml:1: expected , or ] in an array");
}

TEST(ShellTest, WordsBehindTheNameDecideWhichBranchesAreRead) {
  const auto flags = [](const std::string& text, const std::vector<std::string>& words) {
    std::string all;
    for (const OptionText& one : read_script("f.sh", text, {.words = words}).flags)
      all += one.name + (one.value.empty() ? "" : "=" + one.value) + " ";
    return all;
  };
  const std::string script = R"SH(
SIZE=$1
shift
TP=${1:-1}
if [ $SIZE = 7B ]; then  # a comment with fi
  ARGS="--num-layers 32"
  if [[ $TP -gt 1 && -n "$TP" ]]; then SP="--sequence-parallel"; fi
elif [ "$SIZE" == "13B" ] || [ "$SIZE" == "14B" ]
then
  ARGS="--num-layers 40"
else
  ARGS="--num-layers 2"
fi
case $SIZE in
  7B|8B) W="--ffn-hidden-size 1" ;;
  1*) W="--ffn-hidden-size 2" ;;
  *) W="--ffn-hidden-size 3" ;;
esac
if [ -f /tmp/x ]; then X="--bf16"; else X="--fp16"; fi
[ $TP = 4 ] && Y="--four"
[[ $TP -gt 1 ]] && Z="--several" || Z="--one"
OLD="--not-used 1"
A=(--array 1  # with a comment
   --more)
A+=(--added "x y")
echo "--num-layers 64"
python tools/data.py --workers 3
cat > other.sh <<EOF
pretrain.py --from-a-document
EOF
torchrun --nnodes 1 pretrain_gpt.py $ARGS $SP $W $X "${A[@]}" $Y $Z --tensor-model-parallel-size $TP | tee --append log
)SH";
  // Of a condition that cannot be known what stands last counts.
  const std::string array = "--fp16 --array=1 --more --added=x ";
  const std::string tp = "--tensor-model-parallel-size=";
  EXPECT_EQ(flags(script, {"7B", "2"}),
            "--nnodes=1 --num-layers=32 --sequence-parallel --ffn-hidden-size=1 " + array +
                "--several " + tp + "2 ");
  EXPECT_EQ(flags(script, {"7B"}),
            "--nnodes=1 --num-layers=32 --ffn-hidden-size=1 " + array + "--one " + tp + "1 ");
  EXPECT_EQ(flags(script, {"14B", "4"}), "--nnodes=1 --num-layers=40 --ffn-hidden-size=2 " + array +
                                             "--four --several " + tp + "4 ");
  EXPECT_EQ(flags(script, {"x"}),
            "--nnodes=1 --num-layers=2 --ffn-hidden-size=3 " + array + "--one " + tp + "1 ");
  EXPECT_THAT(flags(script, {}), StartsWith("--nnodes=1 --num-layers=2 --ffn-hidden-size=3 "));
  for (const char* const odd : {"if", "if [ a", "case x", "case x in", "case x in a) --b",
                                "fi esac", "if a; then case b in if; fi"}) {
    static_cast<void>(flags(odd, {"1"}));
  }
}

TEST(ShellTest, FlagsHaveTheValuesOfTheScriptsOwnVariables) {
  const Script script = read_script("f.sh", R"SH(
A=4 B=${UNSET:-"$A"}
if [ -n "$A" ]; then C=$((A * (B + 1) / 2 - 1)); fi
LIST=(
  --one $A   # --comment 1
  "--two ${B}" '--three $A'
)
LIST+=("--four=$C" --five "$UNSET")
run "${LIST[@]}" --six \
  -1 --seven; --eight 8 9
)SH");
  std::string all;
  for (const OptionText& flag : script.flags) all += flag.name + "=" + flag.value + " ";
  EXPECT_EQ(all, "--one=4 --two=4 --three=$A --four=9 --five=$UNSET --six=-1 --seven= --eight=8 ");
  EXPECT_EQ(script.variables.at("C"), "9");
}

}  // namespace
}  // namespace dovetail::frameworks

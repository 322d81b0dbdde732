// The Program of a job: sound, of the right size, with the collectives that its layout needs.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include <map>
#include <set>

#include "base/error.h"
#include "models/networks/decisions.h"
#include "models/networks/text.h"
#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "schedule/verify/verify.h"

namespace dovetail::jobs {
namespace {

using schedule::Collective;
using schedule::CollectiveWork;
using schedule::Phase;
using schedule::Program;
using schedule::Purpose;

class JobProgramTest : public ::testing::TestWithParam<std::string> {};

// The job with as few layers as show all that its stages have: what lies between two layers, and between two stages, does
// not depend on how many there are.
Job shortened(const std::string& text) {
  Job job = parse_job(text);
  const std::int64_t chunks = job.layout.pp * job.layout.vp;
  if (job.layout.layers.empty()) job.model.layers = chunks * std::max<std::int64_t>(2, 6 / chunks);
  return job;
}

// Of one micro-batch, over all tensor-parallel and context-parallel ranks.
double flop(const Program& program, Phase phase) {
  double total = 0;
  for (const schedule::Op& op : program.ops) {
    if (op.phase == phase) total += op.flop().count();
  }
  return total;
}

TEST_P(JobProgramTest, IsSoundAndItsPlanIsLegal) {
  const Job job = shortened(GetParam());
  const Program program = program_of(job);
  EXPECT_EQ(schedule::problems(program), std::vector<std::string>{});
  EXPECT_EQ(program.world_size, job.layout.world());
  const schedule::Policy policy = policy_of(job);
  const schedule::PolicyResult result = schedule::apply_policy(program, policy);
  ASSERT_FALSE(result.failure) << *result.failure;
  const schedule::Lowered lowered = schedule::lower(program, result.schedule);
  const std::vector<schedule::Problem> found =
      schedule::verify(program, lowered.program, result.schedule.merge);
  EXPECT_TRUE(found.empty()) << found.front().message;
}

TEST(JobProgramTest, Tf32IsOfAllProductsOfF32) {
  const auto operands_of = [](const std::string& job) {
    std::map<schedule::Operands, int> count;
    for (const schedule::Op& op : program_of(parse_job(job)).ops) {
      for (const schedule::Kernel& kernel : schedule::kernels_of(op.work)) {
        const auto* gemm = std::get_if<schedule::GemmWork>(&kernel);
        if (gemm != nullptr) ++count[gemm->operands];
      }
    }
    return count;
  };
  const auto full = operands_of("llama3_8b:dp=2,dtype=f32");
  ASSERT_EQ(full.size(), 1U);
  EXPECT_EQ(full.begin()->first, schedule::Operands::Own);
  const auto tf32 = operands_of("llama3_8b:dp=2,dtype=f32,products=tf32");
  ASSERT_EQ(tf32.size(), 1U);
  EXPECT_EQ(tf32.begin()->first, schedule::Operands::Tf32);
  EXPECT_EQ(tf32.begin()->second, full.begin()->second);
  EXPECT_THROW(static_cast<void>(parse_job("llama3_8b:dp=2,products=tf32")), InputError);
}

// Of a layer: up and down forward, and both gradients of each.
TEST(JobProgramTest, TransformerEngineMultipliesExpertsOneByOne) {
  const auto separate_in = [](const std::string& text, const std::string& framework) {
    const Job job = parse_job(text + ",as=" + framework);
    std::int64_t found = 0;
    for (const schedule::Op& op : program_of(job).ops) {
      for (const schedule::Kernel& kernel : schedule::kernels_of(op.work)) {
        const auto* gemm = std::get_if<schedule::GemmWork>(&kernel);
        if (gemm != nullptr && gemm->separate) {
          EXPECT_EQ(gemm->count, 2);
          ++found;
        }
      }
    }
    return found;
  };
  EXPECT_EQ(separate_in("mixtral_8x7b:ep=4,dp=4", "megatron"), 32 * 6);
  EXPECT_EQ(separate_in("mixtral_8x7b:ep=4,dp=4", "fsdp"), 0);
  EXPECT_EQ(separate_in("mixtral_8x7b:ep=4,dp=4,products=fp8", "megatron"), 32 * 6);
  EXPECT_EQ(separate_in("mixtral_8x7b:ep=8,dp=8", "megatron"), 0);  // one expert on each rank
}

// Of 32 layers 2 products of 2 experts, three ways each; of four of the six products what they multiply is cast, for each expert.
TEST(JobProgramTest, AHostLaunchesEachExpertsProductsAndCasts) {
  const auto launched = [](const std::string& options) {
    const Job job = parse_job("mixtral_8x7b:ep=4,dp=4,as=megatron" + options);
    std::int64_t count = 0;
    for (const schedule::Op& op : program_of(job).ops) {
      if (op.name.find(".experts") != std::string::npos) count += schedule::launches(op.work);
    }
    return count;
  };
  const std::int64_t wide = launched("");
  const std::int64_t of_casts = std::int64_t{32} * 4 * 2;
  EXPECT_EQ(launched(",products=fp8"), wide);  // delayed: one kernel for all, beside others
  EXPECT_EQ(launched(",products=fp8,scaling=mx") - wide, of_casts);
  EXPECT_EQ(launched(",products=fp8,scaling=tensor") - wide, 3 * of_casts);
  EXPECT_EQ(launched(",products=fp4") - wide, of_casts);
}

TEST(JobProgramTest, CopiesOfATokenForOneRankTravelOnce) {
  const auto copies = [](const std::string& options) {
    std::set<std::int64_t> found;
    for (const schedule::Op& op : program_of(parse_job("mixtral_8x7b:ep=8,dp=8" + options)).ops) {
      const auto* work = std::get_if<schedule::CollectiveWork>(&op.work);
      if (work != nullptr && work->kind == schedule::Collective::AllToAll)
        found.insert(work->copies);
    }
    return found;
  };
  EXPECT_THAT(copies(""), ::testing::ElementsAre(1));
  EXPECT_THAT(copies(",dispatch=deepep"), ::testing::ElementsAre(2));
  EXPECT_THAT(copies(",dispatch=hybridep"), ::testing::ElementsAre(2));
}

// Experts that each rank has for itself, beside layers that all have.
TEST(JobProgramTest, GradientsWithoutASecondCopyAreNotReduced) {
  const Job job = parse_job("mixtral_8x7b:ep=8,dp=8,gbs=8");
  ASSERT_TRUE(has_copies(job));
  const schedule::Program program = program_of(job);
  EXPECT_FALSE(program.reductions.empty());
  for (const schedule::Reduction& one : program.reductions) {
    EXPECT_EQ(program.group(one.group).size(), 8);
    EXPECT_EQ(program.tensor(one.gradient).name.find("experts"), std::string::npos);
  }
  EXPECT_FALSE(has_copies(parse_job("mixtral_8x7b:tp=8,etp=8,gbs=1")));
  EXPECT_TRUE(has_copies(parse_job("mixtral_8x7b:tp=8,gbs=1")));
}

TEST_P(JobProgramTest, ForwardHasTheFlopOfItsTokens) {
  const Job job = shortened(GetParam());
  if (job.model.experts) GTEST_SKIP() << "of experts each rank has those that are sent to it";
  const double tokens = static_cast<double>(job.batch.micro * job.batch.sequence);
  const double expected = tokens * forward_flop_per_token(job.model, job.batch.sequence, true);
  const double ranks = static_cast<double>(job.layout.tp * job.layout.cp);
  EXPECT_NEAR(flop(program_of(job), Phase::Forward) * ranks / expected, 1, 0.02);
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, JobProgramTest,
    ::testing::Values(
        "qwen3_0.6b:dp=4", "qwen3_0.6b:dp=2,tp=2", "qwen3_0.6b:dp=2,tp=2,sp=no",
        "qwen3_0.6b:tp=2,async_tp=yes,dp=2", "qwen3_0.6b:cp=2,dp=2", "qwen3_0.6b:pp=2,dp=2,gbs=8",
        "qwen3_0.6b:tp=2,pp=2,dp=2,gbs=8", "qwen3_0.6b:pp=2,gbs=1",
        "qwen3_0.6b:pp=4,dp=2,gbs=8,zero=1", "qwen3_0.6b:pp=2,dp=2,gbs=8,zero=2",
        "qwen3_0.6b:pp=2,dp_shard=2,gbs=8", "qwen3_0.6b:pp=2,vp=2,dp=2,dp_shard=2,gbs=8",
        "qwen3_0.6b:pp=2,dp=2,gbs=8,overlap_grads=no", "llama3_8b:pp=2,vp=2,dp=2,gbs=8",
        "llama3_8b:pp=2,dp=2,gbs=8,zero=1,grads=bf16,reduce=bf16",
        "llama3_8b:dp_shard=4,grads=bf16,reduce=bf16", "llama3_8b:dp=4,gbs=16,recompute=full",
        "llama3_8b:dp_shard=4,recompute=op", "llama3_8b:tp=4,dp=2,recompute=op,flash=no",
        "llama3_8b:cp=2,dp=2,recompute=op,kernels=eager", "llama3_8b:cp=4,dp=2,exchange=ring",
        "llama3_8b:tp=2,cp=2,dp=2,gbs=8,exchange=ring,async_tp=yes,recompute=full,as=megatron",
        "llama3_8b:cp=2,pp=2,vp=2,schedule=zbv,dp=2,gbs=8,exchange=ring",
        "qwen3_0.6b:cp=4,dp_shard=2,gbs=4,exchange=ring,recompute=op,lora=8",
        "mixtral_8x7b:ep=4,dp=4,recompute=op",
        "llama3_8b:pp=2,vp=2,schedule=zbv,tp=2,dp=2,gbs=8,recompute=op,lora=16",
        "llama3_8b:tp=4,dp=2,recompute=full,recompute_layers=4", "mixtral_8x7b:ep=4,dp=4",
        "gpt_oss_20b:ep=8,tp=2,dp=4", "deepseek_v3:ep=8,dp=8,tp=1", "vit_b16:dp=8,mbs=32",
        "gpt3_175b:tp=8,pp=8,dp=1,gbs=8", "llama3_8b:pp=4,layers=10/9/9/4,gbs=8,dp=1",
        "llama3_8b:pp=4,schedule=zero-bubble,dp=2,gbs=16,zero=1",
        "llama3_8b:pp=2,vp=2,schedule=zero-bubble,tp=2,gbs=8",
        "llama3_8b:pp=4,vp=2,schedule=zbv,dp=2,gbs=16",
        "llama3_8b:pp=2,vp=2,schedule=zbv,tp=2,dp_shard=2,gbs=8,recompute=full",
        "mixtral_8x7b:ep=2,pp=2,vp=2,schedule=zbv,dp=2,gbs=8",
        "qwen3_0.6b:pp=2,schedule=zero-bubble,dp=2,gbs=8",
        "qwen3_0.6b:pp=2,vp=2,schedule=zbv,lora=16,dp=2,gbs=8", "llama3_8b:pp=2,layers=32/0,gbs=4",
        "llama3_8b:tp=2,dp=2,kernels=eager", "mixtral_8x7b:ep=4,dp=4,kernels=eager",
        // bf16 parameters, f32 gradients; experts over groups of their own, of one rank, with replicas.
        "llama3_8b:dp_shard=4", "llama3_8b:dp_shard=4,zero=1", "llama3_8b:dp_shard=2,pp=2,gbs=8",
        "mixtral_8x7b:ep=4,dp_shard=8", "mixtral_8x7b:ep=4,dp_shard=4,zero=1",
        "mixtral_8x7b:ep=2,dp=2,dp_shard=4", "mixtral_8x7b:ep=2,dp_shard=4,pp=2,gbs=16",
        "llama3_8b:dp=4,lora=16", "llama3_8b:tp=2,cp=2,dp=2,lora=16",
        "llama3_8b:dp_shard=4,lora=16", "llama3_8b:tp=2,dp=2,lora=8,lora_on=attention",
        "llama3_8b:pp=2,vp=2,dp=2,gbs=8,lora=16", "llama3_8b:dp=2,zero=1,lora=16,recompute=full",
        "llama3_8b:dp=2,dp_shard=2,lora=16",
        "llama3_8b:tp=2,sp=no,dp_shard=2,lora=16,kernels=eager",
        "qwen3_0.6b:pp=2,dp_shard=2,gbs=8,lora=8", "vit_b16:dp=4,lora=4",
        "mixtral_8x7b:ep=4,dp=4,lora=8,lora_on=attention",
        "deepseek_v3:ep=8,dp=8,lora=8,lora_on=attention"),
    [](const auto& tested) {
      std::string name = tested.param;
      for (char& letter : name) {
        if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
      }
      return name;
    });

std::map<std::pair<Purpose, Collective>, int> messages(const Program& program, Phase phase) {
  std::map<std::pair<Purpose, Collective>, int> count;
  for (const schedule::Op& op : program.ops) {
    const auto* work = std::get_if<CollectiveWork>(&op.work);
    if (work != nullptr && op.phase == phase) ++count[{work->purpose, work->kind}];
  }
  return count;
}

TEST(JobProgramTest, SequenceParallelLayersGatherAndScatter) {
  const Program program = program_of(parse_job("llama3_8b:tp=2,dp=2"));
  const auto forward = messages(program, Phase::Forward);
  // Two a layer, the gather before the head, the scatter behind the embedding.
  EXPECT_EQ(forward.at({Purpose::TensorParallel, Collective::AllGather}), 2 * 32 + 1);
  EXPECT_EQ(forward.at({Purpose::TensorParallel, Collective::ReduceScatter}), 2 * 32 + 1);
  const auto backward = messages(program, Phase::Backward);
  // Each gather is repeated for the gradients of weights.
  EXPECT_EQ(backward.at({Purpose::TensorParallel, Collective::AllGather}), 2 * (2 * 32 + 1));
}

// Of a layer: 2,048 tokens of a rank x 4 heads x 256 keys and values of bf16 are 4 MiB, forward to the neighbor three times; backward
// they go three times, their gradients behind them, three times. An all-gather of 4 / 3 of it moves as much over each link.
TEST(JobProgramTest, ARingSendsKeysAndValuesAndBackwardTheirGradients) {
  const auto sent = [](const std::string& text) {
    std::map<Phase, std::vector<std::int64_t>> bytes;
    for (const schedule::Op& op : program_of(shortened(text)).ops) {
      const auto* work = std::get_if<CollectiveWork>(&op.work);
      if (work == nullptr || work->purpose != Purpose::ContextParallel) continue;
      if (op.name.starts_with("model.layers.1.")) bytes[op.phase].push_back(work->bytes.count());
    }
    return bytes;
  };
  const std::string job = "llama3_8b:tp=2,cp=4,seq=8192,as=megatron";
  const std::int64_t piece = (std::int64_t{4} << 20) * 4 / 3;
  auto ring = sent(job + ",exchange=ring");
  EXPECT_EQ(ring[Phase::Forward], std::vector<std::int64_t>(3, piece));
  const std::int64_t both = (std::int64_t{8} << 20) * 4 / 3;
  EXPECT_EQ(ring[Phase::Backward], (std::vector<std::int64_t>{piece, both, both, piece}));
  auto gather = sent(job);
  EXPECT_EQ(gather[Phase::Forward], std::vector<std::int64_t>{std::int64_t{16} << 20});
  // Those of windows are gathered: nobody's ring has them.
  auto windowed = sent("gpt_oss_20b:cp=4,seq=8192,exchange=ring");
  EXPECT_EQ(windowed[Phase::Forward].size(), 1U);
}

// Of each of the four pieces, both ways: the first is causal, and the four are as many FLOP as all of it.
TEST(JobProgramTest, ARingsPiecesOfAttentionAreAllOfIt) {
  const auto attention = [](const std::string& text) {
    std::map<bool, std::vector<schedule::MemoryWork>> found;
    for (const schedule::Op& op : program_of(shortened(text)).ops) {
      if (!op.name.starts_with("model.layers.1.")) continue;
      for (const schedule::Kernel& kernel : schedule::kernels_of(op.work)) {
        const auto* memory = std::get_if<schedule::MemoryWork>(&kernel);
        if (memory != nullptr && memory->attention)
          found[memory->attention->backward].push_back(*memory);
      }
    }
    return found;
  };
  const std::string job = "llama3_8b:cp=4,seq=8192";
  auto whole = attention(job), pieces = attention(job + ",exchange=ring");
  for (const bool backward : {false, true}) {
    ASSERT_EQ(whole[backward].size(), 1U);
    ASSERT_EQ(pieces[backward].size(), 4U);
    double flop = 0;
    std::vector<bool> causal;
    for (const schedule::MemoryWork& piece : pieces[backward]) {
      flop += piece.flop.count();
      causal.push_back(piece.attention->causal);
      EXPECT_EQ(piece.attention->tokens, 1024);
    }
    EXPECT_DOUBLE_EQ(flop, whole[backward].front().flop.count());
    EXPECT_EQ(causal, backward ? (std::vector<bool>{false, false, false, true})
                               : (std::vector<bool>{true, false, false, false}));
  }
}

// Megatron's products of weights' gradients add to the sums of four micro-batches; those of norms and of the embedding, which no product
// gives, are added behind them (12 B an element of f32), as all are elsewhere.
TEST(JobProgramTest, MegatronsProductsAddToTheSumsOfMicroBatches) {
  const auto sums = [](const std::string& text) {
    const Job job = shortened(text);
    const Program program = program_of(job);
    const schedule::PolicyResult result = schedule::apply_policy(program, policy_of(job));
    EXPECT_FALSE(result.failure);
    std::map<bool, std::set<std::string>> moved;  // by whether the op moves anything
    for (const schedule::Op& op : schedule::lower(program, result.schedule).program.program.ops) {
      if (!std::holds_alternative<schedule::Accumulate>(op.effect)) continue;
      const bool moves = std::get<schedule::MemoryWork>(op.work).bytes > Bytes(0);
      EXPECT_EQ(op.issue == Duration{}, !moves);
      moved[moves].insert(op.name.substr(0, op.name.find(".grad")));
    }
    return moved;
  };
  const std::string job = "llama3_8b:dp=2,tp=2,gbs=8,zero=1";
  auto fused = sums(job + ",as=megatron");
  EXPECT_THAT(fused[false], ::testing::Contains("model.layers.1.mlp.down_proj.weight"));
  EXPECT_THAT(fused[false], ::testing::Contains("lm_head.weight"));
  EXPECT_THAT(fused[true], ::testing::Contains("model.embed_tokens.weight"));
  EXPECT_THAT(fused[true], ::testing::Contains("model.layers.1.input_layernorm.weight"));
  EXPECT_TRUE(sums(job)[false].empty());
  // What each micro-batch reduces has no sum in its product.
  EXPECT_TRUE(sums("llama3_8b:dp=2,gbs=8,zero=2,as=megatron")[false].empty());
}

TEST(JobProgramTest, WithoutSequenceParallelismSumsTravelWhole) {
  const Program program = program_of(parse_job("llama3_8b:tp=2,dp=2,sp=no"));
  const auto forward = messages(program, Phase::Forward);
  EXPECT_EQ(forward.at({Purpose::TensorParallel, Collective::AllReduce}), 2 * 32 + 1);
  const auto backward = messages(program, Phase::Backward);
  EXPECT_EQ(backward.at({Purpose::TensorParallel, Collective::AllReduce}), 2 * 32 + 1);
}

TEST(JobProgramTest, ExpertsDispatchAndCombine) {
  const Job job = parse_job("mixtral_8x7b:ep=4,dp=8,mbs=2");
  const Program program = program_of(job);
  for (const Phase phase : {Phase::Forward, Phase::Backward}) {
    EXPECT_EQ(messages(program, phase).at({Purpose::ExpertParallel, Collective::AllToAll}), 2 * 32);
  }
  for (const schedule::Op& op : program.ops) {
    const auto* work = std::get_if<CollectiveWork>(&op.work);
    if (work == nullptr) continue;
    EXPECT_EQ(work->bytes, Bytes(2 * 4096 * 2 * 4096 * 2)) << op.name;  // mbs seq top-k width bf16
  }
  std::map<std::string, int> owed;
  for (const schedule::Reduction& reduction : program.reductions) {
    ++owed[program.group(reduction.group).name];
  }
  EXPECT_EQ(owed.at("edp"), 3 * 32);
}

// Bytes of rows that are picked by index, in one op.
std::int64_t moved(const Program& program, const std::string& op_name) {
  const auto op = std::ranges::find(program.ops, op_name, &schedule::Op::name);
  std::int64_t sum = 0;
  for (const schedule::Kernel& kernel : schedule::kernels_of(op->work)) {
    const auto* memory = std::get_if<schedule::MemoryWork>(&kernel);
    if (memory != nullptr && memory->access == schedule::Access::Gathered)
      sum += memory->bytes.count();
  }
  return sum;
}

TEST(JobProgramTest, TokensAreReadOnceAndWrittenForEachOfTheirExperts) {
  // 1,024 tokens of 4,096 bf16, two experts each: one row read and two written; back two and one. With ep=4 each rank holds two
  // experts and sorts what arrives, 2,048 rows read and written, ahead of its products and behind them.
  constexpr std::int64_t kRow = 4096 * 2;
  const Program alone = program_of(shortened("mixtral_8x7b:seq=1024,gbs=1"));
  const Program spread = program_of(shortened("mixtral_8x7b:ep=4,dp=4,seq=1024,gbs=4"));
  for (const Program& program : {alone, spread}) {
    EXPECT_EQ(moved(program, "model.layers.0.mlp.gate.forward"), 3 * 1024 * kRow);
    EXPECT_EQ(moved(program, "model.layers.0.mlp.sum.forward"), 3 * 1024 * kRow);
    EXPECT_EQ(moved(program, "model.layers.0.mlp.sum.backward"), 3 * 1024 * kRow);
  }
  EXPECT_EQ(moved(alone, "model.layers.0.mlp.experts.forward"), 0);
  EXPECT_EQ(moved(spread, "model.layers.0.mlp.experts.forward"), 2 * 2 * 2048 * kRow);
}

TEST(JobProgramTest, ContextParallelRanksWriteTheScoresOfTheirOwnQueries) {
  const auto written = [](const std::string& text) {
    return flop(program_of(shortened(text)), Phase::Forward);
  };
  const std::string job = "gpt_oss_20b:seq=1024,gbs=1,kernels=transformers";
  // Of one rank half; the product of positions and frequencies is whole on each.
  EXPECT_NEAR(written(job + ",cp=2") / written(job), 0.5, 1e-4);
}

std::vector<schedule::Op> sums_of_ties(const Program& program) {
  std::vector<schedule::Op> sums;
  for (const schedule::Op& op : program.ops) {
    const auto* work = std::get_if<CollectiveWork>(&op.work);
    if (work != nullptr && work->purpose == Purpose::TiedWeights) sums.push_back(op);
  }
  return sums;
}

TEST(JobProgramTest, TheFirstAndTheLastStageAddUpTheGradientsOfTiedWeights) {
  // 4 stages of 4 ranks: rank 1 of the first meets rank 13 of the last. Half of 151,936 rows of 1,024 f32.
  const Program program = program_of(parse_job("qwen3_0.6b:tp=2,pp=4,dp=2,gbs=8"));
  const std::vector<schedule::Op> sums = sums_of_ties(program);
  ASSERT_EQ(sums.size(), 2U);
  for (const schedule::Op& op : sums) {
    const auto& work = std::get<CollectiveWork>(op.work);
    EXPECT_EQ(work.kind, Collective::AllReduce);
    EXPECT_EQ(work.bytes, Bytes(151'936 / 2 * 1024 * 4));
    EXPECT_EQ(program.group(work.group).size(), 2);
    const auto ranks = program.group(work.group).instance_of(Rank{1});
    EXPECT_EQ(std::vector(ranks.begin(), ranks.end()), (std::vector{Rank{1}, Rank{13}}));
    EXPECT_TRUE(program.group(work.group).instance_of(Rank{5}).empty());
  }
  EXPECT_EQ(sums.front().stage, 0);
  EXPECT_EQ(sums.back().stage, 3);
  // Behind all of backward, so that no other gradient waits for them.
  const auto owed = schedule::owed_gradients(program);
  EXPECT_EQ(owed.back().producer, sums.back().id);
  EXPECT_TRUE(sums_of_ties(program_of(parse_job("qwen3_0.6b:tp=2,dp=2"))).empty());
  EXPECT_TRUE(sums_of_ties(program_of(parse_job("llama3_8b:pp=2,gbs=4"))).empty());
}

TEST(JobProgramTest, TiedGradientsAreAddedUpOncePerStepAndBeforeTheyAreReduced) {
  const Job job = parse_job("qwen3_0.6b:pp=2,dp=2,gbs=8");
  const Program program = program_of(job);
  const schedule::Schedule schedule = schedule::make_schedule(program, policy_of(job));
  schedule::ScheduledProgram plan = schedule::lower(program, schedule).program;
  EXPECT_EQ(sums_of_ties(plan.program).size(), 2U);

  // A plan that reduces them first: the update on the last stage lacks the gradient of the first.
  std::vector<schedule::Command>& commands = plan.roles.back().commands;
  const OpId sum = sums_of_ties(plan.program).back().id;
  const auto runs = [&](const schedule::Command& command) { return op_run_by(command) == sum; };
  const auto early = std::ranges::find_if(commands, runs);
  ASSERT_NE(early, commands.end());
  std::rotate(early, early + 1, commands.end());
  std::string all;
  for (const auto& problem : verify(program, plan, schedule.merge)) all += problem.message + "\n";
  EXPECT_NE(
      all.find("reads lm_head.tied.weight.grad.merged without model.embed_tokens.weight.grad, "
               "the gradient of the same weight on another stage"),
      std::string::npos)
      << all;
}

TEST(JobProgramTest, TheSumOfTiedWeightsIsOneGradientInPlace) {
  Program program = program_of(parse_job("qwen3_0.6b:pp=2,gbs=4"));
  for (schedule::Op& op : program.ops) {
    if (op.name == "lm_head.tied.weight.grad.tied") op.phase = Phase::Optimizer;
  }
  const std::vector<std::string> found = schedule::problems(program);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front(),
            "op lm_head.tied.weight.grad.tied sums tied weights, but is no all-reduce (sum) of one "
            "gradient in backward, in place");
}

// One stage adds what its replicas have averaged to what the other's have not.
TEST(JobProgramTest, BothStagesAddUpTiedGradientsInTheSameState) {
  const Job job = parse_job("qwen3_0.6b:pp=2,dp=2,gbs=8");
  const Program program = program_of(job);
  const schedule::Schedule schedule = schedule::make_schedule(program, policy_of(job));
  schedule::ScheduledProgram plan = schedule::lower(program, schedule).program;
  std::vector<schedule::Command>& commands = plan.roles.back().commands;
  const OpId sum = sums_of_ties(plan.program).back().id;
  const auto early = std::ranges::find_if(
      commands, [&](const schedule::Command& command) { return op_run_by(command) == sum; });
  const auto update = std::ranges::find_if(commands, [&](const schedule::Command& command) {
    const std::optional<OpId> op = op_run_by(command);
    return op && plan.program.op(*op).name == "lm_head.tied.weight.update";
  });
  ASSERT_LT(early, update);
  std::rotate(early, early + 1, update);
  std::string all;
  for (const auto& problem : verify(program, plan, schedule.merge)) all += problem.message + "\n";
  EXPECT_NE(all.find("the gradients of a tied weight meet over tied scaled differently, or reduced "
                     "over different groups"),
            std::string::npos)
      << all;
}

TEST(JobProgramTest, APlanWithoutTheSumOfTiedWeightsIsNotTheJob) {
  const Job job = parse_job("qwen3_0.6b:pp=2,gbs=4");
  const Program program = program_of(job);
  Program without = program;
  std::erase_if(without.ops, [](const schedule::Op& op) { return op.name.ends_with(".tied"); });
  const schedule::Schedule schedule = schedule::make_schedule(without, policy_of(job));
  const schedule::ScheduledProgram plan = schedule::lower(without, schedule).program;
  const auto found = verify(program, plan, schedule.merge);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front().message, "program: op model.embed_tokens.weight.grad.tied is missing");
}

// Keys, attention's output and the third product of the network; of narrower products all but the last one.
TEST(JobProgramTest, ByOpEverySecondProductIsComputedAgain) {
  const auto again = [](const std::string& text) {
    double products = 0;
    for (const schedule::Op& op : program_of(parse_job(text)).ops) {
      if (!op.name.starts_with("model.layers.7.") || !op.name.ends_with(".recompute")) continue;
      for (const schedule::Kernel& kernel : schedule::kernels_of(op.work)) {
        const auto* gemm = std::get_if<schedule::GemmWork>(&kernel);
        if (gemm != nullptr) products += static_cast<double>(gemm->m * gemm->n * gemm->k);
      }
    }
    return products / (512.0 * 4096);  // tokens, width
  };
  const std::string job = "llama3_8b:dp_shard=2,gbs=2,seq=512";
  EXPECT_EQ(again(job), 0);
  EXPECT_EQ(again(job + ",recompute=op"), 1024 + 4096 + 14336);
  EXPECT_EQ(again(job + ",recompute=op,kernels=eager"), 1024 + 4096 + 14336);
  EXPECT_EQ(again(job + ",recompute=op,products=fp8"), 2 * 4096 + 2 * 1024 + 2 * 14336);
  // PyTorch's checkpoint stops before the last product, Megatron's own does not.
  EXPECT_EQ(again(job + ",recompute=full"), 2 * 4096 + 2 * 1024 + 2 * 14336);
  EXPECT_EQ(again("llama3_8b:dp=2,gbs=2,seq=512,as=megatron,recompute=full"),
            2 * 4096 + 2 * 1024 + 3 * 14336);
}

TEST(JobProgramTest, ParametersOfARankAreItsShare) {
  const auto elements = [](const std::string& text) {
    std::int64_t count = 0;
    for (const schedule::Tensor& tensor : program_of(parse_job(text)).tensors) {
      if (tensor.kind == schedule::TensorKind::Parameter) count += tensor.numel();
    }
    return count;
  };
  EXPECT_EQ(elements("llama3_8b:dp=2"), 8'030'261'248);
  const std::int64_t norms = 65 * 4096;
  EXPECT_EQ(elements("llama3_8b:tp=4"), (8'030'261'248 - norms) / 4 + norms);
}

// FSDP2 casts its shard and copies it into a gather, again in backward; alone it copies nothing in, and sums out of their buffer.
TEST(JobProgramTest, Fsdp2sOwnCopiesStandInTheOpsThatGather) {
  const auto bytes_of = [](const std::string& keys, const std::string& name) {
    std::int64_t bytes = 0;
    for (const schedule::Op& op : program_of(parse_job("llama3_8b:seq=4096," + keys)).ops) {
      if (op.name != name) continue;
      for (const schedule::Kernel& kernel : schedule::kernels_of(op.work)) {
        if (const auto* memory = std::get_if<schedule::MemoryWork>(&kernel))
          bytes += memory->bytes.count();
      }
    }
    return bytes;
  };
  const std::string forward = "model.layers.1.mlp.forward";
  const std::string backward = "model.layers.1.mlp.backward";
  constexpr std::int64_t kMlp = 3 * 4096 * 14336 + 4096;  // parameters
  const std::int64_t plain = bytes_of("gbs=1", forward);
  const std::int64_t back = bytes_of("gbs=1", backward);
  EXPECT_EQ(bytes_of("gbs=8,dp_shard=8", forward) - plain, kMlp / 8 * (6 + 4));
  EXPECT_EQ(bytes_of("gbs=8,dp_shard=8", backward) - back, kMlp / 8 * (6 + 4));
  EXPECT_EQ(bytes_of("gbs=8,dp_shard=8,reshard=no", backward), back);
  EXPECT_EQ(bytes_of("gbs=8,dp_shard=8,as=deepspeed", forward), plain);
  EXPECT_EQ(bytes_of("gbs=1,zero=3,wrap=always", forward) - plain, kMlp * 6);
  EXPECT_EQ(bytes_of("gbs=1,zero=3,wrap=always", backward) - back, kMlp * (6 + 8));
  EXPECT_EQ(bytes_of("gbs=1,zero=3", forward), plain);
  // Held in f32 only, a parameter is written by its gather: gradient, master and moments read, the latter two written.
  EXPECT_EQ(bytes_of("gbs=8,dp_shard=8", "model.norm.weight.update"), 4096 * 28);
}

}  // namespace
}  // namespace dovetail::jobs

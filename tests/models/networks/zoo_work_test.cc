// The zoo's steps do the published amount of work, in the order that the dataflow allows.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo.h"
#include "schedule/program.h"
#include "tests/models/networks/zoo_queries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace dovetail::models {
namespace {

using schedule::GemmWork;
using schedule::Op;
using schedule::Phase;
using schedule::Program;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

// ---- order -----------------------------------------------------------------------------------

// Hugging Face defines q k v o gate up down input_norm post_norm; data flows input_norm q k v o
// post_norm gate up down. Backward reverses the flow.
TEST(ZooWorkTest, LetsTheDataflowOfALlamaBlockDecideWhatIsReadyFirst) {
  const Program program = program_of("llama2_7b");
  const std::vector<std::string> ready = ready_names(program);
  EXPECT_EQ(ready[0], "lm_head.weight.grad");
  EXPECT_EQ(ready[1], "model.norm.weight.grad");
  const std::string block = "model.layers.31.";
  const std::vector<std::string> expected{
      "mlp.down_proj",    "mlp.up_proj",      "mlp.gate_proj",    "post_attention_layernorm",
      "self_attn.o_proj", "self_attn.v_proj", "self_attn.k_proj", "self_attn.q_proj",
      "input_layernorm"};
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(ready[i + 2], block + expected[i] + ".weight.grad");
  }
  EXPECT_EQ(ready.back(), "model.embed_tokens.weight.grad");
}

TEST(ZooWorkTest, ReadiesTheLastExpertFirstAndTheRouterAfterAllExperts) {
  const Program program = program_of("mixtral_8x7b");
  const std::vector<std::string> ready = ready_names(program);
  const std::string moe = "model.layers.31.block_sparse_moe.";
  EXPECT_EQ(ready[2], moe + "experts.7.w2.weight.grad");
  EXPECT_EQ(ready[3], moe + "experts.7.w3.weight.grad");
  EXPECT_EQ(ready[4], moe + "experts.7.w1.weight.grad");
  EXPECT_EQ(ready[25], moe + "experts.0.w1.weight.grad");
  EXPECT_EQ(ready[26], moe + "gate.weight.grad");
}

// The output layer writes the shared gradient first; the embedding adds to it at the very end.
TEST(ZooWorkTest, AccumulatesTheTiedGradientOfGpt2AndOwesItLast) {
  const Program program = program_of("gpt2");
  const std::string tied = "transformer.wte.weight.grad";
  std::vector<std::string> writers;
  for (const Op& op : program.ops) {
    if (std::ranges::count(names_of(program, op.writes), tied) > 0) writers.push_back(op.name);
  }
  EXPECT_THAT(writers, ElementsAre("lm_head.backward.weight", "transformer.wte.backward.weight"));
  EXPECT_THAT(names_of(program, op_named(program, writers[0]).reads), Not(Contains(tied)));
  EXPECT_THAT(names_of(program, op_named(program, writers[1]).reads), Contains(tied));
  EXPECT_EQ(ready_names(program).back(), tied);
  EXPECT_EQ(ready_names(program).size(), 148U);
}

TEST(ZooWorkTest, ComputesWeightGradientsBeforeTheInputsAndNoInputGradientForData) {
  const Program program = program_of("mlp");
  std::vector<std::string> backward;
  for (const Op& op : program.ops) {
    if (op.phase == Phase::Backward) backward.push_back(op.name);
  }
  EXPECT_THAT(backward, ElementsAre("loss.backward", "fc4.backward.weight", "fc4.backward.input",
                                    "relu3.backward", "fc3.backward.weight", "fc3.backward.input",
                                    "relu2.backward", "fc2.backward.weight", "fc2.backward.input",
                                    "relu1.backward", "fc1.backward.weight"));
  const Op& op = op_named(program, "fc4.backward.weight");
  EXPECT_THAT(names_of(program, op.reads), ElementsAre("fc4.out.grad", "relu3.out"));
  EXPECT_THAT(names_of(program, op.writes), ElementsAre("fc4.bias.grad", "fc4.weight.grad"));
}

// The shortcut of a block and its last norm share the gradient of the sum; conv1 then adds to it.
TEST(ZooWorkTest, AccumulatesIntoTheGradientOfAResidualSum) {
  const Program program = program_of("resnet18");
  EXPECT_THAT(names_of(program, op_named(program, "layer1.1.bn2.backward").reads),
              Contains("layer1.1.add.out.grad"));
  const Op& op = op_named(program, "layer1.1.conv1.backward.input");
  EXPECT_THAT(names_of(program, op.writes), ElementsAre("layer1.1.add.out.grad"));
  EXPECT_THAT(names_of(program, op.reads), Contains("layer1.1.add.out.grad"));
}

// ---- PyTorch's buckets -----------------------------------------------------------------------

struct Bucket {
  std::int64_t elements = 0;
  int parameters = 0;
  friend bool operator==(const Bucket&, const Bucket&) = default;
};
// DistributedDataParallel: a bucket closes once its bytes reach the limit; 1 MiB, then 25 MiB.
std::vector<Bucket> pytorch_buckets(const Program& program) {
  std::vector<Bucket> buckets;
  Bytes filled;
  for (const schedule::OwedGradient& owed : schedule::owed_gradients(program)) {
    if (filled == Bytes(0)) buckets.emplace_back();
    buckets.back().elements += owed.numel;
    ++buckets.back().parameters;
    filled += owed.bytes;
    if (filled >= (buckets.size() == 1 ? mib(1) : mib(25))) filled = Bytes(0);
  }
  return buckets;
}

// As in a profile of ResNet-50 under PyTorch. Bucket 0 is the classifier: 2048 x 1000 + 1000.
TEST(ZooWorkTest, FillsTheBucketsThatPyTorchFillsForResNet50) {
  EXPECT_THAT(pytorch_buckets(program_of("resnet50")),
              ElementsAre(Bucket{2'049'000, 2}, Bucket{7'875'584, 15}, Bucket{6'563'840, 12},
                          Bucket{6'637'568, 51}, Bucket{2'431'040, 81}));
}

// 2052000, 28852224 and 15853824 bytes.
TEST(ZooWorkTest, FillsTheBucketsThatPyTorchFillsForResNet18) {
  const std::vector<Bucket> buckets = pytorch_buckets(program_of("resnet18"));
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(4 * buckets[0].elements, 2'052'000);
  EXPECT_EQ(4 * buckets[1].elements, 28'852'224);
  EXPECT_EQ(4 * buckets[2].elements, 15'853'824);
}

// ---- work ------------------------------------------------------------------------------------

// Published multiply-adds of one image: torchvision's "_ops" of each set of weights, and timm's
// results for Inception-v4 at 299 x 299. They count a few operations besides the products.
TEST(ZooWorkTest, NeedsThePublishedMultiplyAddsPerImage) {
  const std::map<std::string, double> published{
      {"resnet18", 1.814},  {"resnet50", 4.089},    {"resnet152", 11.514},  {"vgg16", 15.47},
      {"googlenet", 1.498}, {"densenet201", 4.291}, {"inception_v4", 12.28}};
  for (const auto& [name, giga] : published) {
    const double ours = giga_mac(zoo_program(name, {.batch = 1}), Phase::Forward);
    EXPECT_NEAR(ours, giga, 0.01 * giga) << name;
  }
}

// Forward FLOP per token: 2 per weight of every matrix, output layer included, and attention
// 2 x 2 x s x d per layer (scores and context).
// GPT-2: matrices 12 x 12 x 768^2 + 50257 x 768 = 123532032; 2 x that + 12 x 4 x 1024 x 768 =
// 284812800 FLOP per token.
TEST(ZooWorkTest, NeedsTwoFlopPerWeightAndTokenBesideAttention) {
  const double gpt2 = giga_mac(zoo_program("gpt2", {.batch = 2, .sequence = 1024}), Phase::Forward);
  EXPECT_NEAR(2 * gpt2, 2 * 1024 * 0.2848128, 1e-6);
  // Llama-2-7B: matrices 32 x (4 x 4096^2 + 3 x 4096 x 11008) + 32000 x 4096 = 6607077376;
  // attention 32 x 4 x 4096 x 4096 = 2147483648.
  const double llama = giga_mac(program_of("llama2_7b"), Phase::Forward);
  EXPECT_NEAR(2 * llama, 4096 * (2 * 6.607077376 + 2.147483648), 1e-3);
}

// As a product of the zoo in f32 is.
GemmWork in_tf32(GemmWork work) {
  work.operands = schedule::Operands::Tf32;
  return work;
}

TEST(ZooWorkTest, MultipliesF32InTensorCores) {
  const auto product_of = [](schedule::DType dtype) {
    const Program program = zoo_program("resnet50", {.batch = 2, .dtype = dtype});
    return std::get<GemmWork>(op_named(program, "fc.forward").work).operands;
  };
  EXPECT_EQ(product_of(schedule::DType::F32), schedule::Operands::Tf32);
  EXPECT_EQ(product_of(schedule::DType::BF16), schedule::Operands::Own);
}

// 512 tokens x 2 of 8 experts: 128 rows each, and so 12.9e9 active parameters, as published.
TEST(ZooWorkTest, SendsAQuarterOfTheTokensToEachExpertOfMixtral) {
  const Program program = zoo_program("mixtral_8x7b", {.batch = 1, .sequence = 512});
  const Op& op = op_named(program, "model.layers.0.block_sparse_moe.experts.3.w1.forward");
  EXPECT_EQ(std::get<GemmWork>(op.work), in_tf32({.m = 128, .n = 14336, .k = 4096}));
  double weights = 0;
  for (const Op& each : program.ops) {
    const bool attention = each.name.find("scores") != std::string::npos ||
                           each.name.find("context") != std::string::npos;
    if (each.phase == Phase::Forward && std::holds_alternative<GemmWork>(each.work) && !attention) {
      weights += each.flop().count() / 2 / 512;
    }
  }
  EXPECT_NEAR(weights + 32000 * 4096, 12.88e9, 0.01e9);
}

// 32 x 32 products of 2048 x 2048 x 128 per layer: grouped-query attention saves none of them.
TEST(ZooWorkTest, ComputesAttentionForEveryHeadOfEverySample) {
  const Program program = zoo_program("llama2_70b", {.batch = 2, .sequence = 2048});
  const Op& scores = op_named(program, "model.layers.0.self_attn.scores.forward");
  EXPECT_EQ(std::get<GemmWork>(scores.work),
            in_tf32({.m = 2048, .n = 2048, .k = 128, .count = 128}));
  const Op& context = op_named(program, "model.layers.0.self_attn.context.forward");
  EXPECT_EQ(std::get<GemmWork>(context.work),
            in_tf32({.m = 2048, .n = 128, .k = 2048, .count = 128}));
  const Op& keys = op_named(program, "model.layers.0.self_attn.k_proj.forward");
  EXPECT_EQ(std::get<GemmWork>(keys.work), in_tf32({.m = 4096, .n = 1024, .k = 8192}));
}

// conv1 of ResNet: 112 x 112 pixels of 64 channels from windows of 3 x 7 x 7.
TEST(ZooWorkTest, CountsAConvolutionAsTheProductItImplies) {
  const Program program = zoo_program("resnet50", {.batch = 2});
  EXPECT_EQ(std::get<GemmWork>(op_named(program, "conv1.forward").work),
            in_tf32({.m = 2 * 112 * 112, .n = 64, .k = 147}));
  EXPECT_EQ(std::get<GemmWork>(op_named(program, "conv1.backward.weight").work),
            in_tf32({.m = 64, .n = 147, .k = 2 * 112 * 112}));
}

// One image after conv1: 64 x 112 x 112 x 4 bytes = 3211264. ReLU: read and write forward; read
// gradient and output, write gradient backward. Batch norm: twice input, once output forward, with
// weight and bias 2 x 256 bytes twice; backward reads gradient, input and weight twice and writes
// the input's gradient and two of 256 bytes: 4 x 256 in all.
TEST(ZooWorkTest, MovesEachOperandOfAMemoryBoundLayerAsOftenAsItsKernelDoes) {
  const Program program = zoo_program("resnet50", {.batch = 1});
  const Bytes map(3'211'264);
  EXPECT_EQ(op_named(program, "relu.forward").bytes(), 2 * map);
  EXPECT_EQ(op_named(program, "relu.backward").bytes(), 3 * map);
  EXPECT_EQ(op_named(program, "bn1.forward").bytes(), 3 * map + Bytes(4 * 256));
  EXPECT_EQ(op_named(program, "bn1.backward").bytes(), 5 * map + Bytes(4 * 256));
}

// The norm before attention reads x and the output's gradient twice, adds to the gradient of the
// residual stream (one read, one write): 6 maps of 1024 x 768 x 4 bytes, besides weight and bias.
TEST(ZooWorkTest, ReadsAnAccumulatedGradientOnce) {
  const Program program = zoo_program("gpt2", {.batch = 1, .sequence = 1024});
  const Bytes map(1024 * 768 * 4);
  EXPECT_EQ(op_named(program, "transformer.h.3.ln_1.backward").bytes(),
            6 * map + Bytes(4 * 768 * 4));
}

// SGD with momentum: read gradient, parameter, momentum; write parameter, momentum; 5 x 4 bytes.
TEST(ZooWorkTest, MovesTwentyBytesPerParameterInTheUpdate) {
  const Program program = program_of("resnet18");
  Bytes moved;
  Flop flop;
  for (const Op& op : program.ops) {
    if (op.phase != Phase::Optimizer) continue;
    moved += op.bytes();
    flop += op.flop();
  }
  EXPECT_EQ(moved, Bytes(20 * 11'689'512));
  EXPECT_EQ(flop, Flop(4.0 * 11'689'512));
}

}  // namespace
}  // namespace dovetail::models

// The zoo's steps do the published amount of work, in the order that the dataflow allows.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "models/networks/program.h"
#include "models/networks/zoo.h"
#include "schedule/program.h"
#include "tests/models/networks/zoo_queries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
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

// Data flows input_norm q k v o post_norm gate up down; backward reverses the flow.
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

TEST(ZooWorkTest, ReadiesTheRouterBehindTheStackedExperts) {
  const Program program = program_of("mixtral_8x7b");
  const std::vector<std::string> ready = ready_names(program);
  const std::string moe = "model.layers.31.mlp.";
  EXPECT_EQ(ready[2], moe + "experts.down_proj.weight.grad");
  EXPECT_EQ(ready[3], moe + "experts.up_proj.weight.grad");
  EXPECT_EQ(ready[4], moe + "experts.gate_proj.weight.grad");
  EXPECT_EQ(ready[5], moe + "gate.weight.grad");
}

// The output layer writes the shared gradient first; the embedding adds to it at the very end.
TEST(ZooWorkTest, AccumulatesTheTiedGradientOfGpt2AndOwesItLast) {
  const Program program = program_of("gpt2");
  const std::string tied = "transformer.wte.weight.grad";
  std::vector<std::string> writers;
  for (const Op& op : program.ops) {
    if (std::ranges::count(names_of(program, op.writes), tied) > 0) writers.push_back(op.name);
  }
  EXPECT_THAT(writers, ElementsAre("lm_head.backward", "transformer.wte.backward"));
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

// Forward FLOP per token of products with weights: 2 per weight of every matrix, output layer included; attention's are in a kernel of
// their own. GPT-2: 12 x 12 x 768^2 + 50257 x 768. Llama-2-7B: 32 x (4 x 4096^2 + 3 x 4096 x 11008) + 32000 x 4096.
TEST(ZooWorkTest, NeedsTwoFlopPerWeightAndToken) {
  const double gpt2 = giga_mac(zoo_program("gpt2", {.batch = 2, .sequence = 1024}), Phase::Forward);
  EXPECT_NEAR(gpt2, 2 * 1024 * 0.123532032, 1e-6);
  const double llama = giga_mac(program_of("llama2_7b"), Phase::Forward);
  EXPECT_NEAR(llama, 4096 * 6.607077376, 1e-3);
}

// One answer: what a workload's ops compute is what the job's do, op for op finer.
TEST(ZooWorkTest, ComputesWhatTheJobOfTheSameNameDoes) {
  for (const char* const name : {"gpt2", "llama2_7b", "mixtral_8x7b"}) {
    const ZooOptions options{.batch = 2, .dtype = schedule::DType::BF16, .world_size = 4};
    const Program finer = zoo_program(name, options);
    const Program job = jobs::program_of(*zoo_job(name, options));
    for (const Phase phase : {Phase::Forward, Phase::Backward, Phase::Optimizer}) {
      const auto sums_of = [&](const Program& program) {
        std::tuple<std::size_t, Bytes, double> sums;
        for (const Op& op : program.ops) {
          if (op.phase != phase) continue;
          std::get<0>(sums) += schedule::kernels_of(op.work).size();
          std::get<1>(sums) += op.bytes();
          std::get<2>(sums) += op.flop().count();
        }
        return sums;
      };
      const auto [kernels, bytes, flop] = sums_of(finer);
      const auto [job_kernels, job_bytes, job_flop] = sums_of(job);
      EXPECT_EQ(kernels, job_kernels) << name;
      EXPECT_EQ(bytes, job_bytes) << name;
      EXPECT_NEAR(flop, job_flop, 1e-12 * job_flop) << name;
    }
    EXPECT_EQ(parameter_count(finer), parameter_count(job)) << name;
  }
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

// 512 tokens x 2 of 8 experts: 128 rows each, in one product of all.
TEST(ZooWorkTest, SendsAQuarterOfTheTokensToEachExpertOfMixtral) {
  const Program program = zoo_program("mixtral_8x7b", {.batch = 1, .sequence = 512});
  const Op& op = op_named(program, "model.layers.0.mlp.experts.gate_up_proj.forward");
  EXPECT_EQ(std::get<GemmWork>(op.work),
            in_tf32({.m = 128, .n = 2 * 14336, .k = 4096, .count = 8}));
}

// conv1 of ResNet: 112 x 112 pixels of 64 channels from windows of 3 x 7 x 7, which overlap: all of the image is read once. A window of one
// pixel with a stride touches a quarter of the image, whose gradient is written whole.
TEST(ZooWorkTest, CountsAConvolutionAsTheProductItImplies) {
  const Program program = zoo_program("resnet50", {.batch = 2});
  schedule::Convolution whole{
      .moved = 2 * 3 * 224 * 224 + 64 * 147 + 2 * 112 * 112 * 64, .channels = 3, .strided = true};
  EXPECT_EQ(std::get<GemmWork>(op_named(program, "conv1.forward").work),
            in_tf32({.m = 2 * 112 * 112, .n = 64, .k = 147, .convolution = whole}));
  whole.pass = schedule::ConvolutionPass::Weight;
  EXPECT_EQ(std::get<GemmWork>(op_named(program, "conv1.backward.weight").work),
            in_tf32({.m = 64, .n = 147, .k = 2 * 112 * 112, .convolution = whole}));
  const std::int64_t others = 512 * 256 + 2 * 28 * 28 * 512;
  const auto moved = [&](const char* op) {
    return std::get<GemmWork>(op_named(program, op).work).convolution->moved - others;
  };
  EXPECT_EQ(moved("layer2.0.downsample.0.forward"), 2 * 28 * 28 * 256);
  EXPECT_EQ(moved("layer2.0.downsample.0.backward.weight"), 2 * 28 * 28 * 256);
  EXPECT_EQ(moved("layer2.0.downsample.0.backward.input"), 2 * 56 * 56 * 256);
  EXPECT_EQ(op_named(program, "conv1.forward").bytes(), Bytes(4 * whole.moved));
}

// One image after conv1: 64 x 112 x 112 x 4 bytes = 3211264. ReLU: read and write forward; read
// gradient and output, write gradient backward. Batch norm: input and output forward, with
// weight and bias 2 x 256 bytes; backward reads gradient, input and weight and writes the input's gradient and two of 256 bytes. The
// largest of 3 x 3: 56 x 56 of them, and where each was.
TEST(ZooWorkTest, MovesEachOperandOfAMemoryBoundLayerAsOftenAsItsKernelDoes) {
  const Program program = zoo_program("resnet50", {.batch = 1});
  const Bytes map(3'211'264);
  EXPECT_EQ(op_named(program, "relu.forward").bytes(), 2 * map);
  EXPECT_EQ(op_named(program, "maxpool.forward").bytes(), map + Bytes((4 + 8) * 64 * 56 * 56));
  EXPECT_EQ(op_named(program, "maxpool.backward").bytes(), map + Bytes((4 + 8) * 64 * 56 * 56));
  EXPECT_EQ(op_named(program, "relu.backward").bytes(), 3 * map);
  EXPECT_EQ(op_named(program, "bn1.forward").bytes(), 2 * map + Bytes(2 * 256));
  EXPECT_EQ(op_named(program, "bn1.backward").bytes(), 3 * map + Bytes(3 * 256));
}

// Weights and gradients stay f32, each weight is cast for its product and each gradient back; the image is cast once. Activations have two
// bytes.
TEST(ZooWorkTest, AutocastComputesInHalfAndKeepsWeightsWhole) {
  const Program plain = zoo_program("resnet50", {.batch = 1});
  const Program program = zoo_program("resnet50", {.batch = 1, .autocast = jobs::Autocast::Bf16});
  ASSERT_EQ(program.ops.size(), plain.ops.size());
  for (const schedule::Tensor& tensor : program.tensors)
    EXPECT_EQ(tensor.dtype, tensor.kind == schedule::TensorKind::Activation ? schedule::DType::BF16
                                                                            : schedule::DType::F32);
  const auto casts = [&](const char* op) {
    std::vector<Bytes> bytes;
    for (const schedule::Kernel& kernel : schedule::kernels_of(op_named(program, op).work)) {
      if (const auto* cast = std::get_if<MemoryWork>(&kernel)) bytes.push_back(cast->bytes);
    }
    return bytes;
  };
  const Bytes weight(6 * 64 * 147);
  EXPECT_EQ(casts("conv1.forward"), (std::vector{Bytes(6 * 3 * 224 * 224), weight}));
  EXPECT_EQ(casts("conv1.backward.weight"), std::vector{weight});
  EXPECT_EQ(casts("layer1.0.conv1.backward.input").size(), 1);  // the sum of two gradients
  EXPECT_EQ(op_named(program, "relu.forward").dtype, schedule::DType::BF16);
  EXPECT_EQ(op_named(program, "conv1.weight.update").bytes(), Bytes(20 * 64 * 147));
  EXPECT_THROW(
      zoo_program("resnet50", {.dtype = schedule::DType::BF16, .autocast = jobs::Autocast::Bf16}),
      InputError);
  EXPECT_THROW(zoo_program("bert_base", {.autocast = jobs::Autocast::Bf16}), InputError);
}

TEST(ZooWorkTest, AdamMovesTwoMoments) {
  const Program program = zoo_program("resnet18", {.optimizer = jobs::Optimizer::Adam});
  EXPECT_EQ(op_named(program, "conv1.weight.update").bytes(), Bytes(28 * 64 * 147));
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

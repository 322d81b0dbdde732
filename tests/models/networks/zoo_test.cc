// The zoo holds what the published networks hold: parameters, their order, and the work of a step.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo.h"

#include "base/error.h"
#include "schedule/program.h"
#include "tests/models/networks/zoo_queries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace dovetail::models {
namespace {

using schedule::GemmWork;
using schedule::Op;
using schedule::Phase;
using schedule::Program;
using schedule::Tensor;
using schedule::TensorKind;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- every model -----------------------------------------------------------------------------

struct Published {
  const char* name;
  std::int64_t parameters;
  std::size_t tensors;
};
// Torchvision: "num_params" of its weights (GoogLeNet: parameters() once the auxiliary heads are
// gone). Tensors: 3 per convolution with batch norm and 2 for the classifier, so ResNet-50 has 53 x
// 3
// + 2, GoogLeNet 57 x 3 + 2, Inception-v4 149 x 3 + 2; DenseNet-201 has 200 convolutions, 201 batch
// norms and 2. Text models: see the formulas further down.
constexpr Published kPublished[] = {
    {"resnet18", 11'689'512, 62},
    {"resnet50", 25'557'032, 161},
    {"resnet152", 60'192'808, 467},
    {"vgg16", 138'357'544, 32},
    {"googlenet", 6'624'904, 173},
    {"inception_v4", 42'679'816, 449},
    {"densenet201", 20'013'928, 604},
    {"bert_base", 109'482'240, 199},
    {"bert_large", 335'141'888, 391},
    {"gpt2", 124'439'808, 148},
    {"gpt2_medium", 354'823'168, 292},
    {"gpt2_large", 774'030'080, 436},
    {"gpt2_xl", 1'557'611'200, 580},
    {"llama2_7b", 6'738'415'616, 291},
    {"llama2_70b", 68'976'648'192, 723},
    {"mixtral_8x7b", 46'702'792'704, 323},
    {"mlp", 7'912'458, 8},
};

class EveryModelTest : public ::testing::TestWithParam<Published> {};
INSTANTIATE_TEST_SUITE_P(Zoo, EveryModelTest, ::testing::ValuesIn(kPublished),
                         [](const auto& model) { return std::string(model.param.name); });

TEST_P(EveryModelTest, HasNoProblems) {
  EXPECT_THAT(schedule::problems(program_of(GetParam().name)), ElementsAre());
}

TEST_P(EveryModelTest, HasThePublishedParameters) {
  const Program program = program_of(GetParam().name);
  EXPECT_EQ(parameter_count(program), GetParam().parameters);
  EXPECT_EQ(parameters_of(program).size(), GetParam().tensors);
}

TEST_P(EveryModelTest, IsListedWithItsTrueCounts) {
  const std::vector<ZooEntry> entries = zoo_entries();
  const auto entry = std::ranges::find(entries, GetParam().name, &ZooEntry::name);
  ASSERT_NE(entry, entries.end());
  EXPECT_EQ(entry->parameters, GetParam().parameters);
  EXPECT_EQ(entry->gradients, static_cast<std::int64_t>(GetParam().tensors));
  EXPECT_FALSE(entry->source.empty());
}

TEST_P(EveryModelTest, OwesEachParametersGradientOnceAsAnAverageOverAllRanks) {
  const Program program = zoo_program(GetParam().name, {.world_size = 4});
  ASSERT_EQ(program.groups.size(), 1U);
  EXPECT_EQ(program.groups[0].name, "dp");
  EXPECT_THAT(program.groups[0].ranks, ElementsAre(Rank{0}, Rank{1}, Rank{2}, Rank{3}));
  std::set<std::string> expected;
  for (const Tensor* parameter : parameters_of(program)) expected.insert(parameter->name + ".grad");
  std::set<std::string> owed;
  for (const schedule::Reduction& reduction : program.reductions) {
    EXPECT_EQ(reduction.op, schedule::ReduceOp::Average);
    EXPECT_EQ(reduction.group, program.groups[0].id);
    EXPECT_EQ(program.tensor(reduction.gradient).kind, TensorKind::Gradient);
    owed.insert(program.tensor(reduction.gradient).name);
  }
  EXPECT_EQ(owed, expected);
  EXPECT_EQ(program.reductions.size(), expected.size());
}

TEST_P(EveryModelTest, ListsReductionsInReadyOrder) {
  const Program program = program_of(GetParam().name);
  std::vector<std::string> listed;
  for (const schedule::Reduction& reduction : program.reductions) {
    listed.push_back(program.tensor(reduction.gradient).name);
  }
  EXPECT_EQ(ready_names(program), listed);
}

TEST_P(EveryModelTest, UpdatesParametersInReadyOrder) {
  const Program program = program_of(GetParam().name);
  std::vector<std::string> updated;
  for (const Op& op : program.ops) {
    if (op.phase != Phase::Optimizer) continue;
    ASSERT_EQ(op.writes.size(), 1U);
    const Tensor& parameter = program.tensor(op.writes[0]);
    EXPECT_EQ(op.name, parameter.name + ".update");
    EXPECT_THAT(names_of(program, op.reads), ElementsAre(parameter.name + ".grad", parameter.name));
    updated.push_back(parameter.name + ".grad");
  }
  EXPECT_EQ(updated, ready_names(program));
}

// Layer by layer on a tape; else a job's step, whose tests hold it (program_test.cc).
bool is_taped(const std::string& name) { return !zoo_job(name, {}); }

// The chain rule, checked from outside: whatever a layer reads forward, parameter or activation,
// gets a contribution to its gradient from the backward ops of that layer. A layer without backward
// ops is a residual sum, and its inputs' gradients are that of its output.
TEST_P(EveryModelTest, PropagatesToEverythingThatAForwardOpReads) {
  if (!is_taped(GetParam().name)) GTEST_SKIP() << "a job's step is a chain";
  const Program program = program_of(GetParam().name);
  std::map<std::string, std::set<TensorId>> written;  // by layer
  std::map<std::string, TensorId> id;
  for (const Tensor& tensor : program.tensors) id[tensor.name] = tensor.id;
  for (const Op& op : program.ops) {
    if (op.phase != Phase::Backward) continue;
    written[op.name.substr(0, op.name.find(".backward"))].insert(op.writes.begin(),
                                                                 op.writes.end());
  }
  std::map<TensorId, TensorId> shared;
  for (auto op = program.ops.rbegin(); op != program.ops.rend(); ++op) {
    if (op->phase != Phase::Forward) continue;
    const std::string layer = op->name.substr(0, op->name.find(".forward"));
    const auto gradient_of = [&](TensorId tensor) {
      const auto alias = shared.find(tensor);
      if (alias != shared.end()) return alias->second;
      const auto own = id.find(program.tensor(tensor).name + ".grad");
      EXPECT_NE(own, id.end()) << program.tensor(tensor).name << " has no gradient";
      return own == id.end() ? TensorId{} : own->second;
    };
    for (const TensorId read : op->reads) {
      if (!written.contains(layer)) {
        shared[read] = gradient_of(op->writes.at(0));
      } else {
        EXPECT_TRUE(written[layer].contains(gradient_of(read)))
            << op->name << " reads " << program.tensor(read).name;
      }
    }
  }
}

TEST_P(EveryModelTest, StartsBackwardOnlyFromTheLoss) {
  const Program program = program_of(GetParam().name);
  std::vector<std::string> starts;
  for (const Op& op : program.ops) {
    const auto is_gradient = [&](TensorId id) {
      return program.tensor(id).name.ends_with(".grad");
    };
    if (op.phase == Phase::Backward && std::ranges::none_of(op.reads, is_gradient)) {
      starts.push_back(op.name);
    }
  }
  EXPECT_THAT(starts, ElementsAre("loss.backward"));
}

// Twice the products of forward: one for the weights, one for the input. Missing is the input's
// product of the first layer of an image model, and both of the angles of positions; attention has both.
TEST_P(EveryModelTest, MultipliesTwiceAsMuchBackwardAsForwardButForTheFirstLayer) {
  const Program program = program_of(GetParam().name);
  const Op& first = program.ops.front();
  const double times = std::holds_alternative<GemmWork>(first.work) ? 1
                       : first.name == "model.embed_tokens.forward" ? 2
                                                                    : 0;
  const double missing = times * first.flop().count() / 2e9;
  EXPECT_NEAR(giga_mac(program, Phase::Backward), 2 * giga_mac(program, Phase::Forward) - missing,
              1e-6);
}

// ---- order of definition ---------------------------------------------------------------------

// PyTorch's first guess. Llama and Mixtral lie a stack of experts' matrices and norms where they are used.
TEST(ZooTest, MakesGradientsReadyInReverseOrderOfDefinition) {
  for (const Published& model : kPublished) {
    const std::string name = model.name;
    const Program program = program_of(name);
    std::vector<std::string> expected;
    for (const Tensor* parameter : parameters_of(program)) {
      expected.push_back(parameter->name + ".grad");
    }
    std::ranges::reverse(expected);
    EXPECT_EQ(ready_names(program), expected) << name;
  }
}

// ---- parameters by hand ----------------------------------------------------------------------

// A convolution with batch norm: k k in out + 2 out. Basic blocks: 2 x 3x3; the first block of
// stages 2 to 4 also has a 1x1 shortcut. Stem 3 -> 64 with 7x7; classifier 512 x 1000 + 1000.
TEST(ZooTest, CountsResNet18AsThePaperDoes) {
  std::int64_t count = 49 * 3 * 64 + 2 * 64 + 512 * 1000 + 1000;
  std::int64_t in = 64;
  for (const std::int64_t width : {64, 128, 256, 512}) {
    count += 9 * in * width + 3 * 9 * width * width + 4 * 2 * width;
    if (in != width) count += in * width + 2 * width;
    in = width;
  }
  EXPECT_EQ(count, 11'689'512);
  EXPECT_EQ(parameter_count(program_of("resnet18")), count);
}

// Dense layer on c channels: 2c + 128c + 2 x 128 + 9 x 128 x 32; transition: 2c + c c/2.
TEST(ZooTest, CountsDenseNet201AsThePaperDoes) {
  std::int64_t channels = 64;
  std::int64_t count = 49 * 3 * 64 + 2 * 64;
  for (const int layers : {6, 12, 48, 32}) {
    for (int i = 0; i < layers; ++i, channels += 32) {
      count += 2 * channels + 128 * channels + 2 * 128 + 9 * 128 * 32;
    }
    if (layers == 32) break;
    count += 2 * channels + channels * channels / 2;
    channels /= 2;
  }
  count += 2 * channels + channels * 1000 + 1000;
  EXPECT_EQ(count, 20'013'928);
  EXPECT_EQ(parameter_count(program_of("densenet201")), count);
}

// A block of GPT-2 or BERT on d channels: weights 3dd + dd + 4dd + 4dd = 12dd; biases 3d + d + 4d +
// d = 9d; two norms 4d. GPT-2 adds 50257d + 1024d and a norm; BERT adds (30522 + 512 + 2)d, a norm
// and the pooler dd + d.
TEST(ZooTest, CountsTransformersByTheirFormula) {
  const auto block = [](std::int64_t d) { return 12 * d * d + 13 * d; };
  EXPECT_EQ(12 * block(768) + 51281 * 768 + 2 * 768, 124'439'808);
  EXPECT_EQ(24 * block(1024) + 51281 * 1024 + 2 * 1024, 354'823'168);
  EXPECT_EQ(36 * block(1280) + 51281 * 1280 + 2 * 1280, 774'030'080);
  EXPECT_EQ(48 * block(1600) + std::int64_t{51281} * 1600 + 2 * 1600, 1'557'611'200);
  EXPECT_EQ(12 * block(768) + 31036 * 768 + 2 * 768 + 768 * 768 + 768, 109'482'240);
  EXPECT_EQ(24 * block(1024) + 31036 * 1024 + 2 * 1024 + 1024 * 1024 + 1024, 335'141'888);
}

// A block of Llama: q and o dd each, k and v d x kv each, gate, up and down d x f each, two norms
// of d. Embedding and output layer 32000d each, one last norm. Mixtral: eight MLPs and a router 8d.
TEST(ZooTest, CountsLlamaAndMixtralByTheirFormula) {
  const auto llama = [](std::int64_t layers, std::int64_t d, std::int64_t kv, std::int64_t f) {
    return layers * (2 * d * d + 2 * d * kv + 3 * d * f + 2 * d) + 2 * 32000 * d + d;
  };
  EXPECT_EQ(llama(32, 4096, 4096, 11008), 6'738'415'616);
  EXPECT_EQ(llama(80, 8192, 1024, 28672), 68'976'648'192);
  EXPECT_EQ(llama(32, 4096, 1024, 8 * 14336) + 32 * 8 * 4096, 46'702'792'704);
}

TEST(ZooTest, NamesParametersAsTheReferenceCodeDoes) {
  const auto ends = [](std::string_view model) {
    const Program program = program_of(model);
    const std::vector<const Tensor*> all = parameters_of(program);
    return std::vector<std::string>{all[0]->name, all[5]->name, all[all.size() - 2]->name};
  };
  EXPECT_THAT(ends("resnet50"), ElementsAre("conv1.weight", "layer1.0.bn1.bias", "fc.weight"));
  EXPECT_THAT(ends("vgg16"),
              ElementsAre("features.0.weight", "features.5.bias", "classifier.6.weight"));
  EXPECT_THAT(ends("googlenet"), ElementsAre("conv1.conv.weight", "conv2.bn.bias", "fc.weight"));
  EXPECT_THAT(ends("inception_v4"),
              ElementsAre("features.0.conv.weight", "features.1.bn.bias", "last_linear.weight"));
  EXPECT_THAT(ends("densenet201"),
              ElementsAre("features.conv0.weight", "features.denseblock1.denselayer1.conv1.weight",
                          "classifier.weight"));
  EXPECT_THAT(ends("bert_base"),
              ElementsAre("embeddings.word_embeddings.weight",
                          "encoder.layer.0.attention.self.query.weight", "pooler.dense.weight"));
  EXPECT_THAT(ends("gpt2"),
              ElementsAre("transformer.wte.weight", "transformer.h.0.attn.c_attn.bias",
                          "transformer.ln_f.weight"));
  EXPECT_THAT(ends("llama2_7b"),
              ElementsAre("model.embed_tokens.weight", "model.layers.0.self_attn.o_proj.weight",
                          "model.norm.weight"));
}

TEST(ZooTest, StoresMatricesOutByIn) {
  const auto shape = [](std::string_view model, const std::string& name) {
    const Program program = program_of(model);
    return std::ranges::find(program.tensors, name, &Tensor::name)->shape;
  };
  EXPECT_THAT(shape("gpt2", "transformer.h.0.attn.c_attn.weight"), ElementsAre(2304, 768));
  EXPECT_THAT(shape("bert_base", "encoder.layer.0.intermediate.dense.weight"),
              ElementsAre(3072, 768));
  EXPECT_THAT(shape("llama2_70b", "model.layers.0.self_attn.k_proj.weight"),
              ElementsAre(1024, 8192));
  EXPECT_THAT(shape("inception_v4", "features.4.branch1.1.conv.weight"), ElementsAre(64, 64, 1, 7));
}

// ---- options ---------------------------------------------------------------------------------

std::string error_of(std::string_view name, const ZooOptions& options) {
  try {
    static_cast<void>(zoo_program(name, options));
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ZooTest, ListsItsModelsInAStableOrder) {
  EXPECT_THAT(zoo_names(), ElementsAre("resnet18", "resnet50", "resnet152", "vgg16", "googlenet",
                                       "inception_v4", "densenet201", "bert_base", "bert_large",
                                       "gpt2", "gpt2_medium", "gpt2_large", "gpt2_xl", "llama2_7b",
                                       "llama2_70b", "mixtral_8x7b", "mlp"));
}

TEST(ZooTest, SuggestsTheNearestNameForAnUnknownModel) {
  EXPECT_EQ(error_of("resnet5O", {}), "unknown model \"resnet5O\"; did you mean \"resnet50\"?");
  EXPECT_THAT(error_of("x", {}), HasSubstr("known are resnet18 resnet50"));
}

TEST(ZooTest, RefusesOptionsThatAModelDoesNotTake) {
  EXPECT_EQ(error_of("resnet50", {.sequence = 128}),
            "resnet50: a sequence length was given, but the model takes no text");
  EXPECT_EQ(error_of("resnet50", {.batch = -1}),
            "resnet50: expected a batch of 1 to 1048576, found -1");
  EXPECT_EQ(error_of("mlp", {.world_size = 0}),
            "mlp: expected a world size of 1 to 1048576, found 0");
  // The position table of GPT-2 has 1024 rows, that of BERT 512; Llama has none.
  EXPECT_EQ(error_of("gpt2", {.sequence = 1025}),
            "gpt2: expected a sequence of 1 to 1024, found 1025");
  EXPECT_EQ(error_of("bert_base", {.sequence = 513}),
            "bert_base: expected a sequence of 1 to 512, found 513");
  EXPECT_EQ(error_of("llama2_7b", {.sequence = 8192}), "no error");
  EXPECT_THAT(error_of("llama2_7b", {.batch = 1 << 20}),
              HasSubstr("expected a number of tokens (batch x sequence) of 1 to 16777216"));
}

TEST(ZooTest, HalvesEveryGradientInHalfPrecision) {
  const Program program = zoo_program("bert_base", {.dtype = schedule::DType::BF16});
  Bytes owed;
  for (const schedule::OwedGradient& gradient : schedule::owed_gradients(program)) {
    EXPECT_EQ(gradient.dtype, schedule::DType::BF16);
    owed += gradient.bytes;
  }
  EXPECT_EQ(owed, Bytes(2 * 109'482'240));
}

TEST(ZooTest, ScalesTheProductsWithTheBatchAndLeavesTheGradientsAlone) {
  const Program one = zoo_program("vgg16", {.batch = 1});
  const Program four = zoo_program("vgg16", {.batch = 4});
  EXPECT_DOUBLE_EQ(giga_mac(four, Phase::Forward), 4 * giga_mac(one, Phase::Forward));
  EXPECT_EQ(parameter_count(four), parameter_count(one));
}

TEST(ZooTest, BuildsTheSameProgramEveryTime) {
  EXPECT_EQ(program_of("googlenet"), program_of("googlenet"));
  EXPECT_EQ(program_of("gpt2"), zoo_program("gpt2", {.batch = 8, .sequence = 1024}));
}

}  // namespace
}  // namespace dovetail::models

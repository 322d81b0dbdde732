// The models that a job can name, by the shapes of their public config.json files.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/error.h"
#include "base/json_reader.h"
#include "models/networks/model.h"

namespace dovetail::jobs {
namespace {

struct Dense {
  std::string name;
  std::int64_t layers, width, heads, key_value_heads, inner;
  std::int64_t published;
};

Model llama2(const Dense& d) {
  return {.name = d.name,
          .layers = d.layers,
          .width = d.width,
          .vocabulary = 32'000,
          .inner = d.inner,
          .attention = {.heads = d.heads,
                        .key_value_heads = d.key_value_heads,
                        .head_dim = d.width / d.heads},
          .sequence = 4096,
          .published = d.published,
          .source = "meta-llama/Llama-2"};
}

Model llama3(const Dense& d) {
  Model model = llama2(d);
  model.vocabulary = 128'256;
  model.sequence = 8192;
  model.source = "meta-llama/Llama-3.1";
  model.written.scale = RotaryScale{.kind = RotaryKind::Llama3, .base = 500'000, .factor = 8};
  return model;
}

// Llama 3.2's text models.
Model llama3_tied(const Dense& d) {
  Model model = llama3(d);
  model.tied = true;
  model.source = "meta-llama/Llama-3.2";
  model.written.scale->factor = 32;
  return model;
}

// Qwen2 of these sizes has the same shapes.
Model qwen2(const Dense& d, bool tied) {
  Model model = llama2(d);
  model.vocabulary = tied ? 151'936 : 152'064;
  model.tied = tied;
  model.attention.in_bias = true;
  model.sequence = 8192;
  model.source = "Qwen/Qwen2.5";
  model.written.scale = RotaryScale{.base = 1'000'000};
  return model;
}

Model mistral(const Dense& d) {
  Model model = llama2(d);
  model.attention.window = 4096;
  model.attention.window_step = 1;
  model.source = "mistralai/Mistral-7B-v0.1";
  return model;
}

Model qwen3(const Dense& d, bool tied) {
  Model model = llama2(d);
  model.vocabulary = 151'936;
  model.tied = tied;
  model.attention.head_dim = 128;
  model.attention.normed_heads = true;
  model.source = "Qwen/Qwen3";
  model.written.scale = RotaryScale{.base = 1'000'000};
  return model;
}

Model qwen3_experts(const Dense& d) {
  Model model = qwen3(d, false);
  model.inner = 0;
  model.experts = Experts{.count = 128, .per_token = 8, .inner = d.inner};
  model.written.router.normalized = true;
  return model;
}

Model mixtral(const Dense& d, std::int64_t vocabulary) {
  Model model = llama2(d);
  model.vocabulary = vocabulary;
  model.inner = 0;
  model.experts = Experts{.count = 8, .per_token = 2, .inner = d.inner};
  model.written.router = {.normalized = true, .wide_weights = true};
  model.source = "mistralai/Mixtral";
  model.written.scale = RotaryScale{.base = 1'000'000};
  return model;
}

Model gpt_oss(const std::string& name, std::int64_t layers, std::int64_t experts,
              std::int64_t published) {
  return {.name = name,
          .layers = layers,
          .width = 2880,
          .vocabulary = 201'088,
          .inner = 0,
          .attention = {.heads = 64,
                        .key_value_heads = 8,
                        .head_dim = 64,
                        .in_bias = true,
                        .out_bias = true,
                        .sinks = true,
                        .window = 128},
          .experts = Experts{.count = experts, .per_token = 4, .inner = 2880, .biases = true},
          .written = {.rotary = Rotary::HalfTables,
                      .scale = RotaryScale{.kind = RotaryKind::Yarn, .base = 150'000, .factor = 32},
                      .router = {.score = Score::SoftmaxOfChosen},
                      .clamped_experts = true,
                      .norm_scales_wide = true},
          .sequence = 4096,
          .published = published,
          .source = "openai/gpt-oss"};
}

Model deepseek_v3() {
  return {
      .name = "deepseek_v3",
      .layers = 61,
      .width = 7168,
      .vocabulary = 129'280,
      .inner = 18'432,
      .attention = {.heads = 128,
                    .key_value_heads = 128,
                    .head_dim = 192,
                    .latent = Latent{.query_rank = 1536,
                                     .key_value_rank = 512,
                                     .rope_dim = 64,
                                     .nope_dim = 128,
                                     .value_dim = 128}},
      .experts =
          Experts{
              .count = 256, .per_token = 8, .inner = 2048, .shared_inner = 2048, .first_layer = 3},
      .written = {.rotary = Rotary::Interleaved,
                  .scale = RotaryScale{.kind = RotaryKind::Yarn, .factor = 40},
                  .router = {.score = Score::Sigmoid,
                             .wide = true,
                             .normalized = true,
                             .scaled = true,
                             .factor = 2.5,
                             .wide_weights = true,
                             .groups = 8,
                             .groups_chosen = 4,
                             .group_best = 2}},
      .sequence = 4096,
      .published = 671'026'404'352,
      .source = "deepseek-ai/DeepSeek-V3 without its multi-token prediction layer"};
}

Model deepseek_v2() {
  Model model = deepseek_v3();
  model.name = "deepseek_v2";
  model.layers = 60;
  model.width = 5120;
  model.vocabulary = 102'400;
  model.inner = 12'288;
  model.experts =
      Experts{.count = 160, .per_token = 6, .inner = 1536, .shared_inner = 3072, .first_layer = 1};
  model.written = {.rotary = Rotary::Complex,
                   .scale = RotaryScale{.kind = RotaryKind::Yarn, .factor = 40},
                   .router = {.wide = true,
                              .scaled = true,
                              .factor = 16,
                              .wide_weights = true,
                              .groups = 8,
                              .groups_chosen = 3}};
  model.published = 235'741'434'880;
  model.source = "deepseek-ai/DeepSeek-V2";
  return model;
}

// As torchvision has them: layer norms, biases, two matrices, a class token.
Model vit(const Dense& d, std::int64_t patch) {
  return {.name = d.name,
          .layers = d.layers,
          .width = d.width,
          .inner = d.inner,
          .gated = false,
          .mlp_bias = true,
          .norm = Norm::Layer,
          .attention = {.heads = d.heads,
                        .key_value_heads = d.heads,
                        .head_dim = d.width / d.heads,
                        .in_bias = true,
                        .out_bias = true,
                        .causal = false},
          .patches = Patches{.patch = patch},
          .sequence = 224 / patch * (224 / patch) + 1,
          .published = d.published,
          .source = "torchvision/models/vision_transformer.py"};
}

// In transformers' words: gelu_new written out, one product for queries, keys and values.
Model gpt2(const Dense& d) {
  return {.name = d.name,
          .layers = d.layers,
          .width = d.width,
          .vocabulary = 50'257,
          .inner = d.inner,
          .gated = false,
          .mlp_bias = true,
          .gelu_new = true,
          .joined_qkv = true,
          .tied = true,
          .positions = 1024,
          .norm = Norm::Layer,
          .attention = {.heads = d.heads,
                        .key_value_heads = d.heads,
                        .head_dim = d.width / d.heads,
                        .in_bias = true,
                        .out_bias = true},
          .sequence = 1024,
          .published = d.published,
          .source = "openai-community/gpt2"};
}

Model gpt3() {
  return {.name = "gpt3_175b",
          .layers = 96,
          .width = 12'288,
          .vocabulary = 51'200,
          .inner = 4 * 12'288,
          .gated = false,
          .mlp_bias = true,
          .tied = true,
          .positions = 2048,
          .norm = Norm::Layer,
          .attention = {.heads = 96,
                        .key_value_heads = 96,
                        .head_dim = 128,
                        .in_bias = true,
                        .out_bias = true},
          .sequence = 2048,
          .source = "arXiv 2005.14165, vocabulary as Megatron pads it"};
}

const std::vector<Model>& all_models() {
  static const std::vector<Model> kAll = {
      llama2({"llama2_7b", 32, 4096, 32, 32, 11'008, 6'738'415'616}),
      llama2({"llama2_13b", 40, 5120, 40, 40, 13'824, 13'015'864'320}),
      llama2({"llama2_70b", 80, 8192, 64, 8, 28'672, 68'976'648'192}),
      llama3({"llama3_8b", 32, 4096, 32, 8, 14'336, 8'030'261'248}),
      llama3({"llama3_70b", 80, 8192, 64, 8, 28'672, 70'553'706'496}),
      llama3({"llama3_405b", 126, 16'384, 128, 8, 53'248, 405'853'388'800}),
      llama3_tied({"llama3.2_1b", 16, 2048, 32, 8, 8192, 1'235'814'400}),
      llama3_tied({"llama3.2_3b", 28, 3072, 24, 8, 8192, 3'212'749'824}),
      mistral({"mistral_7b", 32, 4096, 32, 8, 14'336, 7'241'732'096}),
      qwen2({"qwen2.5_0.5b", 24, 896, 14, 2, 4864, 494'032'768}, true),
      qwen2({"qwen2.5_1.5b", 28, 1536, 12, 2, 8960, 1'543'714'304}, true),
      qwen2({"qwen2.5_3b", 36, 2048, 16, 2, 11'008, 3'085'938'688}, true),
      qwen2({"qwen2.5_7b", 28, 3584, 28, 4, 18'944, 7'615'616'512}, false),
      qwen2({"qwen2.5_14b", 48, 5120, 40, 8, 13'824, 14'770'033'664}, false),
      qwen2({"qwen2.5_32b", 64, 5120, 40, 8, 27'648, 32'763'876'352}, false),
      qwen2({"qwen2.5_72b", 80, 8192, 64, 8, 29'568, 72'706'203'648}, false),
      qwen3({"qwen3_0.6b", 28, 1024, 16, 8, 3072, 596'049'920}, true),
      qwen3({"qwen3_1.7b", 28, 2048, 16, 8, 6144, 1'720'574'976}, true),
      qwen3({"qwen3_4b", 36, 2560, 32, 8, 9728, 4'022'468'096}, true),
      qwen3({"qwen3_8b", 36, 4096, 32, 8, 12'288, 8'190'735'360}, false),
      qwen3({"qwen3_14b", 40, 5120, 40, 8, 17'408, 14'768'307'200}, false),
      qwen3({"qwen3_32b", 64, 5120, 64, 8, 25'600, 32'762'123'264}, false),
      qwen3_experts({"qwen3_30b_a3b", 48, 2048, 32, 4, 768, 30'532'122'624}),
      qwen3_experts({"qwen3_235b_a22b", 94, 4096, 64, 4, 1536, 235'093'634'560}),
      mixtral({"mixtral_8x7b", 32, 4096, 32, 8, 14'336, 46'702'792'704}, 32'000),
      mixtral({"mixtral_8x22b", 56, 6144, 48, 8, 16'384, 140'630'071'296}, 32'768),
      gpt_oss("gpt_oss_20b", 24, 32, 20'914'757'184),
      gpt_oss("gpt_oss_120b", 36, 128, 116'829'156'672),
      deepseek_v2(),
      deepseek_v3(),
      gpt2({"gpt2", 12, 768, 12, 12, 3072, 124'439'808}),
      gpt2({"gpt2_medium", 24, 1024, 16, 16, 4096, 354'823'168}),
      gpt2({"gpt2_large", 36, 1280, 20, 20, 5120, 774'030'080}),
      gpt2({"gpt2_xl", 48, 1600, 25, 25, 6400, 1'557'611'200}),
      gpt3(),
      vit({"vit_b16", 12, 768, 12, 12, 3072, 86'567'656}, 16),
      vit({"vit_l16", 24, 1024, 16, 16, 4096, 304'326'632}, 16),
      vit({"vit_h14", 32, 1280, 16, 16, 5120, 632'045'800}, 14),
  };
  return kAll;
}

}  // namespace

std::vector<std::string> known_model_names() {
  std::vector<std::string> names;
  for (const Model& model : all_models()) names.push_back(model.name);
  return names;
}

Model known_model(std::string_view name) {
  const auto found = std::ranges::find(all_models(), name, &Model::name);
  if (found != all_models().end()) return *found;
  const std::vector<std::string> known = known_model_names();
  const std::string nearest = nearest_word(name, known);
  std::string list;
  for (const std::string& one : known) list += one + ", ";
  throw InputError("job \"" + std::string(name) + "\": no such model" +
                   (nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?") +
                   "; expected one of " + list + "or the path of a config.json");
}

}  // namespace dovetail::jobs

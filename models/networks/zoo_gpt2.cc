// GPT-2 in four sizes as in Hugging Face's GPT2LMHeadModel.
//
// The output layer is tied: it multiplies by the embedding table `wte`. Its gradient is written
// first by the output layer and last by the embedding, so the largest gradient of all is the last
// to be ready: no computation is left to hide its reduction.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo_families.h"
#include "models/networks/zoo_layers.h"

#include <string>
#include <utility>

namespace dovetail::models::zoo {
namespace {

constexpr std::int64_t kGpt2Vocabulary = 50'257;
constexpr std::int64_t kGpt2Positions = 1024;
constexpr double kTanhGeluFlop = 12;  // the tanh form
constexpr auto kConv1D = LinearShape::Layout::InOut;

struct Gpt2Architecture {
  std::int64_t layers, width, heads;
};

// Pre-norm: each half adds to the residual stream `in` what it makes of the normed stream.
Value gpt2_block(Builder& b, const std::string& name, const Gpt2Architecture& a, const Value& in) {
  const std::int64_t d = a.width;
  Value x = norm(b, name + "ln_1", NormKind::Layer, in);
  const Value packed =
      linear(b, name + "attn.c_attn", {.in = d, .out = 3 * d, .layout = kConv1D}, x);
  const Value view{.tensor = packed.tensor, .shape = in.shape};
  x = attention(b, name + "attn", {.query = view, .key = view, .value = view, .heads = a.heads});
  x = linear(b, name + "attn.c_proj", {.in = d, .out = d, .layout = kConv1D}, x);
  const Value middle = sum(b, name + "attn.add", {x, in});

  x = norm(b, name + "ln_2", NormKind::Layer, middle);
  x = linear(b, name + "mlp.c_fc", {.in = d, .out = 4 * d, .layout = kConv1D}, x);
  x = pointwise(
      b, name + "mlp.act",
      {.inputs = {x}, .out = x.shape, .saved = Saved::Input, .flop_per_element = kTanhGeluFlop});
  x = linear(b, name + "mlp.c_proj", {.in = 4 * d, .out = d, .layout = kConv1D}, x);
  return sum(b, name + "mlp.add", {x, middle});
}

Value gpt2(Builder& b, const Gpt2Architecture& a) {
  const Embedding wte =
      embedding(b, "transformer.wte", {.entries = kGpt2Vocabulary, .width = a.width}, b.tokens());
  const Embedding wpe =
      embedding(b, "transformer.wpe", {.entries = kGpt2Positions, .width = a.width}, b.tokens());
  Value x = sum(b, "transformer.add", {wte.out, wpe.out});
  for (std::int64_t i = 0; i < a.layers; ++i) {
    x = gpt2_block(b, "transformer.h." + std::to_string(i) + ".", a, x);
  }
  x = norm(b, "transformer.ln_f", NormKind::Layer, x);
  return tied_linear(b, "lm_head", wte.table, {.in = a.width, .out = kGpt2Vocabulary}, x);
}

Model gpt2_model(ZooEntry entry, const Gpt2Architecture& architecture) {
  entry.sequence = kGpt2Positions;
  entry.sequence_limit = kGpt2Positions;
  entry.gradients = 4 + 12 * architecture.layers;  // wte, wpe, ln_f twice; 12 per block
  entry.source = "Hugging Face GPT2LMHeadModel, tied output; Radford et al. 2019";
  return {.entry = std::move(entry),
          .forward = [architecture](Builder& b) { return gpt2(b, architecture); }};
}

}  // namespace

std::vector<Model> gpt2_models() {
  return {
      gpt2_model({.name = "gpt2", .parameters = 124'439'808, .batch = 8},
                 {.layers = 12, .width = 768, .heads = 12}),
      gpt2_model({.name = "gpt2_medium", .parameters = 354'823'168, .batch = 8},
                 {.layers = 24, .width = 1024, .heads = 16}),
      gpt2_model({.name = "gpt2_large", .parameters = 774'030'080, .batch = 4},
                 {.layers = 36, .width = 1280, .heads = 20}),
      gpt2_model({.name = "gpt2_xl", .parameters = 1'557'611'200, .batch = 4},
                 {.layers = 48, .width = 1600, .heads = 25}),
  };
}

}  // namespace dovetail::models::zoo

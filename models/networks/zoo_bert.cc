// BERT as in Hugging Face's BertModel, with encoder and pooler but without the head for masked
// words: base and large, layer by layer with the sizes of the published configurations.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo_families.h"
#include "models/networks/zoo_layers.h"

#include <string>
#include <utility>

namespace dovetail::models::zoo {
namespace {

constexpr std::int64_t kBertVocabulary = 30'522;
constexpr std::int64_t kBertPositions = 512;
constexpr std::int64_t kTokenTypes = 2;
constexpr double kErfGeluFlop = 10;  // with its error function

struct BertArchitecture {
  std::int64_t layers, width, heads, inner;
};

Value embeddings(Builder& b, std::int64_t width) {
  const std::string name = "embeddings.";
  const auto look_up = [&](const std::string& table, std::int64_t entries) {
    return embedding(b, name + table, {.entries = entries, .width = width}, b.tokens());
  };
  const Value word = look_up("word_embeddings", kBertVocabulary);
  const Value position = look_up("position_embeddings", kBertPositions);
  const Value type = look_up("token_type_embeddings", kTokenTypes);
  return norm(b, name + "LayerNorm", NormKind::Layer, sum(b, name + "add", {word, position, type}));
}

// Post-norm: the norm follows the residual sum.
Value encoder_layer(Builder& b, const std::string& name, const BertArchitecture& a,
                    const Value& in) {
  const auto dense = [&](const std::string& layer, std::int64_t in_width, std::int64_t out_width,
                         const Value& x) {
    return linear(b, name + layer, {.in = in_width, .out = out_width}, x);
  };
  const Value query = dense("attention.self.query", a.width, a.width, in);
  const Value key = dense("attention.self.key", a.width, a.width, in);
  const Value value = dense("attention.self.value", a.width, a.width, in);
  const Value mixed = attention(b, name + "attention.self",
                                {.query = query, .key = key, .value = value, .heads = a.heads});
  Value x = dense("attention.output.dense", a.width, a.width, mixed);
  x = sum(b, name + "attention.output.add", {x, in});
  const Value middle = norm(b, name + "attention.output.LayerNorm", NormKind::Layer, x);

  x = dense("intermediate.dense", a.width, a.inner, middle);
  x = pointwise(b, name + "intermediate.gelu",
                {.inputs = {x},
                 .out = x.shape,
                 .saved = Saved::Input,
                 .flop_per_element = kErfGeluFlop,
                 .access = schedule::Access::Plain});
  x = dense("output.dense", a.inner, a.width, x);
  return norm(b, name + "output.LayerNorm", NormKind::Layer,
              sum(b, name + "output.add", {x, middle}));
}

Value bert(Builder& b, const BertArchitecture& a) {
  Value x = embeddings(b, a.width);
  for (std::int64_t i = 0; i < a.layers; ++i) {
    x = encoder_layer(b, "encoder.layer." + std::to_string(i) + ".", a, x);
  }
  // The pooler looks at the first token of each sample only.
  x = pointwise(b, "pooler.first_token",
                {.inputs = {x}, .out = {b.batch(), a.width}, .flop_per_element = 0});
  x = linear(b, "pooler.dense", {.in = a.width, .out = a.width}, x);
  return pointwise(b, "pooler.tanh", {.inputs = {x}, .out = x.shape, .saved = Saved::Output});
}

Model bert_model(ZooEntry entry, const BertArchitecture& architecture) {
  entry.sequence = 128;
  entry.sequence_limit = kBertPositions;
  entry.source += " in Hugging Face's BertModel with pooler; Devlin et al., arXiv 1810.04805";
  return {.entry = std::move(entry),
          .forward = [architecture](Builder& b) { return bert(b, architecture); }};
}

}  // namespace

std::vector<Model> bert_models() {
  return {
      bert_model({.name = "bert_base",
                  .parameters = 109'482'240,
                  .gradients = 199,
                  .batch = 32,
                  .source = "bert-base-uncased"},
                 {.layers = 12, .width = 768, .heads = 12, .inner = 3072}),
      bert_model({.name = "bert_large",
                  .parameters = 335'141'888,
                  .gradients = 391,
                  .batch = 16,
                  .source = "bert-large-uncased"},
                 {.layers = 24, .width = 1024, .heads = 16, .inner = 4096}),
  };
}

}  // namespace dovetail::models::zoo

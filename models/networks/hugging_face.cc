// Reads a config.json key by key; what shapes do not depend on is left alone.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/hugging_face.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json_reader.h"

namespace dovetail::jobs {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 20;  // of any extent
constexpr std::int64_t kMostLayers = 4096;
constexpr std::int64_t kMostHeads = 4096;
constexpr std::array<std::string_view, 9> kTypes = {
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe", "gpt_oss", "deepseek_v3", "gpt2"};

class Config {
 public:
  explicit Config(JsonObject object) : object_(std::move(object)) {}

  [[nodiscard]] std::int64_t number(std::string_view key, std::int64_t most = kMost) {
    return object_.integer(key, 1, most);
  }
  // Absent or null: `otherwise`.
  [[nodiscard]] std::int64_t number_or(std::string_view key, std::int64_t otherwise) {
    object_.ignore(key);
    if (!object_.has(key) || object_.at(key).is_null()) return otherwise;
    return object_.integer(key, 0, kMost);
  }
  [[nodiscard]] bool flag(std::string_view key, bool otherwise) {
    object_.ignore(key);
    if (!object_.has(key) || object_.at(key).is_null()) return otherwise;
    return object_.at(key).boolean();
  }
  [[nodiscard]] std::string text_or(std::string_view key, std::string otherwise) {
    object_.ignore(key);
    return object_.has(key) ? object_.at(key).string() : std::move(otherwise);
  }
  [[nodiscard]] std::size_t type() { return object_.word("model_type", kTypes); }

 private:
  JsonObject object_;
};

Attention attention_of(Config& config, std::string_view type, std::int64_t width) {
  Attention a;
  a.heads = config.number("num_attention_heads", kMostHeads);
  a.key_value_heads = config.number_or("num_key_value_heads", a.heads);
  a.head_dim = config.number_or("head_dim", width / a.heads);
  a.in_bias = config.flag("attention_bias", type == "qwen2" || type == "gpt_oss");
  a.out_bias = a.in_bias && type != "qwen2";
  a.normed_heads = type.starts_with("qwen3");
  a.sinks = type == "gpt_oss";
  if (type == "gpt_oss") a.window = config.number_or("sliding_window", 128);
  if (type != "deepseek_v3") return a;
  a.latent = Latent{.query_rank = config.number_or("q_lora_rank", 0),
                    .key_value_rank = config.number("kv_lora_rank"),
                    .rope_dim = config.number("qk_rope_head_dim"),
                    .nope_dim = config.number("qk_nope_head_dim"),
                    .value_dim = config.number("v_head_dim")};
  a.head_dim = a.latent->rope_dim + a.latent->nope_dim;
  return a;
}

std::optional<Experts> experts_of(Config& config, std::string_view type, std::int64_t inner) {
  if (type == "mixtral" || type == "gpt_oss") {
    return Experts{.count = config.number("num_local_experts"),
                   .per_token = config.number_or("num_experts_per_tok", 2),
                   .inner = inner,
                   .biases = type == "gpt_oss"};
  }
  if (type == "qwen3_moe") {
    return Experts{.count = config.number("num_experts"),
                   .per_token = config.number("num_experts_per_tok"),
                   .inner = config.number("moe_intermediate_size")};
  }
  if (type != "deepseek_v3") return std::nullopt;
  const std::int64_t one = config.number("moe_intermediate_size");
  return Experts{.count = config.number("n_routed_experts"),
                 .per_token = config.number("num_experts_per_tok"),
                 .inner = one,
                 .shared_inner = one * config.number_or("n_shared_experts", 0),
                 .first_layer = config.number_or("first_k_dense_replace", 0)};
}

// Other keys than those of later models.
Model gpt2_of(Config& config) {
  Model model;
  model.layers = config.number("n_layer", kMostLayers);
  model.width = config.number("n_embd");
  model.vocabulary = config.number("vocab_size");
  model.inner = config.number_or("n_inner", 4 * model.width);
  model.gated = false;
  model.mlp_bias = true;
  model.gelu_new = config.text_or("activation_function", "gelu_new") == "gelu_new";
  model.joined_qkv = true;
  model.tied = config.flag("tie_word_embeddings", true);
  model.positions = config.number_or("n_positions", 1024);
  model.norm = Norm::Layer;
  const std::int64_t heads = config.number("n_head", kMostHeads);
  model.attention = {.heads = heads,
                     .key_value_heads = heads,
                     .head_dim = model.width / heads,
                     .in_bias = true,
                     .out_bias = true};
  model.sequence = model.positions;
  return model;
}

}  // namespace

Model load_config(const std::string& path) {
  const JsonFile file(path);
  Config config(file.root());
  const std::string_view type = kTypes[config.type()];
  if (type == "gpt2") {
    Model model = gpt2_of(config);
    model.name = path;
    model.source = "config.json";
    return model;
  }
  Model model;
  model.name = path;
  model.layers = config.number("num_hidden_layers", kMostLayers);
  model.width = config.number("hidden_size");
  model.vocabulary = config.number("vocab_size");
  model.inner = config.number_or("intermediate_size", 0);
  model.tied = config.flag("tie_word_embeddings", false);
  model.mlp_bias = config.flag("mlp_bias", false);
  model.attention = attention_of(config, type, model.width);
  model.experts = experts_of(config, type, model.inner);
  if (model.experts && model.experts->first_layer == 0) model.inner = 0;
  model.sequence = std::min<std::int64_t>(8192, config.number_or("max_position_embeddings", 4096));
  model.source = "config.json";
  return model;
}

}  // namespace dovetail::jobs

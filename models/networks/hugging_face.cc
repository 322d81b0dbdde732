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
constexpr std::array<std::string_view, 10> kTypes = {
    "llama",     "mistral", "mixtral",     "qwen2",       "qwen3",
    "qwen3_moe", "gpt_oss", "deepseek_v2", "deepseek_v3", "gpt2"};

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
  [[nodiscard]] double share_or(std::string_view key, double otherwise) {
    object_.ignore(key);
    return object_.has(key) ? object_.at(key).number(0, 1) : otherwise;
  }
  // How many layers a list names, which are the first: [0, 1, 2].
  [[nodiscard]] std::int64_t dense_layers(std::string_view key) {
    object_.ignore(key);
    if (!object_.has(key) || object_.at(key).is_null()) return 0;
    const JsonArray layers = object_.at(key).array();
    for (std::size_t i = 0; i < layers.size(); ++i) {
      if (layers[i].integer(0, kMostLayers) != static_cast<std::int64_t>(i))
        fail(key, "the first layers alone, [0, 1, ...]");
    }
    return static_cast<std::int64_t>(layers.size());
  }
  [[noreturn]] void fail(std::string_view key, const std::string& expected) {
    object_.at(key).fail("expected " + expected);
  }
  // Of each layer, empty where the file does not say: whether it sees a part of the sequence alone.
  [[nodiscard]] std::vector<bool> windowed_layers() {
    constexpr std::array<std::string_view, 2> kLayerTypes = {"full_attention", "sliding_attention"};
    std::vector<bool> windowed;
    object_.ignore("layer_types");
    if (!object_.has("layer_types") || object_.at("layer_types").is_null()) return windowed;
    const JsonArray types = object_.at("layer_types").array();
    for (std::size_t i = 0; i < types.size(); ++i)
      windowed.push_back(types[i].word(kLayerTypes) == 1);
    return windowed;
  }
  // Of an object of the file, "" for the file itself; absent: `otherwise`.
  [[nodiscard]] double positive_or(std::string_view within, std::string_view key,
                                   double otherwise) {
    constexpr double kMostOfIt = 1e12;
    const std::optional<JsonValue> value = within_of(within, key);
    return value ? value->number(0, kMostOfIt) : otherwise;
  }
  [[nodiscard]] std::string text_within(std::string_view within, std::string_view key) {
    const std::optional<JsonValue> value = within_of(within, key);
    return value ? value->string() : "";
  }
  [[nodiscard]] bool says(std::string_view key) { return object_.has(key); }
  [[nodiscard]] std::size_t type() { return object_.word("model_type", kTypes); }

 private:
  [[nodiscard]] std::optional<JsonValue> within_of(std::string_view within, std::string_view key) {
    if (within.empty()) return value_of(object_, key);
    const std::optional<JsonValue> object = value_of(object_, within);
    if (!object || !object->is_object()) return std::nullopt;
    JsonObject members = object->object();
    return value_of(members, key);
  }
  static std::optional<JsonValue> value_of(JsonObject& object, std::string_view key) {
    object.ignore(key);
    if (!object.has(key) || object.at(key).is_null()) return std::nullopt;
    return object.at(key);
  }

  JsonObject object_;
};

// Of layers that see a part of the sequence; what an absent key means is as transformers' configurations have it.
void set_windows(Config& config, std::string_view type, Attention& a) {
  if (type == "gpt_oss") {
    a.window = config.number_or("sliding_window", 128);
  } else if (type == "mistral" || type == "mixtral") {
    const bool is_absent = type == "mistral" && !config.says("sliding_window");
    a.window = is_absent ? 4096 : config.number_or("sliding_window", 0);
    a.window_step = 1;
  } else if (type.starts_with("qwen") && config.flag("use_sliding_window", false)) {
    a.window = config.number_or("sliding_window", 4096);
    a.window_first = type == "qwen3_moe" ? 0 : config.number_or("max_window_layers", 28);
    a.window_step = 1;
  }
}

// transformers 5 also lists them, layer by layer.
void check_windows(Config& config, const Model& model) {
  const std::vector<bool> listed = config.windowed_layers();
  if (!listed.empty() && std::ssize(listed) != model.layers)
    config.fail("layer_types", "num_hidden_layers=" + std::to_string(model.layers) +
                                   " of them, found " + std::to_string(listed.size()));
  for (std::size_t i = 0; i < listed.size(); ++i) {
    if (listed[i] != is_windowed(model, static_cast<std::int64_t>(i)))
      config.fail("layer_types",
                  "a window in the layers that sliding_window and max_window_layers say; layer " +
                      std::to_string(i) + " differs");
  }
}

Attention attention_of(Config& config, std::string_view type, std::int64_t width) {
  Attention a;
  a.heads = config.number("num_attention_heads", kMostHeads);
  a.key_value_heads = config.number_or("num_key_value_heads", a.heads);
  a.head_dim = config.number_or("head_dim", width / a.heads);
  a.in_bias = config.flag("attention_bias", type == "qwen2" || type == "gpt_oss");
  a.out_bias = a.in_bias && type != "qwen2";
  a.normed_heads = type.starts_with("qwen3");
  a.sinks = type == "gpt_oss";
  set_windows(config, type, a);
  if (!type.starts_with("deepseek")) return a;
  a.out_bias = a.in_bias = false;
  a.latent = Latent{.query_rank = config.number_or("q_lora_rank", 0),
                    .key_value_rank = config.number("kv_lora_rank"),
                    .rope_dim = config.number("qk_rope_head_dim"),
                    .nope_dim = config.number("qk_nope_head_dim"),
                    .value_dim = config.number("v_head_dim")};
  a.head_dim = a.latent->rope_dim + a.latent->nope_dim;
  return a;
}

// What transformers refuses: Llama and DeepSeek-V2 in validate_architecture, GPT-2 where its attention is made, others in the
// first product.
void check_heads(Config& config, std::string_view type, const Attention& a, std::int64_t width) {
  const bool is_whole = type == "llama" || type == "deepseek_v2";
  if (is_whole && width % a.heads != 0)
    config.fail("num_attention_heads", "what divides hidden_size=" + std::to_string(width) +
                                           ", found " + std::to_string(a.heads));
  if (a.key_value_heads < 1 || a.heads % a.key_value_heads != 0)
    config.fail("num_key_value_heads",
                "what divides num_attention_heads=" + std::to_string(a.heads) + ", found " +
                    std::to_string(a.key_value_heads));
}

void check_experts(Config& config, const Experts& experts) {
  if (experts.per_token >= 1 && experts.per_token <= experts.count) return;
  config.fail("num_experts_per_tok", "from 1 to the " + std::to_string(experts.count) +
                                         " experts of a layer, found " +
                                         std::to_string(experts.per_token));
}

std::optional<Experts> experts_of(Config& config, std::string_view type, std::int64_t inner) {
  if (type == "mixtral" || type == "gpt_oss") {
    return Experts{.count = config.number("num_local_experts"),
                   .per_token = config.number_or("num_experts_per_tok", 2),
                   .inner = inner,
                   .biases = type == "gpt_oss"};
  }
  if (type == "qwen3_moe") {
    if (config.number_or("decoder_sparse_step", 1) != 1)
      config.fail("decoder_sparse_step", "1: experts in every layer behind the dense ones");
    // transformers 5 writes the second name.
    const bool is_of_4 = config.says("num_experts");
    return Experts{.count = config.number(is_of_4 ? "num_experts" : "num_local_experts"),
                   .per_token = config.number("num_experts_per_tok"),
                   .inner = config.number("moe_intermediate_size"),
                   .first_layer = config.dense_layers("mlp_only_layers")};
  }
  if (!type.starts_with("deepseek")) return std::nullopt;
  const std::int64_t one = config.number("moe_intermediate_size");
  return Experts{.count = config.number("n_routed_experts"),
                 .per_token = config.number("num_experts_per_tok"),
                 .inner = one,
                 .shared_inner = one * config.number_or("n_shared_experts", 0),
                 .first_layer = config.number_or("first_k_dense_replace", 0)};
}

// As modeling_*.py of the type has it; keys that are absent mean what they do in its configuration.
Router router_of(Config& config, std::string_view type) {
  if (type == "mixtral") return {.normalized = true, .wide_weights = true};
  if (type == "qwen3_moe") return {.normalized = config.flag("norm_topk_prob", false)};
  if (type == "gpt_oss") return {.score = Score::SoftmaxOfChosen};
  if (type == "deepseek_v3") {
    return {.score = Score::Sigmoid,
            .wide = true,
            .normalized = config.flag("norm_topk_prob", true),
            .scaled = true,
            .factor = config.positive_or({}, "routed_scaling_factor", 2.5),
            .wide_weights = true,
            .groups = config.number_or("n_group", 8),
            .groups_chosen = config.number_or("topk_group", 4),
            .group_best = 2};
  }
  if (type != "deepseek_v2") return {};
  Router router{.wide = true,
                .scaled = true,
                .factor = config.positive_or({}, "routed_scaling_factor", 1),
                .wide_weights = true};
  if (config.text_or("topk_method", "greedy") != "group_limited_greedy") return router;
  router.groups = config.number_or("n_group", 1);
  router.groups_chosen = config.number_or("topk_group", 1);
  return router;
}
Rotary rotary_of(std::string_view type) {
  if (type == "gpt_oss") return Rotary::HalfTables;
  if (type == "deepseek_v3") return Rotary::Interleaved;
  return type == "deepseek_v2" ? Rotary::Complex : Rotary::Halves;
}

// rope_theta and rope_scaling, which transformers 5 has in one, rope_parameters.
std::optional<RotaryScale> scale_of(Config& config) {
  if (!config.says("rope_theta") && !config.says("rope_parameters") && !config.says("rope_scaling"))
    return std::nullopt;
  RotaryScale scale;
  scale.base = config.positive_or({}, "rope_theta", scale.base);
  for (const std::string_view within : {"rope_parameters", "rope_scaling"}) {
    scale.base = config.positive_or(within, "rope_theta", scale.base);
    for (const std::string_view key : {"rope_type", "type"}) {
      scale.kind = word_to<RotaryKind>(config.text_within(within, key)).value_or(scale.kind);
    }
    if (scale.kind != RotaryKind::Default)
      scale.factor = config.positive_or(within, "factor", scale.factor);
  }
  return scale;
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
  for (const std::string_view key : {"attn_pdrop", "embd_pdrop", "resid_pdrop"})
    model.written.dropout |= config.share_or(key, 0.1) > 0;
  model.tied = config.flag("tie_word_embeddings", true);
  model.positions = config.number_or("n_positions", 1024);
  model.norm = Norm::Layer;
  const std::int64_t heads = config.number("n_head", kMostHeads);
  if (model.width % heads != 0)
    config.fail("n_head", "what divides n_embd=" + std::to_string(model.width) + ", found " +
                              std::to_string(heads));
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
  check_heads(config, type, model.attention, model.width);
  check_windows(config, model);
  model.experts = experts_of(config, type, model.inner);
  if (model.experts) check_experts(config, *model.experts);
  model.written = {.rotary = rotary_of(type),
                   .scale = scale_of(config),
                   .router = router_of(config, type),
                   .clamped_experts = type == "gpt_oss",
                   .norm_scales_wide = type == "gpt_oss"};
  if (model.experts && model.experts->first_layer == 0) model.inner = 0;
  model.sequence = std::min<std::int64_t>(8192, config.number_or("max_position_embeddings", 4096));
  model.source = "config.json";
  return model;
}

}  // namespace dovetail::jobs

// A transformer by its shape: what its parameters are, how many, and what a token costs. No weights.
//
//   const Model llama = known_model("llama3_70b");
//   parameters(llama);               // 70'553'706'496, the published count
//   forward_flop_per_token(llama, 8192);
//
// Shapes are those of the public config.json files; each is held to its published number of parameters by
// tests. Other models: a config.json in Hugging Face's words (frameworks/hugging_face.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/words.h"

namespace dovetail::jobs {

using dovetail::to_string;

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): queries, keys and values through low ranks.
struct Latent {
  std::int64_t query_rank = 0;  // 0: queries are projected at once
  std::int64_t key_value_rank = 0;
  std::int64_t rope_dim = 0, nope_dim = 0;  // of a query's and key's head
  std::int64_t value_dim = 0;
  friend bool operator==(const Latent&, const Latent&) = default;
};

struct Attention {
  std::int64_t heads = 0;
  std::int64_t key_value_heads = 0;
  std::int64_t head_dim = 0;
  bool in_bias = false, out_bias = false;
  bool normed_heads = false;  // a norm of head_dim on queries and one on keys (Qwen3)
  bool sinks = false;         // a learned number per head (GPT-OSS)
  // Layers window_first, window_first + window_step, ... see so many tokens only; 0: all layers see the whole sequence.
  std::int64_t window = 0, window_first = 0, window_step = 2;
  bool causal = true;
  std::optional<Latent> latent = std::nullopt;
  friend bool operator==(const Attention&, const Attention&) = default;
};

// A mixture of experts in place of the feed-forward network of the layers from `first_layer` on.
struct Experts {
  std::int64_t count = 0;
  std::int64_t per_token = 0;
  std::int64_t inner = 0;         // of one expert
  std::int64_t shared_inner = 0;  // of the experts that see every token, together
  bool biases = false;            // in the router and in the experts
  std::int64_t first_layer = 0;
  friend bool operator==(const Experts&, const Experts&) = default;
};

// How queries and keys are rotated: halves of a head exchanged, each half by tables of its own (gpt-oss), the halves every other number
// of a row (DeepSeek-V3), pairs as complex numbers (DeepSeek-V2).
enum class Rotary { Halves, HalfTables, Interleaved, Complex };

// How a router makes weights of its scores: all of them by a softmax, each by a sigmoid, the chosen ones by a softmax.
enum class Score { Softmax, Sigmoid, SoftmaxOfChosen };

struct Router {
  Score score = Score::Softmax;
  bool wide = false;        // its product is in f32
  bool normalized = false;  // weights of a token sum to one
  bool scaled = false;      // and are multiplied, by
  double factor = 1;
  bool wide_weights = false;  // they stay in f32, else in the type of activations
  // Experts are chosen of so many of the groups, judged by their best or their two best; 0: of all experts.
  std::int64_t groups = 0, groups_chosen = 0, group_best = 1;
  friend bool operator==(const Router&, const Router&) = default;
};

// How far positions rotate, which no kernel's time depends on. The kinds are transformers' rope_type; Llama3: low frequencies
// `factor` times slower (Llama 3.1); Linear: all of them.
enum class RotaryKind { Default, Linear, Dynamic, Yarn, LongRope, Llama3 };
constexpr auto words_of(RotaryKind) {
  return words("default", "linear", "dynamic", "yarn", "longrope", "llama3");
}

struct RotaryScale {
  RotaryKind kind = RotaryKind::Default;
  double base = 10'000;
  double factor = 1;
  friend bool operator==(const RotaryScale&, const RotaryScale&) = default;
};

// How transformers writes what shapes do not say (kernels=transformers).
struct Written {
  Rotary rotary = Rotary::Halves;
  std::optional<RotaryScale> scale = std::nullopt;  // absent: nobody said
  Router router = {};
  bool clamped_experts = false;   // gate and up are, before they are multiplied (gpt-oss)
  bool norm_scales_wide = false;  // norms multiply by their weight in f32 (gpt-oss)
  bool dropout = false;           // some is trained with, whose kernels nothing counts
  friend bool operator==(const Written&, const Written&) = default;
};

enum class Norm { Rms, Layer };  // Layer has a bias

// Pictures instead of tokens (ViT): a patch is a token, and one class token is added.
struct Patches {
  std::int64_t side = 224, patch = 16, classes = 1000;
  friend bool operator==(const Patches&, const Patches&) = default;
};

struct Model {
  std::string name;
  std::int64_t layers = 0;
  std::int64_t width = 0;
  std::int64_t vocabulary = 0;
  std::int64_t inner = 0;  // of the feed-forward network; 0: every layer has experts
  bool gated = true;       // gate, up and down; else up and down
  bool mlp_bias = false;
  bool gelu_new = false;  // the activation is written out in eight operators (transformers)
  // GPT-2's modules and their names: one gives queries, keys and values, also where nothing is fused.
  bool joined_qkv = false;
  bool tied = false;           // the output layer is the embedding
  std::int64_t positions = 0;  // learned; 0: rotary
  Norm norm = Norm::Rms;
  Attention attention;
  std::optional<Experts> experts = std::nullopt;
  std::optional<Patches> patches = std::nullopt;
  Written written = {};
  std::int64_t sequence = 4096;  // where a job does not say
  std::int64_t published = 0;    // number of parameters; 0: unknown
  std::string source = {};
  friend bool operator==(const Model&, const Model&) = default;
};

bool has_experts(const Model& model, std::int64_t layer);
bool is_windowed(const Model& model, std::int64_t layer);

// Elements of the whole model; tied weights count once.
std::int64_t parameters(const Model& model);
// Those that one token meets: of the experts only the chosen ones; without the embedding's rows.
std::int64_t active_parameters(const Model& model);

// Matrix products of one token, forward: two for each active parameter of a product, and attention's
// 4 x heads x head_dim x `seen`, where a token sees `sequence` others (half of them if `causal_half`).
// Model FLOP utilisation counts three times that (backward is two), without recomputation, and without
// halving: PaLM, arXiv 2204.02311, appendix B.
double forward_flop_per_token(const Model& model, std::int64_t sequence, bool causal_half = false);

// How many tokens a layer's attention sees of a sequence.
double seen_tokens(const Model& model, std::int64_t layer, std::int64_t sequence, bool causal_half);

// Throws InputError with the nearest known name.
Model known_model(std::string_view name);
std::vector<std::string> known_model_names();

}  // namespace dovetail::jobs

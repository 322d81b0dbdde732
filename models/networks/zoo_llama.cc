// Llama 2 and Mixtral as in Hugging Face's LlamaForCausalLM and MixtralForCausalLM (4.x).
//
// Both are the same network but for the second half of a block: Llama has one gated MLP, Mixtral
// eight, of which a router picks two per token. Keys and values have 8 heads where grouped-query
// attention is used. Modules are declared in the order of the reference code, which puts the two
// norms of a block behind its matrices, and used in the order of the computation.
//
// Routing is taken as uniform: each expert gets tokens x 2 / 8, rounded up. Real routing is uneven,
// and then the slowest expert costs more than this says. Experts are not sharded: every rank holds
// all of them, so every gradient is averaged over all ranks.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo_families.h"
#include "models/networks/zoo_layers.h"

#include <string>
#include <utility>

namespace dovetail::models::zoo {
namespace {

constexpr std::int64_t kLlamaVocabulary = 32'000;
constexpr double kRotaryFlop = 6;  // two products and a sum per element, for cosine and sine
constexpr double kGatedFlop = 6;   // silu(gate) * up

struct LlamaArchitecture {
  std::int64_t layers, width, inner, heads, key_value_heads;
  std::int64_t experts = 0;  // 0: one plain MLP
  std::int64_t experts_per_token = 0;
};

struct GatedMlp {
  std::string name;
  Linear gate, up, down;
};
struct Block {
  std::string name;
  Linear q, k, v, o;
  std::optional<Linear> router;
  std::vector<GatedMlp> mlps;  // one, or one per expert
  Norm input_norm, post_attention_norm;
};

LinearShape unbiased(std::int64_t in, std::int64_t out) {
  return {.in = in, .out = out, .bias = Bias::No};
}

GatedMlp declare_mlp(Builder& b, const std::string& name, const LlamaArchitecture& a) {
  return {.name = name,
          .gate = declare_linear(b, name + "gate_proj", unbiased(a.width, a.inner)),
          .up = declare_linear(b, name + "up_proj", unbiased(a.width, a.inner)),
          .down = declare_linear(b, name + "down_proj", unbiased(a.inner, a.width))};
}

// Mixtral calls gate, down and up w1, w2 and w3, and defines them in that order.
GatedMlp declare_expert(Builder& b, const std::string& name, const LlamaArchitecture& a) {
  Linear w1 = declare_linear(b, name + "w1", unbiased(a.width, a.inner));
  Linear w2 = declare_linear(b, name + "w2", unbiased(a.inner, a.width));
  Linear w3 = declare_linear(b, name + "w3", unbiased(a.width, a.inner));
  return {.name = name, .gate = std::move(w1), .up = std::move(w3), .down = std::move(w2)};
}

Block declare_block(Builder& b, const std::string& name, const LlamaArchitecture& a) {
  const std::int64_t kv_width = a.width / a.heads * a.key_value_heads;
  Block block{.name = name,
              .q = declare_linear(b, name + "self_attn.q_proj", unbiased(a.width, a.width)),
              .k = declare_linear(b, name + "self_attn.k_proj", unbiased(a.width, kv_width)),
              .v = declare_linear(b, name + "self_attn.v_proj", unbiased(a.width, kv_width)),
              .o = declare_linear(b, name + "self_attn.o_proj", unbiased(a.width, a.width)),
              .router = std::nullopt,
              .mlps = {},
              .input_norm = {},
              .post_attention_norm = {}};
  if (a.experts == 0) {
    block.mlps.push_back(declare_mlp(b, name + "mlp.", a));
  } else {
    const std::string moe = name + "block_sparse_moe.";
    block.router = declare_linear(b, moe + "gate", unbiased(a.width, a.experts));
    for (std::int64_t i = 0; i < a.experts; ++i) {
      block.mlps.push_back(declare_expert(b, moe + "experts." + std::to_string(i) + ".", a));
    }
  }
  block.input_norm = declare_norm(b, name + "input_layernorm", NormKind::Rms, a.width);
  block.post_attention_norm =
      declare_norm(b, name + "post_attention_layernorm", NormKind::Rms, a.width);
  return block;
}

Value self_attention(Builder& b, const Block& block, const LlamaArchitecture& a, const Value& in) {
  const std::string name = block.name + "self_attn";
  const auto rotate = [&](const std::string& what, const Value& x) {
    return pointwise(b, name + what,
                     {.inputs = {x}, .out = x.shape, .flop_per_element = kRotaryFlop});
  };
  const Value q = apply(b, block.q, in);
  const Value k = apply(b, block.k, in);
  const Value v = apply(b, block.v, in);
  const Value q_rotated = rotate(".q_rotary", q);
  const Value k_rotated = rotate(".k_rotary", k);
  const Value mixed =
      attention(b, name, {.query = q_rotated, .key = k_rotated, .value = v, .heads = a.heads});
  return apply(b, block.o, mixed);
}

Value gated_mlp(Builder& b, const GatedMlp& mlp, const Value& in) {
  const Value gate = apply(b, mlp.gate, in);
  const Value up = apply(b, mlp.up, in);
  const Value inner = pointwise(b, mlp.name + "act",
                                {.inputs = {gate, up},
                                 .out = gate.shape,
                                 .saved = Saved::Input,
                                 .flop_per_element = kGatedFlop});
  return apply(b, mlp.down, inner);
}

// Router, gather of each expert's tokens, the experts, and the weighted sum of what they return.
Value experts(Builder& b, const Block& block, const LlamaArchitecture& a, const Value& in) {
  const std::string name = block.name + "block_sparse_moe.";
  const Value scores = apply(b, *block.router, in);
  // Softmax over the experts; picking the two best moves next to nothing.
  const Value weights = softmax(b, name + "top_k", scores);
  const std::int64_t routed = in.shape[0] * a.experts_per_token;
  const std::int64_t rows = (routed + a.experts - 1) / a.experts;

  Layer dispatch{.name = name + "dispatch",
                 .forward = Traffic{.read_passes = 1, .flop_per_element = 0},
                 .inputs = {in},
                 .outputs = {},
                 .backward = {{.suffix = "backward", .work = Traffic{}, .inputs = {in}}}};
  for (const GatedMlp& expert : block.mlps) {
    dispatch.outputs.push_back(b.activation(expert.name + "in", {rows, a.width}));
  }
  const std::vector<Value> gathered = dispatch.outputs;
  b.add(std::move(dispatch));

  std::vector<Value> returned;
  for (std::size_t i = 0; i < gathered.size(); ++i) {
    returned.push_back(gated_mlp(b, block.mlps[i], gathered[i]));
  }
  returned.push_back(weights);
  return pointwise(b, name + "combine",
                   {.inputs = std::move(returned), .out = in.shape, .saved = Saved::Input});
}

Value transform(Builder& b, const Block& block, const LlamaArchitecture& a, const Value& in) {
  Value x = self_attention(b, block, a, apply(b, block.input_norm, in));
  const Value middle = sum(b, block.name + "attention_add", {x, in});
  x = apply(b, block.post_attention_norm, middle);
  x = block.router ? experts(b, block, a, x) : gated_mlp(b, block.mlps.front(), x);
  return sum(b, block.name + "mlp_add", {x, middle});
}

Value decoder(Builder& b, const LlamaArchitecture& a) {
  Value x = embedding(b, "model.embed_tokens", {.entries = kLlamaVocabulary, .width = a.width},
                      b.tokens())
                .out;
  for (std::int64_t i = 0; i < a.layers; ++i) {
    const Block block = declare_block(b, "model.layers." + std::to_string(i) + ".", a);
    x = transform(b, block, a, x);
  }
  x = norm(b, "model.norm", NormKind::Rms, x);
  return linear(b, "lm_head", unbiased(a.width, kLlamaVocabulary), x);
}

Model llama_model(ZooEntry entry, const LlamaArchitecture& architecture) {
  entry.batch = 1;
  entry.sequence = 4096;
  return {.entry = std::move(entry),
          .forward = [architecture](Builder& b) { return decoder(b, architecture); }};
}

}  // namespace

std::vector<Model> llama_models() {
  const std::string llama = " in Hugging Face's LlamaForCausalLM; Touvron et al., arXiv 2307.09288";
  return {
      llama_model(
          {.name = "llama2_7b",
           .parameters = 6'738'415'616,
           .gradients = 291,
           .source = "meta-llama/Llama-2-7b" + llama},
          {.layers = 32, .width = 4096, .inner = 11'008, .heads = 32, .key_value_heads = 32}),
      llama_model(
          {.name = "llama2_70b",
           .parameters = 68'976'648'192,
           .gradients = 723,
           .source = "meta-llama/Llama-2-70b" + llama},
          {.layers = 80, .width = 8192, .inner = 28'672, .heads = 64, .key_value_heads = 8}),
      llama_model({.name = "mixtral_8x7b",
                   .parameters = 46'702'792'704,
                   .gradients = 995,
                   .source = "mistralai/Mixtral-8x7B-v0.1 in Hugging Face's MixtralForCausalLM; "
                             "Jiang et al., arXiv 2401.04088"},
                  {.layers = 32,
                   .width = 4096,
                   .inner = 14'336,
                   .heads = 32,
                   .key_value_heads = 8,
                   .experts = 8,
                   .experts_per_token = 2}),
  };
}

}  // namespace dovetail::models::zoo

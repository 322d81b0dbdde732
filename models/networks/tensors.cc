// Lists the parameters of a transformer, layer by layer.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/tensors.h"

#include <algorithm>
#include <map>
#include <utility>

namespace dovetail::jobs {
namespace {

class Lister {
 public:
  explicit Lister(const Model& model) : model_(model) {}

  std::vector<ParameterShape> run() && {
    const std::int64_t d = model_.width;
    part_ = Part::Embedding;
    if (model_.patches) {
      const Patches& p = *model_.patches;
      add("class_token", {1, 1, d});
      matrix("conv_proj", d, 3 * p.patch * p.patch, Cut::Whole, true);
      add("encoder.pos_embedding", {p.side / p.patch * (p.side / p.patch) + 1, d});
    } else {
      add("model.embed_tokens.weight", {model_.vocabulary, d}, Cut::Column);
      if (model_.positions > 0) add("model.embed_positions.weight", {model_.positions, d});
    }
    for (layer_ = 0; layer_ < model_.layers; ++layer_) {
      attention();
      mlp();
    }
    layer_ = -1;
    part_ = Part::Head;
    norm("model.norm");
    if (model_.patches) {
      matrix("heads.head", model_.patches->classes, d, Cut::Whole, true);
    } else if (!model_.tied) {
      matrix("lm_head", model_.vocabulary, d, Cut::Column, false);
    }
    return std::move(list_);
  }

 private:
  void add(const std::string& name, std::vector<std::int64_t> shape, Cut cut = Cut::Whole,
           bool expert = false, bool product = false) {
    const std::string module = name.substr(0, name.rfind('.'));
    list_.push_back({.name = module_name(model_, layer_, module) + name.substr(module.size()),
                     .module = module,
                     .layer = layer_,
                     .part = part_,
                     .shape = std::move(shape),
                     .cut = cut,
                     .expert = expert,
                     .product = product});
  }
  void matrix(const std::string& name, std::int64_t out, std::int64_t in, Cut cut, bool bias) {
    add(name + ".weight", {out, in}, cut, false, true);
    if (bias) add(name + ".bias", {out}, cut == Cut::Column ? Cut::Column : Cut::Whole);
  }
  void norm(const std::string& name) {
    add(name + ".weight", {model_.width});
    if (model_.norm == Norm::Layer) add(name + ".bias", {model_.width});
  }

  void attention() {
    const Attention& a = model_.attention;
    const std::int64_t d = model_.width;
    part_ = Part::Attention;
    norm("input_layernorm");
    if (a.latent) {
      latent(*a.latent);
      return;
    }
    const std::string self = "self_attn.";
    if (a.sinks) add(self + "sinks", {a.heads}, Cut::Column);
    const std::int64_t keys = a.key_value_heads * a.head_dim;
    if (model_.joined_qkv) {
      matrix(self + "qkv_proj", a.heads * a.head_dim + 2 * keys, d, Cut::Column, a.in_bias);
    } else {
      matrix(self + "q_proj", a.heads * a.head_dim, d, Cut::Column, a.in_bias);
      matrix(self + "k_proj", keys, d, Cut::Column, a.in_bias);
      matrix(self + "v_proj", keys, d, Cut::Column, a.in_bias);
    }
    matrix(self + "o_proj", d, a.heads * a.head_dim, Cut::Row, a.out_bias);
    if (!a.normed_heads) return;
    add(self + "q_norm.weight", {a.head_dim});
    add(self + "k_norm.weight", {a.head_dim});
  }

  void latent(const Latent& l) {
    const std::int64_t heads = model_.attention.heads;
    const std::int64_t d = model_.width;
    const std::string self = "self_attn.";
    if (l.query_rank > 0) {
      matrix(self + "q_a_proj", l.query_rank, d, Cut::Whole, false);
      add(self + "q_a_layernorm.weight", {l.query_rank});
      matrix(self + "q_b_proj", heads * (l.nope_dim + l.rope_dim), l.query_rank, Cut::Column,
             false);
    } else {
      matrix(self + "q_proj", heads * (l.nope_dim + l.rope_dim), d, Cut::Column, false);
    }
    matrix(self + "kv_a_proj_with_mqa", l.key_value_rank + l.rope_dim, d, Cut::Whole, false);
    add(self + "kv_a_layernorm.weight", {l.key_value_rank});
    matrix(self + "kv_b_proj", heads * (l.nope_dim + l.value_dim), l.key_value_rank, Cut::Column,
           false);
    matrix(self + "o_proj", d, heads * l.value_dim, Cut::Row, false);
  }

  void dense(const std::string& name, std::int64_t inner) {
    const std::int64_t d = model_.width;
    if (model_.gated) matrix(name + "gate_proj", inner, d, Cut::Column, model_.mlp_bias);
    matrix(name + "up_proj", inner, d, Cut::Column, model_.mlp_bias);
    matrix(name + "down_proj", d, inner, Cut::Row, model_.mlp_bias);
  }

  void mlp() {
    part_ = Part::Mlp;
    norm("post_attention_layernorm");
    if (!has_experts(model_, layer_)) {
      dense("mlp.", model_.inner);
      return;
    }
    const Experts& e = *model_.experts;
    const std::int64_t d = model_.width;
    matrix("mlp.gate", e.count, d, Cut::Whole, e.biases);
    const auto experts = [&](const std::string& name, std::int64_t out, std::int64_t in, Cut cut) {
      add("mlp.experts." + name + ".weight", {e.count, out, in}, cut, true, true);
      if (!e.biases) return;
      add("mlp.experts." + name + ".bias", {e.count, out},
          cut == Cut::Column ? Cut::Column : Cut::Whole, true);
    };
    if (model_.gated) experts("gate_proj", e.inner, d, Cut::Column);
    experts("up_proj", e.inner, d, Cut::Column);
    experts("down_proj", d, e.inner, Cut::Row);
    if (e.shared_inner > 0) dense("mlp.shared_experts.", e.shared_inner);
  }

  const Model& model_;
  std::int64_t layer_ = -1;
  Part part_ = Part::Embedding;
  std::vector<ParameterShape> list_;
};

// Of a layer's or the model's; what stands in no row is called alike.
const std::map<std::string, std::string>& words_of_gpt2() {
  static const std::map<std::string, std::string> kWords = {
      {"model.embed_tokens", "transformer.wte"},
      {"model.embed_positions", "transformer.wpe"},
      {"model.norm", "transformer.ln_f"},
      {"input_layernorm", "ln_1"},
      {"self_attn.qkv_proj", "attn.c_attn"},
      {"self_attn.attention", "attn"},
      {"self_attn.o_proj", "attn.c_proj"},
      {"self_attn.add", "attn.add"},
      {"post_attention_layernorm", "ln_2"},
      {"mlp.up_proj", "mlp.c_fc"},
      {"mlp.down_proj", "mlp.c_proj"}};
  return kWords;
}

std::int64_t parts(std::int64_t whole, std::int64_t ranks) { return (whole + ranks - 1) / ranks; }

}  // namespace

std::int64_t ParameterShape::numel() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::string module_name(const Model& model, std::int64_t layer, const std::string& module) {
  const bool is_gpt2 = model.joined_qkv;
  const std::string of_layer =
      layer < 0 ? "" : (is_gpt2 ? "transformer.h." : "model.layers.") + std::to_string(layer) + ".";
  const auto own = words_of_gpt2().find(module);
  return of_layer + (is_gpt2 && own != words_of_gpt2().end() ? own->second : module);
}

std::vector<ParameterShape> model_parameters(const Model& model) { return Lister(model).run(); }

std::int64_t layer_elements(const Model& model) {
  std::int64_t elements = 0;
  for (const ParameterShape& shape : model_parameters(model)) {
    if (shape.layer == model.layers - 1) elements += shape.numel();
  }
  return std::max<std::int64_t>(1, elements);
}

std::vector<std::int64_t> local_shape(const ParameterShape& parameter, std::int64_t tp,
                                      std::int64_t ep, std::int64_t etp) {
  std::vector<std::int64_t> shape = parameter.shape;
  if (parameter.expert) shape.front() = parts(shape.front(), ep);
  const std::size_t out = parameter.expert ? 1 : 0;
  const std::int64_t ranks = parameter.expert ? etp : tp;
  if (parameter.cut == Cut::Column) shape[out] = parts(shape[out], ranks);
  if (parameter.cut == Cut::Row) shape.back() = parts(shape.back(), ranks);
  return shape;
}

}  // namespace dovetail::jobs

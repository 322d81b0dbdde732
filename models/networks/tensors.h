// The parameters of a transformer, one by one: names in Hugging Face's words, shapes, and how tensor and
// expert parallelism cut them. Matrices are out x in, those of GPT-2's Conv1D, which lie transposed, too.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/networks/model.h"

namespace dovetail::jobs {

// Where in the model a parameter belongs.
enum class Part { Embedding, Attention, Mlp, Head };

// How ranks of a tensor-parallel group share it. Column and row: as Megatron cuts the matrix of a linear
// layer (arXiv 1909.08053); Whole: every rank has all of it.
enum class Cut { Column, Row, Whole };

struct ParameterShape {
  std::string name;         // "model.layers.0.self_attn.q_proj.weight"; GPT-2 has its own words
  std::string module;       // of which layer's modules, in the words of Llama: "self_attn.q_proj"
  std::int64_t layer = -1;  // -1: of no layer
  Part part = Part::Attention;
  std::vector<std::int64_t> shape;  // of a product: {out, in}; of experts: {experts, out, in}
  Cut cut = Cut::Whole;
  bool expert = false;   // one slice per expert
  bool product = false;  // a matrix that tokens are multiplied with
  bool trained = true;   // else frozen: no gradient, no update

  [[nodiscard]] std::int64_t numel() const;
  [[nodiscard]] bool is_expert() const { return expert; }
  [[nodiscard]] bool is_product() const { return product; }
};

// What the model's family calls a module: "self_attn.qkv_proj" of layer 0 is "transformer.h.0.attn.c_attn" in GPT-2. `layer`: -1: of
// no layer; `module`: in the words of Llama.
std::string module_name(const Model& model, std::int64_t layer, const std::string& module);

// In the order of definition: embedding, layers, last norm, head. Tied weights once.
std::vector<ParameterShape> model_parameters(const Model& model);
// Elements of the last layer, 1 where there is none.
std::int64_t layer_elements(const Model& model);

// What one rank holds of it: `cut` divided over tp (experts: over etp), experts over ep. Sizes that do not
// divide are rounded up.
std::vector<std::int64_t> local_shape(const ParameterShape& parameter, std::int64_t tp,
                                      std::int64_t ep, std::int64_t etp);

}  // namespace dovetail::jobs

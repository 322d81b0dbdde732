// Counts parameters and products of a transformer, tensor by tensor.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/model.h"

#include "models/networks/tensors.h"

namespace dovetail::jobs {

bool has_experts(const Model& model, std::int64_t layer) {
  return model.experts && layer >= model.experts->first_layer;
}

bool is_windowed(const Model& model, std::int64_t layer) {
  const Attention& a = model.attention;
  return a.window > 0 && layer >= a.window_first && (layer - a.window_first) % a.window_step == 0;
}

double seen_tokens(const Model& model, std::int64_t layer, std::int64_t sequence,
                   bool causal_half) {
  const auto all = static_cast<double>(sequence);
  const auto window = static_cast<double>(model.attention.window);
  if (is_windowed(model, layer) && window < all)
    return causal_half ? window - window * window / (2 * all) : window;
  return model.attention.causal && causal_half ? all / 2 : all;
}

std::int64_t parameters(const Model& model) {
  std::int64_t count = 0;
  for (const ParameterShape& shape : model_parameters(model)) count += shape.numel();
  return count;
}

std::int64_t active_parameters(const Model& model) {
  std::int64_t count = 0;
  for (const ParameterShape& shape : model_parameters(model)) {
    if (shape.part == Part::Embedding && !model.tied) continue;
    const std::int64_t all = shape.numel();
    count += shape.is_expert() ? all / model.experts->count * model.experts->per_token : all;
  }
  return count;
}

double forward_flop_per_token(const Model& model, std::int64_t sequence, bool causal_half) {
  double flop = 0;
  for (const ParameterShape& shape : model_parameters(model)) {
    if (!shape.is_product()) continue;
    const auto all = static_cast<double>(shape.numel());
    const double share = shape.is_expert() ? static_cast<double>(model.experts->per_token) /
                                                 static_cast<double>(model.experts->count)
                                           : 1;
    flop += 2 * all * share;
  }
  if (model.tied) {
    flop += 2 * static_cast<double>(model.vocabulary) * static_cast<double>(model.width);
  }
  const Attention& a = model.attention;
  const std::int64_t key_dim = a.latent ? a.latent->rope_dim + a.latent->nope_dim : a.head_dim;
  const std::int64_t value_dim = a.latent ? a.latent->value_dim : a.head_dim;
  for (std::int64_t layer = 0; layer < model.layers; ++layer) {
    flop += 2 * static_cast<double>(a.heads * (key_dim + value_dim)) *
            seen_tokens(model, layer, sequence, causal_half);
  }
  return flop;
}

}  // namespace dovetail::jobs

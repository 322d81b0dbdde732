// The kernels between products of models as transformers writes them: PyTorch's operators, one by one, as they are dispatched
// (kernels=transformers). What `describe` of dovetail.torch finds of the same model (tests/models/networks/families_test.cc).
//
//   rms_norm_lists({.rows = 4096, .width = 4096}, {.input = 2, .between = 2}).forward   // 8 kernels
//
// Bytes are what an operator reads and writes, each tensor once; an expanded tensor as it lies in memory. Backward is what autograd
// runs, sums of gradients that meet again left to the caller. Sources: transformers 5.17 (models/*/modeling_*.py, integrations/moe.py,
// masking_utils.py), PyTorch 2.11 (derivatives.yaml). Tokens are rows of a rank; `element` is in bytes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/networks/model.h"
#include "schedule/program.h"

namespace dovetail::jobs {

struct KernelLists {
  std::vector<schedule::Kernel> forward = {}, backward = {};
  std::size_t after =
      0;  // so many of the last ones forward stand behind what is kept for backward last
};

// Of a batch: what its positions and its attention's masks are made of.
struct BatchSize {
  std::int64_t samples = 1, sequence = 1, element = 2;
};

// Bytes of an element of what a norm reads, and of what it gives.
struct NormTypes {
  std::int64_t input = 2, between = 2;
};
struct NormSize {
  std::int64_t rows = 0, width = 0;
  bool is_of_heads = false;  // its gradient lies by heads, the input by tokens
  bool scales_wide = false;  // times the weight in f32 (gpt-oss), else in the type of what it gives
};
KernelLists rms_norm_lists(const NormSize& size, const NormTypes& types);

// Positions, whether samples are packed (not where attention writes its scores), masks of windows, tables of cosines and sines.
KernelLists positions_lists(const Model& model, const BatchSize& batch);

// A rotation of heads of `width` numbers. Bytes of an element: of what comes, of what goes, and of attention's input.
struct RotarySize {
  std::int64_t tokens = 0, sequence = 0, heads = 1, width = 0;
  std::int64_t input = 2, output = 2, attention = 2;
  bool is_repeated = false;  // for several heads of queries, by a copy
};
KernelLists rotary_lists(Rotary rotary, const RotarySize& size);

// Attention's scores written out, behind the repetition of keys and values for their queries: with products, with sinks.
struct ScoresSize {
  std::int64_t samples = 1, queries = 1,
               sequence = 1;  // positions of a sample that ask, and that are seen
  std::int64_t heads = 1, key_value_heads = 1, width = 64;
  std::int64_t element = 2;
};
KernelLists scores_lists(const ScoresSize& size);
// Keys and values repeated for all heads of queries, where attention takes a mask.
KernelLists repeat_lists(const ScoresSize& size);

// REQUIRES of what follows: the model has experts.
// What experts take and choose: `rows` tokens of `width`, of which each meets `per_token` of all experts, `chosen` rows together, or as
// many as arrive at the `held` ones of this rank.
struct RoutedSize {
  std::int64_t rows = 0, chosen = 0, width = 0, inner = 0, held = 1;
  std::int64_t element = 2;
};
// Behind the router's product: scores, the chosen, their weights. `before` it: casts where it is in f32.
KernelLists before_router_lists(const Model& model, const RoutedSize& size);
KernelLists router_lists(const Model& model, const RoutedSize& size);
// Sorted by expert, ahead of the products; between them (clamped and biased ones, too); behind them, back in order and summed.
KernelLists dispatch_lists(const Model& model, const RoutedSize& size);
KernelLists between_experts_lists(const Model& model, const RoutedSize& size);
KernelLists combine_lists(const Model& model, const RoutedSize& size);

}  // namespace dovetail::jobs

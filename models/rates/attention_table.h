// Measured rates of fused attention kernels on a GPU.
//
//   const AttentionTable* table = attention_table("h100");     // of models/rates/gemm/attention.csv; null: not measured there
//   table->rate({.tokens = 2048, .head_dim = 128})             // of bf16 and f16
//
// Rates are those of causal forward passes of S tokens, whose queries attend to S / 2 in the mean, and what is asked for is found by
// that mean; linear in the logarithms of tokens and head_dim, at the edges that of the edge. Backward reaches 0.85 of the forward
// rate: FlashAttention-3's paper has 0.85 to 0.87 of it on H100 at 4 to 16 thousand tokens (cuDNN's kernels 0.82 to 0.87, FlashAttention-2's
// 0.84 to 0.87), FlashAttention-4's authors 0.85 on B200 (Dao-AILab/flash-attention, pull request 2280).
// Leaves out that few heads and short batches do not fill a GPU: rows of less than 0.1 TFLOP are not in the table.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string_view>

#include "base/units.h"
#include "schedule/program.h"

namespace dovetail::models {

class AttentionTable {
 public:
  // A rate of causal forward passes. REQUIRES: all above 0.
  void add(double head_dim, double tokens, FlopPerSecond rate);
  // REQUIRES: at least one rate; tokens and head_dim >= 1.
  [[nodiscard]] FlopPerSecond rate(const schedule::Attention& attention) const;

 private:
  using Curve = std::map<double, double>;  // log2 of tokens seen: log2 of FLOP/s
  std::map<double, Curve> heads_;          // log2 of head_dim
};

// Lives as long as the program.
const AttentionTable* attention_table(std::string_view device);

}  // namespace dovetail::models

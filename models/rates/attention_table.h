// Measured times of fused attention kernels on a GPU.
//
//   const auto table = attention_table("h100");     // of models/rates/gemm/attention.csv; null: not measured there
//   table->time({.tokens = 2048, .head_dim = 128}, flop)       // of bf16 and f16: fixed + flop / rate
//
// Rows are of causal passes of S tokens, whose queries attend to S / 2 in the mean, and what is asked for is found by that mean. Between
// rows rates are linear in the logarithms of tokens and head_dim, and the fixed part is, too; at the edges both are those of the edge. Heads
// of 65 to 127 take as long as those of 128, as which kernels compute them (H100: 80 and 96 do).
// The fixed part (launch, and the longest tile, which one multiprocessor computes alone) is what makes few heads and short batches slow.
// Where it was not measured rates are those of full GPUs. Where backward was not, it reaches 0.85 of the forward rate: FlashAttention-3's
// paper has 0.85 to 0.87 of it on H100 at 4 to 16 thousand tokens, FlashAttention-4's authors 0.85 on B200 (Dao-AILab/flash-attention, pull
// request 2280); cuDNN's kernels measured here 0.59 at a thousand tokens and 0.86 at eight thousand.
// Where all attend to all tokens no tile is longer than another, so such passes are up to a third faster: they have rows of their own, of S
// tokens that all are seen; without any they take those of causal passes with as many seen.
// FlashAttention-2 was measured on an H100 alone, at one size (32 heads of 128, 4,096 tokens, causal, PyTorch 2.11: 527 and 1,484 us where
// cuDNN takes 263 and 788), and takes that many times as long on Hopper; elsewhere it is taken to take what the table says, which on A100 is its own.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "base/units.h"
#include "schedule/program.h"

namespace dovetail::models {

class AttentionTable {
 public:
  // Of one direction: fixed + flop / rate.
  struct Line {
    FlopPerSecond rate;
    Duration fixed{};
  };
  // Of causal passes, or of those that attend to all tokens. REQUIRES: head_dim, tokens and rates above 0.
  void add(double head_dim, double tokens, Line forward, std::optional<Line> backward,
           bool causal = true);
  // How many times as long FlashAttention-2 takes, forward and backward. REQUIRES: > 0.
  void set_fa2(std::array<double, 2> stretch) { fa2_ = stretch; }
  // As if no row of causal passes with heads of this size had been added. REQUIRES: a row is added before it is asked.
  void forget(double head_dim) {
    for (Heads& heads : causal_) heads.erase(std::log2(head_dim));
  }
  // REQUIRES: at least one row of causal passes; tokens and head_dim >= 1.
  [[nodiscard]] Duration time(const schedule::Attention& attention, Flop flop) const;

 private:
  struct Row {
    double log_rate, fixed_us;  // log2 of FLOP/s
  };
  using Curve = std::map<double, Row>;    // by log2 of tokens seen
  using Heads = std::map<double, Curve>;  // by log2 of head_dim
  [[nodiscard]] static Row row_of(const Heads& heads, double head_dim, double seen);

  using Passes = std::array<Heads, 2>;  // forward, backward
  Passes causal_, whole_;
  std::array<double, 2> fa2_ = {1, 1};
};

// Null: not measured there.
std::shared_ptr<const AttentionTable> attention_table(std::string_view device);

}  // namespace dovetail::models

// Reads the table of all GPUs once and interpolates it.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/attention_table.h"

#include "base/error.h"
#include "models/rates/device_tables.h"
#include "models/rates/gemm_files.h"

#include <cmath>
#include <functional>
#include <optional>

namespace dovetail::models {
namespace {

constexpr double kBackwardShare = 0.85;

// Two cells from `at` on: TFLOP/s and microseconds.
std::optional<AttentionTable::Line> line_of(const Cells& cells, std::size_t at) {
  const std::optional<double> rate = number_of(cells[at]);
  if (!rate) return std::nullopt;
  return AttentionTable::Line{FlopPerSecond(*rate * 1e12),
                              from_us(number_of(cells[at + 1]).value_or(0))};
}

}  // namespace

void AttentionTable::add(double head_dim, double tokens, Line forward, std::optional<Line> backward,
                         bool causal) {
  DOVETAIL_CHECK(head_dim > 0 && tokens > 0 && forward.rate.count() > 0) << tokens;
  const double seen = std::log2(causal ? tokens / 2 : tokens);
  Passes& passes = causal ? causal_ : whole_;
  const auto row = [](const Line& line, double share) {
    return Row{std::log2(share * line.rate.count()), to_us(line.fixed)};
  };
  passes[0][std::log2(head_dim)][seen] = row(forward, 1);
  passes[1][std::log2(head_dim)][seen] =
      backward ? row(*backward, 1) : row({forward.rate, forward.fixed}, kBackwardShare);
}

AttentionTable::Row AttentionTable::row_of(const Heads& heads, double head_dim, double seen) {
  const auto mean = [](const Row& below, const Row& above, double share) {
    return Row{std::lerp(below.log_rate, above.log_rate, share),
               std::lerp(below.fixed_us, above.fixed_us, share)};
  };
  const auto of_curve = [&](const Curve& curve) {
    return value_at(curve, seen, std::identity(), mean);
  };
  return value_at(heads, head_dim, of_curve, mean);
}

Duration AttentionTable::time(const schedule::Attention& attention, Flop flop) const {
  DOVETAIL_CHECK(!causal_[0].empty() && attention.tokens >= 1 && attention.head_dim >= 1)
      << attention.tokens;
  constexpr double kSmall = 64, kWide = 128;  // head sizes with kernels of their own
  const auto asked = static_cast<double>(attention.head_dim);
  const double computed = asked > kSmall && asked < kWide ? kWide : asked;
  const bool has_own = !attention.causal && !whole_[0].empty();
  const Row row = row_of((has_own ? whole_ : causal_)[attention.backward], std::log2(computed),
                         std::log2(static_cast<double>(attention.tokens)));
  const double stretch =
      attention.kernel == schedule::AttentionKernel::Fa2 ? fa2_.at(attention.backward ? 1 : 0) : 1;
  return from_us(
      stretch * (row.fixed_us + 1e6 * flop.count() * (computed / asked) / std::exp2(row.log_rate)));
}

// Microseconds of FlashAttention-2 over those of cuDNN (see the header).
constexpr double kFa2Forward = 527.16 / 263.06, kFa2Backward = 1483.88 / 787.63;

std::shared_ptr<const AttentionTable> attention_table(std::string_view device) {
  static const auto kTables = [] {
    auto tables = read_device_tables<AttentionTable>(
        attention_file(), [](AttentionTable& table, const Cells& cells) {
          table.add(number_of(cells[0]).value(), number_of(cells[1]).value(),
                    line_of(cells, 2).value(), line_of(cells, 4), cells[6] != "no");
        });
    for (const char* const hopper : {"h100", "h200"}) {
      tables.at(hopper)->set_fa2({kFa2Forward, kFa2Backward});
    }
    return tables;
  }();
  const auto found = kTables.find(device);
  return found == kTables.end() ? nullptr : found->second;
}

}  // namespace dovetail::models

// Reads the table of all GPUs once and interpolates it.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/attention_table.h"

#include "base/error.h"
#include "models/rates/gemm_files.h"

#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

namespace dovetail::models {
namespace {

constexpr double kBackwardShare = 0.85;

using Tables = std::map<std::string, std::shared_ptr<AttentionTable>, std::less<>>;

// Nothing: an empty cell.
std::optional<double> next_number(std::istringstream& row) {
  std::string cell;
  std::getline(row, cell, ',');
  if (cell.empty()) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  DOVETAIL_CHECK(error == std::errc() && value > 0) << "attention.csv: " << cell;
  return value;
}

// Two cells: TFLOP/s and microseconds.
std::optional<AttentionTable::Line> next_line(std::istringstream& row) {
  const std::optional<double> rate = next_number(row);
  const std::optional<double> fixed_us = next_number(row);
  if (!rate) return std::nullopt;
  return AttentionTable::Line{FlopPerSecond(*rate * 1e12), from_us(fixed_us.value_or(0))};
}

Tables read_tables() {
  Tables tables;
  std::istringstream text{std::string(attention_file())};
  std::string line;
  std::getline(text, line);  // the names of the columns
  while (std::getline(text, line)) {
    std::istringstream row(line);
    std::string device;
    std::getline(row, device, ',');
    const double head_dim = next_number(row).value();
    const double tokens = next_number(row).value();
    const AttentionTable::Line forward = next_line(row).value();
    std::shared_ptr<AttentionTable>& table = tables[device];
    if (!table) table = std::make_shared<AttentionTable>();
    table->add(head_dim, tokens, forward, next_line(row));
  }
  return tables;
}

}  // namespace

void AttentionTable::add(double head_dim, double tokens, Line forward,
                         std::optional<Line> backward) {
  DOVETAIL_CHECK(head_dim > 0 && tokens > 0 && forward.rate.count() > 0) << tokens;
  const double seen = std::log2(tokens / 2);
  const auto row = [](const Line& line, double share) {
    return Row{std::log2(share * line.rate.count()), to_us(line.fixed)};
  };
  forward_[std::log2(head_dim)][seen] = row(forward, 1);
  backward_[std::log2(head_dim)][seen] =
      backward ? row(*backward, 1) : row({forward.rate, forward.fixed}, kBackwardShare);
}

AttentionTable::Row AttentionTable::row_of(const Heads& heads, double head_dim, double seen) {
  const auto mean = [](const Row& below, const Row& above, double share) {
    return Row{std::lerp(below.log_rate, above.log_rate, share),
               std::lerp(below.fixed_us, above.fixed_us, share)};
  };
  // The row at `x` of entries whose rows `of` gives: linear between neighbours, else that of the edge.
  const auto between = [&](const auto& entries, double x, const auto& of) {
    const auto above = entries.lower_bound(x);
    if (above == entries.begin()) return of(above->second);
    const auto below = std::prev(above);
    if (above == entries.end()) return of(below->second);
    return mean(of(below->second), of(above->second),
                (x - below->first) / (above->first - below->first));
  };
  return between(heads, head_dim, [&](const Curve& curve) {
    return between(curve, seen, [](const Row& row) { return row; });
  });
}

Duration AttentionTable::time(const schedule::Attention& attention, Flop flop) const {
  DOVETAIL_CHECK(!forward_.empty() && attention.tokens >= 1 && attention.head_dim >= 1)
      << attention.tokens;
  constexpr double kSmall = 64, kWide = 128;  // head sizes with kernels of their own
  const auto asked = static_cast<double>(attention.head_dim);
  const double computed = asked > kSmall && asked < kWide ? kWide : asked;
  const Row row = row_of(attention.backward ? backward_ : forward_, std::log2(computed),
                         std::log2(static_cast<double>(attention.tokens)));
  return from_us(row.fixed_us + 1e6 * flop.count() * (computed / asked) / std::exp2(row.log_rate));
}

std::shared_ptr<const AttentionTable> attention_table(std::string_view device) {
  static const Tables kTables = read_tables();
  const auto found = kTables.find(device);
  return found == kTables.end() ? nullptr : found->second;
}

}  // namespace dovetail::models

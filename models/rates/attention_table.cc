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
#include <sstream>
#include <string>

namespace dovetail::models {
namespace {

constexpr double kBackwardShare = 0.85;

// The value at `x` of entries whose values `of` gives: linear between neighbours, else that of the edge.
template <class Entries, class Of>
double between(const Entries& entries, double x, Of of) {
  const auto above = entries.lower_bound(x);
  if (above == entries.begin()) return of(above->second);
  const auto below = std::prev(above);
  if (above == entries.end()) return of(below->second);
  const double share = (x - below->first) / (above->first - below->first);
  return of(below->second) + share * (of(above->second) - of(below->second));
}

using Tables = std::map<std::string, AttentionTable, std::less<>>;

double next_number(std::istringstream& row) {
  std::string cell;
  std::getline(row, cell, ',');
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  DOVETAIL_CHECK(error == std::errc() && value > 0) << "attention.csv: " << cell;
  return value;
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
    const double head_dim = next_number(row);
    const double tokens = next_number(row);
    tables[device].add(head_dim, tokens, FlopPerSecond(next_number(row) * 1e12));
  }
  return tables;
}

}  // namespace

void AttentionTable::add(double head_dim, double tokens, FlopPerSecond rate) {
  DOVETAIL_CHECK(head_dim > 0 && tokens > 0 && rate.count() > 0) << tokens;
  heads_[std::log2(head_dim)][std::log2(tokens / 2)] = std::log2(rate.count());
}

FlopPerSecond AttentionTable::rate(const schedule::Attention& attention) const {
  DOVETAIL_CHECK(!heads_.empty() && attention.tokens >= 1 && attention.head_dim >= 1)
      << attention.tokens;
  const double seen = std::log2(static_cast<double>(attention.tokens));
  const double forward = std::exp2(between(
      heads_, std::log2(static_cast<double>(attention.head_dim)),
      [&](const Curve& curve) { return between(curve, seen, [](double rate) { return rate; }); }));
  return FlopPerSecond(attention.backward ? kBackwardShare * forward : forward);
}

const AttentionTable* attention_table(std::string_view device) {
  static const Tables kTables = read_tables();
  const auto found = kTables.find(device);
  return found == kTables.end() ? nullptr : &found->second;
}

}  // namespace dovetail::models

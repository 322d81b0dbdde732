// Lays measured products on a grid, fills its holes, and interpolates.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/gemm_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "models/rates/gemm_files.h"

namespace dovetail::models {
namespace {

constexpr double kBf16Bytes = 2;

double flop_of(const std::array<double, 3>& mnk) { return 2 * mnk[0] * mnk[1] * mnk[2]; }
double bytes_of(const std::array<double, 3>& mnk) {
  return kBf16Bytes * (mnk[0] * mnk[2] + mnk[2] * mnk[1] + mnk[0] * mnk[1]);
}

// "256,32,64,2.6"
MeasuredGemm parse_row(std::string_view line, const std::string& where) {
  std::array<double, 4> numbers{};
  const char* at = line.data();
  const char* const end = line.data() + line.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, numbers[i]);
    const bool is_last = i + 1 == numbers.size();
    const bool ends_right = is_last ? next == end : next != end && *next == ',';
    if (error != std::errc() || !ends_right || !(numbers[i] > 0) || !std::isfinite(numbers[i])) {
      throw InputError(where + ": expected m,n,k,us, each a number above 0");
    }
    at = next + 1;
  }
  return {.extents = {numbers[0], numbers[1], numbers[2]}, .us = numbers[3]};
}

}  // namespace

std::vector<MeasuredGemm> read_gemms(const std::string& file, std::string_view text) {
  std::vector<MeasuredGemm> rows;
  std::int64_t number = 0;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (++number == 1 || line.empty()) continue;
    rows.push_back(parse_row(line, file + ":" + std::to_string(number)));
  }
  if (rows.empty()) throw InputError(file + ": expected rows of m,n,k,us");
  return rows;
}

GemmTable::GemmTable(std::string device, const std::vector<MeasuredGemm>& rows)
    : device_(std::move(device)) {
  DOVETAIL_CHECK(!rows.empty()) << "a table of products without rows";
  shortest_us_ = us_per_flop_ = us_per_byte_ = std::numeric_limits<double>::infinity();
  for (const MeasuredGemm& row : rows) {
    shortest_us_ = std::min(shortest_us_, row.us);
    us_per_flop_ = std::min(us_per_flop_, row.us / flop_of(row.extents));
    us_per_byte_ = std::min(us_per_byte_, row.us / bytes_of(row.extents));
    for (std::size_t axis = 0; axis < 3; ++axis) {
      axes_[axis].push_back(std::log(row.extents[axis]));
    }
  }
  for (std::vector<double>& axis : axes_) {
    std::ranges::sort(axis);
    axis.erase(std::unique(axis.begin(), axis.end()), axis.end());
  }
  quotients_.assign(axes_[0].size() * axes_[1].size() * axes_[2].size(),
                    std::numeric_limits<double>::quiet_NaN());
  for (const MeasuredGemm& row : rows) {
    Place place{};
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const auto at = std::ranges::lower_bound(axes_[axis], std::log(row.extents[axis]));
      place[axis] = static_cast<std::size_t>(at - axes_[axis].begin());
    }
    double& quotient = quotients_[index(place)];
    DOVETAIL_CHECK(std::isnan(quotient)) << "a product was measured twice";
    quotient = std::log(row.us / bare_us(row.extents));
  }
  fill_holes();
}

std::size_t GemmTable::index(const Place& place) const {
  return (place[0] * axes_[1].size() + place[1]) * axes_[2].size() + place[2];
}

double GemmTable::bare_us(const std::array<double, 3>& mnk) const {
  return shortest_us_ + std::max(flop_of(mnk) * us_per_flop_, bytes_of(mnk) * us_per_byte_);
}

void GemmTable::fill_holes() {
  const std::vector<double> measured = quotients_;
  Place place{};
  for (place[0] = 0; place[0] < axes_[0].size(); ++place[0]) {
    for (place[1] = 0; place[1] < axes_[1].size(); ++place[1]) {
      for (place[2] = 0; place[2] < axes_[2].size(); ++place[2]) {
        if (std::isnan(measured[index(place)])) {
          quotients_[index(place)] = from_neighbours(measured, place);
        }
      }
    }
  }
}

// Between two measured neighbours of an axis, on the line through them; with one alone, as that one, as if it were four times
// as far.
double GemmTable::from_neighbours(const std::vector<double>& known, const Place& place) const {
  constexpr double kOneSided = 4;
  double sum = 0;
  double weights = 0;
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::vector<double>& at = axes_[axis];
    const auto measured = [&](std::size_t i) {
      Place other = place;
      other[axis] = i;
      return known[index(other)];
    };
    std::size_t below = place[axis];
    while (below > 0 && std::isnan(measured(--below))) continue;
    std::size_t above = place[axis] + 1;
    while (above < at.size() && std::isnan(measured(above))) ++above;
    const bool has_below = below < place[axis] && !std::isnan(measured(below));
    const bool has_above = above < at.size();
    if (!has_below && !has_above) continue;
    double value = 0;
    double distance = 0;
    if (has_below && has_above) {
      distance = at[above] - at[below];
      const double share = (at[place[axis]] - at[below]) / distance;
      value = (1 - share) * measured(below) + share * measured(above);
    } else {
      const std::size_t one = has_below ? below : above;
      distance = kOneSided * std::abs(at[place[axis]] - at[one]);
      value = measured(one);
    }
    sum += value / (distance * distance);
    weights += 1 / (distance * distance);
  }
  return weights > 0 ? sum / weights : 0;
}

Duration GemmTable::time(const schedule::GemmWork& gemm) const {
  const std::array<double, 3> extents = {static_cast<double>(gemm.m * gemm.count),
                                         static_cast<double>(gemm.n), static_cast<double>(gemm.k)};
  Place below{};
  std::array<double, 3> share{};  // of the place above
  for (std::size_t axis = 0; axis < 3; ++axis) {
    const std::vector<double>& at = axes_[axis];
    const double wanted = std::clamp(std::log(extents[axis]), at.front(), at.back());
    const auto above = std::upper_bound(at.begin(), at.end(), wanted);
    below[axis] = static_cast<std::size_t>(above - at.begin()) - 1;
    if (below[axis] + 1 == at.size()) continue;
    share[axis] = (wanted - at[below[axis]]) / (at[below[axis] + 1] - at[below[axis]]);
  }
  double quotient = 0;
  for (std::size_t corner = 0; corner < 8; ++corner) {
    double weight = 1;
    Place place = below;
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const bool is_above = ((corner >> axis) & 1U) != 0;
      weight *= is_above ? share[axis] : 1 - share[axis];
      if (is_above) ++place[axis];
    }
    if (weight > 0) quotient += weight * quotients_[index(place)];
  }
  return from_us(bare_us(extents) * std::exp(quotient));
}

const GemmTable* gemm_table(std::string_view device, schedule::Operands operands) {
  static std::mutex reading;
  static std::map<std::string_view, GemmTable> tables;  // by the names of their files
  const std::scoped_lock lock(reading);
  for (const GemmFile& file : gemm_files()) {
    if (file.device != device || file.operands != operands) continue;
    const auto known = tables.find(file.name);
    if (known != tables.end()) return &known->second;
    const std::string path = "models/rates/gemm/" + std::string(file.name) + ".csv";
    return &tables.emplace(file.name, GemmTable(std::string(device), read_gemms(path, file.text)))
                .first->second;
  }
  return nullptr;
}

GemmTables gemm_tables(std::string_view device) {
  GemmTables tables;
  for (const schedule::Operands operands : kAllOf<schedule::Operands>) {
    const GemmTable* table = gemm_table(device, operands);
    if (table != nullptr) tables[operands] = table;
  }
  return tables;
}

std::vector<std::string> gemm_devices() {
  std::vector<std::string> names;
  for (const GemmFile& file : gemm_files()) {
    if (file.operands == schedule::Operands::Own) names.emplace_back(file.device);
  }
  return names;
}

}  // namespace dovetail::models

// Reads the table of all GPUs once, and looks a kind of kernel up in it.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/memory_rates.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <iterator>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/words.h"
#include "models/rates/gemm_files.h"

namespace dovetail::models {
namespace {

constexpr std::string_view kMeasured = "h100";  // whose shares others take

using RatesByDevice = std::map<std::string, std::shared_ptr<MemoryRates>, std::less<>>;

double number_in(const std::string& cell) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  DOVETAIL_CHECK(error == std::errc() && value >= 0) << "memory.csv: " << cell;
  return value;
}

RatesByDevice read_memory_rates() {
  RatesByDevice devices;
  std::istringstream text{std::string(memory_file())};
  std::string line;
  std::getline(text, line);  // the names of the columns
  while (std::getline(text, line)) {
    std::istringstream row(line);
    std::string device, access, dtype, columns, fixed_us, share;
    for (std::string* cell : {&device, &access, &dtype, &columns, &fixed_us, &share}) {
      std::getline(row, *cell, ',');
    }
    const auto kind = word_to<schedule::Access>(access);
    const auto type = word_to<schedule::DType>(dtype);
    DOVETAIL_CHECK(kind && (dtype.empty() || type)) << "memory.csv: " << line;
    std::shared_ptr<MemoryRates>& rates = devices[device];
    if (!rates) rates = std::make_shared<MemoryRates>();
    rates->add(*kind, type, static_cast<std::int64_t>(number_in(columns)),
               {.fixed = from_us(number_in(fixed_us)), .share = number_in(share)});
  }
  return devices;
}

}  // namespace

void MemoryRates::add(schedule::Access access, std::optional<schedule::DType> dtype,
                      std::int64_t columns, MemoryRate rate) {
  DOVETAIL_CHECK(rate.share > 0 && columns >= 0) << to_string(access);
  rows_[{access, dtype}][columns] = rate;
}

std::optional<MemoryRate> MemoryRates::rate(schedule::Access access, schedule::DType dtype,
                                            std::int64_t columns) const {
  using schedule::DType;
  const DType near = schedule::element_size(dtype) <= Bytes(2) ? DType::BF16 : DType::F32;
  auto found = rows_.find({access, dtype});
  if (found == rows_.end()) found = rows_.find({access, near});
  if (found == rows_.end()) found = rows_.find({access, std::nullopt});
  if (found == rows_.end()) return std::nullopt;
  const Rows& rows = found->second;
  const auto above = rows.lower_bound(columns);
  if (above == rows.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == rows.end()) return below->second;
  const auto log = [](std::int64_t value) {
    return std::log2(static_cast<double>(std::max<std::int64_t>(1, value)));
  };
  const double part = (log(columns) - log(below->first)) / (log(above->first) - log(below->first));
  return MemoryRate{
      .fixed = from_us(std::lerp(to_us(below->second.fixed), to_us(above->second.fixed), part)),
      .share = std::lerp(below->second.share, above->second.share, part)};
}

std::shared_ptr<const MemoryRates> memory_rates(std::string_view device) {
  static const RatesByDevice kDevices = read_memory_rates();
  const auto found = kDevices.find(device);
  return (found == kDevices.end() ? kDevices.find(kMeasured) : found)->second;
}

}  // namespace dovetail::models

// Reads the table of all GPUs once, and looks a kind of kernel up in it.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/memory_rates.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "base/words.h"
#include "models/rates/device_tables.h"
#include "models/rates/gemm_files.h"

namespace dovetail::models {
namespace {

constexpr std::string_view kMeasured = "h100";  // whose shares others take

void add_memory_row(MemoryRates& rates, const Cells& cells) {
  const auto access = word_to<schedule::Access>(cells[0]);
  const auto dtype = word_to<schedule::DType>(cells[1]);
  DOVETAIL_CHECK(access && (cells[1].empty() || dtype)) << "memory.csv: " << cells[0];
  rates.add(*access, dtype, static_cast<std::int64_t>(number_of(cells[2]).value()),
            {.fixed = from_us(number_of(cells[3]).value()), .share = number_of(cells[4]).value()});
}

const auto& all_memory_rates() {
  static const auto kDevices = read_device_tables<MemoryRates>(memory_file(), add_memory_row);
  return kDevices;
}

double log_of(std::int64_t columns) {
  return std::log2(static_cast<double>(std::max<std::int64_t>(1, columns)));
}

}  // namespace

void MemoryRates::add(schedule::Access access, std::optional<schedule::DType> dtype,
                      std::int64_t columns, MemoryRate rate) {
  DOVETAIL_CHECK(rate.share > 0 && columns >= 0) << to_string(access);
  rows_[{access, dtype}][log_of(columns)] = rate;
}

std::optional<MemoryRate> MemoryRates::rate(schedule::Access access, schedule::DType dtype,
                                            std::int64_t columns) const {
  using schedule::DType;
  const DType near = schedule::element_size(dtype) <= Bytes(2) ? DType::BF16 : DType::F32;
  auto found = rows_.find({access, dtype});
  if (found == rows_.end()) found = rows_.find({access, near});
  if (found == rows_.end()) found = rows_.find({access, std::nullopt});
  if (found == rows_.end()) return std::nullopt;
  const auto mean = [](const MemoryRate& below, const MemoryRate& above, double part) {
    return MemoryRate{.fixed = from_us(std::lerp(to_us(below.fixed), to_us(above.fixed), part)),
                      .share = std::lerp(below.share, above.share, part)};
  };
  return value_at(found->second, log_of(columns), std::identity(), mean);
}

std::string_view measured_for(std::string_view device) {
  return all_memory_rates().contains(device) ? device : kMeasured;
}

std::shared_ptr<const MemoryRates> memory_rates(std::string_view device) {
  return all_memory_rates().find(measured_for(device))->second;
}

}  // namespace dovetail::models

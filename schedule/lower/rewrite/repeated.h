// What the passes that repeat ops have in common: fresh ids, and the names of repetitions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace dovetail::schedule {

// Of ops, tensors, groups: behind the largest id.
template <class Items>
std::int32_t first_unused(const Items& items) {
  std::int32_t largest = -1;
  for (const auto& item : items) largest = std::max(largest, item.id.value);
  return largest + 1;
}

// "fc1.forward@3", of an earlier micro-step. What has no name, because nobody will read it, gets none.
inline std::string repeated_name(const std::string& name, std::int32_t micro_step) {
  if (name.empty()) return {};
  const std::string number = std::to_string(micro_step);
  std::string repeated;
  repeated.reserve(name.size() + 1 + number.size());
  repeated += name;
  repeated += '@';
  repeated += number;
  return repeated;
}

}  // namespace dovetail::schedule

// A table keyed by ids: a plain vector, because ids are small numbers.
//
// Loaders number things from 0 and readers refuse ids beyond kLargestId, so the vector has about as
// many entries as there are things. Look-ups are one load; filling it costs one allocation instead
// of one per entry.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/error.h"

namespace dovetail::schedule {

inline constexpr std::int32_t kLargestId = (1 << 24) - 1;

template <class IdType, class T>
class IdTable {
 public:
  // `absent` is what at() gives for an id that was never set.
  explicit IdTable(T absent = {}) : absent_(absent) {}

  T& operator[](IdType id) {
    DOVETAIL_CHECK(id.value >= 0 && id.value <= kLargestId) << "id " << id;
    const auto index = static_cast<std::size_t>(id.value);
    if (index >= values_.size()) values_.resize(index + 1, absent_);
    return values_[index];
  }
  [[nodiscard]] const T& at(IdType id) const {
    const auto index = static_cast<std::size_t>(id.value);
    return index < values_.size() ? values_[index] : absent_;
  }
  void reserve(std::size_t count) { values_.reserve(count); }

 private:
  T absent_;
  std::vector<T> values_;
};

}  // namespace dovetail::schedule

// The middle of a sample, in one convention: what is measured is reported as a value that was measured; and how late the
// latest of several is.
//
//   median({3, 1, 2})        2
//   median({4, 1, 3, 2})     3, the upper one of the two in the middle, never their mean
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"

namespace dovetail {

// REQUIRES: values is not empty. Cost: O(n).
template <class T>
T median(std::vector<T> values) {
  DOVETAIL_CHECK(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The same; `fallback` where there are no values.
template <class T>
T median_or(std::vector<T> values, T fallback) {
  return values.empty() ? fallback : median(std::move(values));
}

// Expected maximum of n independent standard normal values; 0 for n <= 1.
double expected_maximum(std::int64_t n);

}  // namespace dovetail

// Comparing device memory with known values: what the host asks and what the kernel answers.
//
// expected.h makes the tables, kernels.h compares.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/array.h"

#include <cstdint>

namespace dovetail::exec::values {

// One comparison of data[0 .. count) with sum[(first + i) mod 256] + the salts of block
// (first + i) / 256. All pointers but `data` point into the same upload (expected.h).
struct Salted {
  std::int32_t tensor = 0;
  std::int32_t bits = 12;  // of the pattern that belongs to it
  double factor = 1;
};
struct Comparison {
  const void* data = nullptr;  // nullptr: only the squares of the expected values are summed up
  std::int64_t count = 0;
  Element element = Element::F32;
  std::int64_t first = 0;
  std::int32_t sum = 0;    // index of the first of 256 entries in `sums`
  std::int32_t salts = 0;  // index of the first salt
  std::int32_t salt_count = 0;
  double tolerance = 0;
};
struct Found {
  unsigned long long wrong = 0;
  unsigned long long first = ~0ULL;  // smallest wrong index
  double squares = 0;                // of the expected values, where data is nullptr
};
struct ComparisonTables {
  const Comparison* comparisons = nullptr;
  const double* sums = nullptr;
  const Salted* salts = nullptr;
  Found* found = nullptr;    // one per comparison, initialised
  std::int32_t count = 0;    // of comparisons
  std::int64_t largest = 0;  // elements of the longest
};

}  // namespace dovetail::exec::values

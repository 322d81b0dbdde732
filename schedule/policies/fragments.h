// How parameters are cut into the fixed-size buckets of a sharded optimizer (rules A2 to A5).
//
//   shape of a bucket   cap 100 MiB in f32 over 8 ranks: shard 3,276,800 elements, bucket 8 of them.
//                       The cap is divided by the ranks and rounded down to 128 bytes, but a shard
//                       holds at least 128 bytes: a bucket is always a multiple of ranks x 128 bytes.
//   fragments           one tensor after another; each starts at the next aligned element and takes
//                       what room is left, the rest opens the next bucket. Buckets of 20 elements
//                       without alignment, tensors of 15, 45 and 5:
//
//                         bucket  0                1        2        3
//                         tensor  a 0-15, b 15-20  b 0-20   b 0-20   c 0-5
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"

namespace dovetail::schedule {

// In elements.
struct BucketShape {
  std::int64_t shard = 1;      // of one rank
  std::int64_t ranks = 1;      // of the group over which buckets are scattered
  std::int64_t alignment = 1;  // fragments start at multiples of it
  [[nodiscard]] std::int64_t size() const { return shard * ranks; }
  friend bool operator==(const BucketShape&, const BucketShape&) = default;
};

// REQUIRES: element is 128 bytes or a divisor of them, ranks > 0, cap >= 0.
BucketShape bucket_shape(Bytes cap, Bytes element, std::int64_t ranks);

// Elements [first, first + count) of a tensor, at `offset` of a bucket.
struct Fragment {
  std::size_t tensor = 0;  // position in the list that was packed
  std::size_t bucket = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::int64_t offset = 0;
  friend bool operator==(const Fragment&, const Fragment&) = default;
};

// In order of tensors, then of buckets; a tensor has at most one fragment per bucket.
// REQUIRES: sizes are positive.
std::vector<Fragment> pack_fragments(std::span<const std::int64_t> sizes, const BucketShape& shape);

}  // namespace dovetail::schedule

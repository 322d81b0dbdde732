// Sizes of shards and buckets of a sharded optimizer, and the cutting of parameters into fragments
// at their borders.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/fragments.h"

#include <algorithm>

#include "base/error.h"

namespace dovetail::schedule {

BucketShape bucket_shape(Bytes cap, Bytes element, std::int64_t ranks) {
  constexpr std::int64_t kAlignedBytes = 128;
  DOVETAIL_CHECK(element > Bytes(0) && kAlignedBytes % element.count() == 0) << element;
  DOVETAIL_CHECK(ranks > 0 && cap >= Bytes(0)) << ranks << " ranks, " << cap;
  const std::int64_t alignment = kAlignedBytes / element.count();
  const std::int64_t elements = cap.count() / element.count();
  const std::int64_t shard = elements / ranks / alignment * alignment;
  return {.shard = std::max(shard, alignment), .ranks = ranks, .alignment = alignment};
}

std::vector<Fragment> pack_fragments(std::span<const std::int64_t> sizes,
                                     const BucketShape& shape) {
  std::vector<Fragment> fragments;
  std::size_t bucket = 0;
  std::int64_t end = 0;  // of the last fragment of the bucket
  for (std::size_t tensor = 0; tensor < sizes.size(); ++tensor) {
    DOVETAIL_CHECK(sizes[tensor] > 0) << "tensor " << tensor;
    for (std::int64_t first = 0; first < sizes[tensor];) {
      std::int64_t start = (end + shape.alignment - 1) / shape.alignment * shape.alignment;
      if (start >= shape.size()) {
        ++bucket;
        start = 0;
      }
      const std::int64_t count = std::min(sizes[tensor] - first, shape.size() - start);
      fragments.push_back({tensor, bucket, first, count, start});
      end = start + count;
      first += count;
    }
  }
  return fragments;
}

}  // namespace dovetail::schedule

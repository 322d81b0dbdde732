// Sizes of collectives, copies and scalings on a bucket, from its layout.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/moved_bytes.h"

#include <algorithm>
#include <vector>

namespace dovetail::schedule {

Bytes part_size(const BucketLayout& layout, Part part) {
  return part == Part::Shard ? Bytes(layout.size.count() / layout.shards) : layout.size;
}

Bytes moved_bytes(const BucketLayout& layout, const Communicate& collective) {
  const bool shard = collective.kind == Collective::AllReduce && collective.part == Part::Shard;
  return part_size(layout, shard ? Part::Shard : Part::Whole);
}

Bytes moved_bytes(const BucketLayout& layout, const Scale& scale) {
  return part_size(layout, scale.part);
}

Bytes moved_bytes(const Program& program, const BucketLayout& layout, const Copy& copy) {
  // A tensor may lie in the bucket in several ranges, and is then named once or once for each.
  std::vector<TensorId> left = copy.gradients;
  std::ranges::sort(left);
  left.erase(std::unique(left.begin(), left.end()), left.end());
  std::vector<char> found(left.size(), 0);
  Bytes bytes;
  for (const BucketMember& member : layout.members) {
    const auto at = std::ranges::lower_bound(left, member.tensor);
    if (at == left.end() || *at != member.tensor) continue;
    const Tensor& tensor = program.tensor(member.tensor);
    bytes += element_size(tensor.dtype) * member.elements(tensor);
    found[static_cast<std::size_t>(at - left.begin())] = 1;
  }
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (found[i] == 0) bytes += program.tensor(left[i]).bytes();
  }
  return bytes;
}

}  // namespace dovetail::schedule

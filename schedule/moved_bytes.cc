// Sizes of commands.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/moved_bytes.h"

#include <algorithm>

namespace dovetail::schedule {

Bytes part_size(const BucketLayout& layout, Part part) {
  return part == Part::Shard ? Bytes(layout.size.count() / layout.shards) : layout.size;
}

Bytes moved_bytes(const BucketLayout& layout, const RunCollective& collective) {
  const bool shard = collective.kind == Collective::AllReduce && collective.part == Part::Shard;
  return part_size(layout, shard ? Part::Shard : Part::Whole);
}

Bytes moved_bytes(const BucketLayout& layout, const Scale& scale) {
  return part_size(layout, scale.part);
}

Bytes moved_bytes(const Program& program, const BucketLayout& layout, const Copy& copy) {
  Bytes bytes;
  for (const TensorId id : copy.gradients) {
    const Tensor& tensor = program.tensor(id);
    const auto member = std::ranges::find(layout.members, id, &Placement::tensor);
    bytes += member == layout.members.end() ? tensor.bytes()
                                            : element_size(tensor.dtype) * member->elements(tensor);
  }
  return bytes;
}

}  // namespace dovetail::schedule

// Cuts tensors at the borders of all members of buckets, and numbers the resulting cells: one for
// each piece and each place where it can lie. The interpreter then needs no arithmetic on ranges.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/memory.h"

#include <algorithm>
#include <iterator>

namespace dovetail::schedule::verification {

Memory::Memory(const Index& index) : index_(index) {
  join_accumulated();
  collect_cuts();
  number_cells();
}

TensorId Memory::root(TensorId tensor) const {
  while (joined_to_.at(tensor) >= 0) tensor = TensorId{joined_to_.at(tensor)};
  return tensor;
}

void Memory::join_accumulated() {
  for (const Op& op : index_.program.ops) {
    if (!std::holds_alternative<Accumulate>(op.effect) || op.writes.empty()) continue;
    for (const TensorId read : op.reads) {
      const TensorId a = root(op.writes.front());
      const TensorId b = root(read);
      if (a != b) joined_to_[std::max(a, b)] = std::min(a, b).value;
    }
  }
}

void Memory::collect_cuts() {
  for (const BucketLayout& bucket : index_.scheduled.buckets) {
    for (const BucketMember& member : bucket.members) {
      const Tensor& tensor = *index_.tensor(member.tensor);
      const std::int64_t end = member.first + member.elements(tensor);
      const TensorId of = root(member.tensor);
      if (member.first > 0) cuts_.push_back({of, member.first});
      if (end < tensor.numel()) cuts_.push_back({of, end});
    }
  }
  std::ranges::sort(cuts_);
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
}

std::int32_t Memory::piece_at(TensorId tensor, std::int64_t at) const {
  const TensorId of = root(tensor);
  const auto from = std::ranges::lower_bound(cuts_, Cut{of, 0});
  const auto to = std::ranges::upper_bound(cuts_, Cut{of, at});
  return static_cast<std::int32_t>(to - from);
}

void Memory::number_cells() {
  for (const Tensor& tensor : index_.program.tensors) {
    const std::int32_t pieces = 1 + (cuts_.empty() ? 0 : piece_at(tensor.id, tensor.numel()));
    own_[tensor.id] = {count(), pieces};
    tensor_of_.append(pieces, tensor.id);
  }
  first_packed_ = count();
  for (const BucketLayout& bucket : index_.scheduled.buckets) {
    std::vector<Place>& places = places_[bucket.bucket];
    for (const BucketMember& member : bucket.members) {
      const Tensor& tensor = *index_.tensor(member.tensor);
      const Cells all = own_.at(member.tensor);
      Place place{member.tensor, bucket.shards > 1, all, all};
      if (all.count > 1) {
        const std::int32_t first = piece_at(member.tensor, member.first);
        const std::int64_t end = member.first + member.elements(tensor);
        const std::int32_t last = end < tensor.numel() ? piece_at(member.tensor, end) : all.count;
        place.own = {all.first + first, last - first};
      }
      place.packed = place.own;
      if (bucket.mode == BucketMode::Copy) {
        place.packed.first = count();
        tensor_of_.append(place.own.count, member.tensor);
      }
      places.push_back(place);
      places_of_[member.tensor].push_back(place);
    }
  }
}

std::vector<Place> Memory::sharded_places(TensorId tensor) const {
  std::vector<Place> found;
  std::ranges::copy_if(places_of(tensor), std::back_inserter(found), &Place::cut);
  return found;
}

}  // namespace dovetail::schedule::verification

// Finds the ranges that a copy of a bucket moves, and those that its release frees.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/device/bucket_moves.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace dovetail::exec {

Packing packing_of(const DeviceMemory& memory, const schedule::Copy& copy) {
  const bool packs = copy.direction == schedule::CopyDirection::Pack;
  std::vector<Move> moves;
  std::int64_t largest = 0;
  for (const MemberRegion& member : memory.layout().members(copy.bucket)) {
    const auto moved = std::find(copy.gradients.begin(), copy.gradients.end(), member.tensor);
    if (moved == copy.gradients.end()) continue;
    const Region own = memory.layout().part_of(member);
    if (own.offset == member.region.offset || own.count == 0) continue;
    const Region& from = packs ? own : member.region;
    const Region& to = packs ? member.region : own;
    moves.push_back({.from = memory.at(from).data, .to = memory.at(to).data, .bytes = own.bytes()});
    largest = std::max(largest, own.bytes());
  }
  Packing packing = {.list = upload(memory.device(), moves), .moves = {}};
  packing.moves = {.list = packing.list.as<Move>(),
                   .count = static_cast<std::int32_t>(moves.size()),
                   .largest = largest};
  return packing;
}

Freeing freeing_of(const DeviceMemory& memory, BucketId bucket) {
  constexpr std::int64_t kPage = 4096;
  std::vector<Array> arrays;
  std::int64_t largest = 0;
  for (const Region& region : memory.layout().released(bucket)) {
    arrays.push_back(memory.at(region));
    largest = std::max(largest, region.count);
  }
  Freeing freeing = {.list = upload(memory.device(), arrays), .freed = {}};
  freeing.freed = {.list = freeing.list.as<Array>(),
                   .count = static_cast<std::int32_t>(arrays.size()),
                   .largest = largest,
                   .stride = arrays.empty() ? 1 : kPage / size_of(arrays[0].element)};
  return freeing;
}

}  // namespace dovetail::exec

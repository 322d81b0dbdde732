// Strong integer ids: an OpId is never mistaken for a BucketId.
//
// Ids are stable names given by whoever builds a value (a loader, a policy, lower); they are never
// positions in a list. They compare, hash and print as their number.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <ostream>

namespace dovetail {

template <class Tag>
struct Id {
  std::int32_t value = 0;

  friend constexpr auto operator<=>(const Id&, const Id&) = default;
  friend std::ostream& operator<<(std::ostream& out, Id id) { return out << id.value; }
};

using OpId = Id<struct OpTag>;
using TensorId = Id<struct TensorTag>;
using GroupId = Id<struct GroupTag>;  // a process group
using BucketId = Id<struct BucketTag>;
using TransferId = Id<struct TransferTag>;  // within one ScheduledProgram
using StreamId = Id<struct StreamTag>;  // 0 is the compute stream, 1.. are communication streams
using EventId = Id<struct EventTag>;
using CommandId = Id<struct CommandTag>;  // unique within one ScheduledProgram, all roles together
using Rank = Id<struct RankTag>;

}  // namespace dovetail

template <class Tag>
struct std::hash<dovetail::Id<Tag>> {
  std::size_t operator()(dovetail::Id<Tag> id) const noexcept {
    return std::hash<std::int32_t>{}(id.value);
  }
};

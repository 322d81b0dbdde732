// What a trace tells of PyTorch's FSDP2 (fully_shard): its groups of parameters, when each is gathered and reduced, how far
// ahead, and over how many ranks.
//
//   if (const auto sharding = sharding_of(trace, line)) {
//     sharding->groups[1].name             "layers.0"; the root's is ""
//     sharding->groups[1].backward         1: gathered again for backward, so its parameters were resharded after forward
//     sharding->backward_ahead             1: gathers are issued by the hook of the group before
//   }
//
// Source: FSDP2's own annotations (torch/distributed/fsdp/_fully_shard: "FSDP::all_gather (layers.0)" around a gather,
// "FSDP::pre_forward (..)" and "FSDP::pre_backward (..)" around the hook that issued it, "FSDP::post_backward_reduce (..)" around a
// reduce-scatter and, with replicas, the all-reduce behind it). A gather that its group's own hook issues is 0 ahead: it can still run
// beside the compute before it, as far as the host is ahead of the GPU.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/recording.h"
#include "recordings/timeline/rank_timeline.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {

// Counts are means over steps.
struct ShardedGroup {
  std::string name;
  std::int64_t elements = 0;  // reduced: of its parameters that learn, padding included; 0: unknown
  Bytes gathered{}, reduced{};  // a gather's result, a reduce-scatter's input; 0: unknown
  std::string gathered_as = {}, reduced_as = {};  // "BFloat16"; empty: unknown
  double forward = 0, backward = 0;               // gathers
  double reductions = 0, all_reduces = 0;
  friend bool operator==(const ShardedGroup&, const ShardedGroup&) = default;
};

struct Sharding {
  std::vector<ShardedGroup> groups;       // in the order of their first gather
  std::vector<std::int32_t> group_of;     // by RankTimeline::collectives; kNone: of no group
  std::vector<char> gathers_in_backward;  // likewise
  // How many groups ahead of the one that computes gathers are issued, in the middle; absent: none is.
  std::optional<std::int64_t> forward_ahead, backward_ahead;
  std::int64_t shards = 0, replicas = 1;  // 0: unknown
  std::int64_t backward_shards = 0;       // over so many ranks gathers for backward go; 0: unknown

  // Whether groups are gathered again for backward (reshard_after_forward), and what a rank would keep more were they not.
  [[nodiscard]] bool gathers_again() const;
  [[nodiscard]] Bytes kept_without() const;
  // Ranks that share a group's parameters between forward and backward (reshard_after_forward=2); 0: all shards.
  [[nodiscard]] std::int64_t resharded_to() const;
};

// Nothing where no collective is annotated as one of FSDP2's.
std::optional<Sharding> sharding_of(const Recording& trace, const RankTimeline& line);

}  // namespace dovetail::imports

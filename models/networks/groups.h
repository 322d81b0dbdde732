// The process groups of a job's layout: which ranks do what together (the order of ranks: Layout of job.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/networks/job.h"
#include "models/networks/layer_work.h"
#include "schedule/program.h"

namespace dovetail::jobs {

// So many ranks, each so far behind the one before.
struct GroupShape {
  std::int64_t size = 1, stride = 1;
  friend bool operator==(const GroupShape&, const GroupShape&) = default;
};
struct GroupShapes {
  GroupShape dense;  // over which gradients are summed
  std::optional<GroupShape> experts =
      std::nullopt;  // of experts, where they have a group of their own
  GroupShape
      replicas;  // of their shards, beside both; size 1 where replicas are not sharded themselves
  GroupShape tensor, context, expert;
};
// REQUIRES, here and below: complete(job).
GroupShapes group_shapes(const Job& job);

struct Groups {
  std::vector<schedule::ProcessGroup> all;  // by id
  // Over which gradients are summed: one group, or that of the shards and that of their replicas.
  std::vector<GroupId> of_dense;
  std::vector<GroupId> of_experts;
  GroupId tensor, context, expert;  // meaningful where the degree is above 1
  // The same place of the first and of the last stage, with tied weights in a pipeline (Megatron's embedding group).
  GroupId tied;

  [[nodiscard]] GroupId over(Over kind) const;
};

Groups groups_of(const Job& job);

}  // namespace dovetail::jobs

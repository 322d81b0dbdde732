// The process groups of a job's layout: which ranks do what together (the order of ranks: Layout of job.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/networks/job.h"
#include "models/networks/layer_work.h"
#include "schedule/program.h"

namespace dovetail::jobs {

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

// REQUIRES: complete(job).
Groups groups_of(const Job& job);

}  // namespace dovetail::jobs

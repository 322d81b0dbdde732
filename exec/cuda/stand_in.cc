// Cuts a plan down to rank 0, so that one GPU can stand in for a job of many: groups shrink to the
// rank itself, and what other ranks would send is left out.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/stand_in.h"

#include "exec/run.h"
#include "schedule/transfers.h"

#include <utility>
#include <variant>

namespace dovetail::exec::cuda {

schedule::ScheduledProgram as_one_rank(const schedule::ScheduledProgram& plan) {
  schedule::ScheduledProgram alone = plan;
  alone.program.world_size = 1;
  for (schedule::ProcessGroup& group : alone.program.groups) {
    group.ranks = {Rank{0}};
    group.instance_size = 0;
  }
  schedule::RankProgram role = role_of(plan, Rank{0});
  role.ranks = {Rank{0}};
  alone.roles.clear();
  alone.roles.push_back(std::move(role));
  for (schedule::BucketLayout& bucket : alone.buckets) {
    bucket.shards = 1;
    bucket.cut_over.reset();
  }
  // A recorded time of rank 0, where there is one per rank.
  for (schedule::Op& op : alone.program.ops) {
    auto* timed = std::get_if<schedule::TimedWork>(&op.work);
    if (timed != nullptr && timed->by_rank.size() > 1) timed->by_rank.resize(1);
  }
  schedule::link_transfers(alone);
  return alone;
}

}  // namespace dovetail::exec::cuda

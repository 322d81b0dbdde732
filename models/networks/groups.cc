// Lays ranks out on a mesh and cuts it along its dimensions.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/groups.h"

#include <string>
#include <utility>

#include "schedule/data_parallel.h"

namespace dovetail::jobs {

GroupId Groups::over(Over kind) const {
  if (kind == Over::ContextParallel) return context;
  return kind == Over::ExpertParallel ? expert : tensor;
}

Groups groups_of(const Job& job) {
  const Layout& l = job.layout;
  Groups groups;
  const auto add = [&](const std::string& name, std::int64_t size, std::int64_t stride) {
    const GroupId id{static_cast<std::int32_t>(groups.all.size())};
    groups.all.push_back({.id = id,
                          .name = name,
                          .ranks = schedule::strided_ranks(l.world(), size, stride),
                          .instance_size = size == l.world() ? 0 : size});
    return id;
  };
  // Replicas of a shard are dp apart at the outermost place of a stage.
  const std::int64_t copies = l.stage_ranks() / (l.ep * l.etp);
  const bool is_hybrid = l.dp > 1 && l.dp_shard > 1;
  const std::int64_t outer = is_hybrid ? l.dp : 1;
  const std::int64_t inner = l.dp * l.dp_shard / outer * l.cp;
  groups.of_dense = {add("dp", inner, l.tp)};
  groups.of_experts = groups.of_dense;
  const bool has_own = job.model.experts && (l.ep > 1 || l.etp != l.tp);
  if (has_own) groups.of_experts = {add("edp", copies / outer, l.ep * l.etp)};
  if (is_hybrid) {
    const GroupId replicas = add("hsdp", outer, l.stage_ranks() / outer);
    groups.of_dense.push_back(replicas);
    groups.of_experts.push_back(replicas);
  }
  if (l.tp > 1) groups.tensor = add("tp", l.tp, 1);
  if (l.cp > 1) groups.context = add("cp", l.cp, l.tp);
  if (l.ep > 1) groups.expert = add("ep", l.ep, l.etp);
  if (job.model.tied && l.pp > 1 && job.lora == 0) {
    groups.tied = GroupId{static_cast<std::int32_t>(groups.all.size())};
    schedule::ProcessGroup ends{.id = groups.tied, .name = "tied", .ranks = {}, .instance_size = 2};
    for (std::int64_t i = 0; i < l.stage_ranks(); ++i) {
      for (const std::int64_t stage : {std::int64_t{0}, l.pp - 1})
        ends.ranks.push_back(Rank{static_cast<std::int32_t>(stage * l.stage_ranks() + i)});
    }
    groups.all.push_back(std::move(ends));
  }
  return groups;
}

}  // namespace dovetail::jobs

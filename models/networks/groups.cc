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

GroupShapes group_shapes(const Job& job) {
  const Layout& l = job.layout;
  const std::int64_t copies = l.stage_ranks() / (l.ep * l.etp);
  const std::int64_t outer = l.dp > 1 && l.dp_shard > 1 ? l.dp : 1;
  GroupShapes shapes{.dense = {.size = l.dp * l.dp_shard / outer * l.cp, .stride = l.tp},
                     .replicas = {.size = outer, .stride = l.stage_ranks() / outer},
                     .tensor = {.size = l.tp, .stride = 1},
                     .context = {.size = l.cp, .stride = l.tp},
                     .expert = {.size = l.ep, .stride = l.etp}};
  if (job.model.experts && (l.ep > 1 || l.etp != l.tp))
    shapes.experts = {.size = copies / outer, .stride = l.ep * l.etp};
  return shapes;
}

Groups groups_of(const Job& job) {
  const Layout& l = job.layout;
  const GroupShapes shapes = group_shapes(job);
  Groups groups;
  const auto add = [&](const std::string& name, const GroupShape& shape) {
    const GroupId id{static_cast<std::int32_t>(groups.all.size())};
    groups.all.push_back({.id = id,
                          .name = name,
                          .ranks = schedule::strided_ranks(l.world(), shape.size, shape.stride),
                          .instance_size = shape.size == l.world() ? 0 : shape.size});
    return id;
  };
  // Replicas of a shard are dp apart at the outermost place of a stage.
  groups.of_dense = {add("dp", shapes.dense)};
  groups.of_experts = groups.of_dense;
  if (shapes.experts) groups.of_experts = {add("edp", *shapes.experts)};
  if (shapes.replicas.size > 1) {
    const GroupId replicas = add("hsdp", shapes.replicas);
    groups.of_dense.push_back(replicas);
    groups.of_experts.push_back(replicas);
  }
  if (l.tp > 1) groups.tensor = add("tp", shapes.tensor);
  if (l.cp > 1) groups.context = add("cp", shapes.context);
  if (l.ep > 1) groups.expert = add("ep", shapes.expert);
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

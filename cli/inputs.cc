// Bringing a workload and a cluster together.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/inputs.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "models/stand_in.h"
#include "models/workload.h"

namespace dovetail::cli {

std::int64_t reduction_ranks(const schedule::Program& program) {
  std::int64_t ranks = 1;
  for (const schedule::Reduction& reduction : program.reductions) {
    ranks = std::max(ranks, program.group(reduction.group).size());
  }
  return ranks;
}

Inputs load_inputs(const InputOptions& options) {
  if (options.cluster.empty()) {
    models::Workload workload =
        models::load_workload(options.workload, options.world, options.data_dir);
    if (!workload.own_machine) {
      throw InputError("workload \"" + options.workload +
                       "\" has no collective times of its own: name a machine with --cluster");
    }
    models::OwnMachine& own = *workload.own_machine;
    const std::string machine = own.costs.machine;
    return {std::move(workload.program), std::move(own.costs), std::move(own.all_reduce), machine,
            std::move(workload.notes)};
  }
  const models::Cluster cluster =
      models::load_cluster(options.cluster, options.data_dir + "/clusters");
  const std::int64_t world = options.world.value_or(cluster.ranks);
  models::Workload workload = models::load_workload(options.workload, world, options.data_dir);
  std::vector<std::string> notes;
  if (cluster.unit_kernel) {
    models::StandIn executable = models::stand_in(workload.program, cluster);
    workload.program = std::move(executable.program);
    if (executable.replaced > 0) {
      notes.push_back(std::to_string(executable.replaced) +
                      " measured ops stand in as repetitions of this machine's unit kernel");
    }
  } else {
    notes = workload.notes;
  }
  models::Costs costs = models::costs_for(cluster, workload.program);
  models::CollectiveTable table = models::collective_table(
      cluster, {schedule::Collective::AllReduce, reduction_ranks(workload.program)});
  for (std::string& note : models::assumptions(cluster, workload.program)) {
    notes.push_back(std::move(note));
  }
  return {std::move(workload.program), std::move(costs), std::move(table), cluster.name,
          std::move(notes)};
}

}  // namespace dovetail::cli

// Prints how far a policy's plans are above their lower bounds, and how long both take, over all models of the zoo and
// all shipped clusters; then the quantiles.
//
//   bound_gaps exact                          every pair
//   bound_gaps torch-ddp bert b200            pairs whose names hold these
//   bert_base b200x8    step  6707.1 us  gap  0.241 %  plan 0.52 s  bound 0.03 s  whole gradients ...
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "models/clusters/cluster.h"
#include "models/networks/zoo.h"
#include "search/planner.h"

namespace dovetail {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Nothing where the policy does not apply or has no bound.
std::optional<double> gap_of(const std::string& model, const models::Cluster& machine,
                             const schedule::Policy& policy) {
  const schedule::Program program = models::zoo_program(model, {.world_size = machine.ranks});
  search::Planner planner(program, models::costs_for(machine, program));
  const auto start = std::chrono::steady_clock::now();
  const search::Weighed found = planner.try_policy(policy);
  if (!found.candidate || !found.candidate->bounded) return std::nullopt;
  const double planned = seconds_since(start);
  const search::Bound bound = planner.lower_bound(*found.candidate);
  const double all = seconds_since(start);
  const auto step = static_cast<double>(found.candidate->summary.step_ns);
  if (!bound.time) {
    std::printf("%s on %s: %s\n", model.c_str(), machine.name.c_str(), bound.problem.c_str());
    return std::nullopt;
  }
  const double gap = 100 * (step / static_cast<double>(bound.time->count()) - 1);
  std::printf("%-12s %-14s step %12.1f us  gap %8.4f %%  plan %5.2f s  bound %5.2f s  %s\n",
              model.c_str(), machine.name.c_str(), step / 1e3, gap, planned, all - planned,
              bound.schedules.c_str());
  std::fflush(stdout);
  return gap;
}

int print_gaps(int argc, char** argv) {
  const std::string data = std::string(DOVETAIL_SOURCE_DIR) + "/models/clusters";
  const schedule::Policy policy = schedule::parse_policy(argc > 1 ? argv[1] : "exact");
  std::vector<double> gaps;
  for (const std::string& model : models::zoo_names()) {
    if (argc > 2 && model.find(argv[2]) == std::string::npos) continue;
    for (const std::string& name : models::cluster_names(data)) {
      if (argc > 3 && name.find(argv[3]) == std::string::npos) continue;
      const models::Cluster machine = models::load_cluster(name, data);
      if (models::is_family(machine)) continue;
      if (const auto gap = gap_of(model, machine, policy)) gaps.push_back(*gap);
    }
  }
  if (gaps.empty()) return 1;
  std::ranges::sort(gaps);
  const auto at = [&](double share) {
    return gaps[static_cast<std::size_t>(share * static_cast<double>(gaps.size() - 1))];
  };
  std::printf("%zu pairs: median %.4f %%, 75 %% %.4f, 90 %% %.4f, 95 %% %.4f, worst %.4f\n",
              gaps.size(), at(0.5), at(0.75), at(0.9), at(0.95), at(1));
  return 0;
}

}  // namespace
}  // namespace dovetail

int main(int argc, char** argv) { return dovetail::print_gaps(argc, argv); }

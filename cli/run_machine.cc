// Finds the cluster file of each plan again, and says how far what was measured here can be compared with it.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/run_machine.h"

#include <optional>

#include "base/attempt.h"
#include "base/count.h"
#include "base/error.h"
#include "calibrate/noise/confidence.h"
#include "cli/text.h"
#include "models/clusters/cluster.h"

namespace dovetail::cli {
namespace {

// The cluster that a plan was made for, where it can be found.
std::optional<models::Cluster> cluster_of(const RunCommandOptions& options, const Loaded& plan) {
  const std::string& name = options.cluster.empty() ? plan.plan.summary.cluster : options.cluster;
  auto cluster =
      attempt([&] { return models::load_cluster(name, options.data_dir + "/clusters"); });
  if (!cluster && !options.cluster.empty()) throw InputError(cluster.error);
  return std::move(cluster.value);
}

std::string seconds(Duration time) { return fixed(to_us(time) / 1e6, 0) + " s"; }

}  // namespace

RunMachine machine_of(const RunCommandOptions& options, const std::vector<Loaded>& loaded) {
  RunMachine machine;
  for (const Loaded& one : loaded) {
    const std::optional<models::Cluster> cluster = cluster_of(options, one);
    if (!cluster || !testbed::is_of_this_machine(*cluster)) {
      throw InputError("run: --calibrate-between: " + one.path + " was made for " +
                       one.plan.summary.cluster +
                       "; name a file that calibrate wrote on this machine with --cluster");
    }
    machine.costs.push_back(models::costs_for(*cluster, one.plan.program));
    machine.shield = cluster->network_shield;
  }
  return machine;
}

std::string confidence_in_figures(const Result& result) {
  std::vector<testbed::Known> known;
  for (const PlanFound& plan : result.plans) known.push_back(plan.known);
  const testbed::Known worst = testbed::worst_of(known);
  const std::string effort = counted(result.measured.rounds.size(), "round") + " in " +
                             seconds(result.took) + ", costs measured between them";
  if (worst.is_enough()) {
    return "both figures of every plan are known to 1 % (" + effort + ")";
  }
  if (worst.quiet >= 1 || worst.typical >= 1) {
    return "too few steps to say how well the figures are known (" + effort + ")";
  }
  return "at worst the quiet step is known to " + fixed(100 * worst.quiet, 1) +
         " %, the typical step to " + fixed(100 * worst.typical, 1) + " % (" + effort + ")";
}

void find_made_elsewhere(const RunCommandOptions& options, const std::vector<Loaded>& loaded,
                         Result& result) {
  for (std::size_t i = 0; i < loaded.size(); ++i) {
    const std::optional<models::Cluster> cluster = cluster_of(options, loaded[i]);
    result.plans[i].elsewhere = cluster && !testbed::is_of_this_machine(*cluster);
  }
}

std::string confidence_in_plans(const RunCommandOptions& options, const std::vector<Loaded>& loaded,
                                const Result& result) {
  for (const Loaded& one : loaded) {
    if (!one.plan.summary.predicted) continue;
    const std::optional<models::Cluster> cluster = cluster_of(options, one);
    const std::string& name = one.plan.summary.cluster;
    if (!cluster && name != one.plan.summary.workload) {
      return "predicted for " + name +
             ", whose file is not known; name it with --cluster to hear whether the machine is as "
             "it was";
    }
    if (!cluster || !testbed::is_of_this_machine(*cluster)) {
      return "predicted and measured cannot be compared: " + one.path + " was made for " +
             one.plan.summary.cluster + ", not for this machine";
    }
    const std::optional<testbed::Drift> drift = testbed::drift_since(*cluster, result.disturbances);
    if (!drift) {
      return "predicted from " + one.plan.summary.cluster +
             ", which does not tell how disturbed the machine was; compare with "
             "--calibrate-between";
    }
    return std::string(drift->matters() ? "the machine is not as it was when it was calibrated, so "
                                          "the comparison means little"
                                        : "the machine is as it was when it was calibrated") +
           ": known work takes " + fixed(100 * drift->slower, 1, "+") +
           " %, a core was taken for " + fixed(100 * drift->taken_then, 1) + " % then and " +
           fixed(100 * drift->taken_now, 1) + " % now" +
           (drift->matters() ? "; compare with --calibrate-between" : "");
  }
  return {};
}

}  // namespace dovetail::cli

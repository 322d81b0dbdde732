// Reading cluster files again, and comparing reference loads.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/belief.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "base/count.h"
#include "base/error.h"
#include "cli/text.h"
#include "exec/machine.h"
#include "models/cluster.h"

namespace dovetail::cli {
namespace {

constexpr double kMostDrift = 0.02;  // of the reference load between calibration and run

// The cluster that a plan was made for, where it can be found.
std::optional<models::Cluster> cluster_of(const RunCommandOptions& options, const Loaded& plan) {
  const std::string& name = options.cluster.empty() ? plan.plan.summary.cluster : options.cluster;
  try {
    return models::load_cluster(name, options.data_dir + "/clusters");
  } catch (const InputError&) {
    if (!options.cluster.empty()) throw;
    return std::nullopt;
  }
}

bool is_of_this_machine(const models::Cluster& cluster) {
  return cluster.origin.ends_with(exec::this_machine().text());
}

std::string seconds(Duration time) { return fixed(to_us(time) / 1e6, 0) + " s"; }

}  // namespace

Machine machine_of(const RunCommandOptions& options, const std::vector<Loaded>& loaded) {
  Machine machine;
  for (const Loaded& one : loaded) {
    const std::optional<models::Cluster> cluster = cluster_of(options, one);
    if (!cluster || !is_of_this_machine(*cluster)) {
      throw InputError("run: --calibrate-between: " + one.path + " was made for " +
                       one.plan.summary.cluster +
                       "; name a file that calibrate wrote on this machine with --cluster");
    }
    machine.costs.push_back(models::costs_for(*cluster, one.plan.program));
    machine.shield = cluster->network_shield;
  }
  return machine;
}

std::string belief_in_figures(const Result& result) {
  Known worst = {.quiet = 0, .typical = 0};
  for (const Known& known : result.known) {
    worst.quiet = std::max(worst.quiet, known.quiet);
    worst.typical = std::max(worst.typical, known.typical);
  }
  const std::string effort = counted(result.measured.rounds.size(), "round") + " in " +
                             seconds(result.took) + ", costs measured between them";
  if (worst.quiet <= kWanted && worst.typical <= kWanted) {
    return "both figures of every plan are known to 1 % (" + effort + ")";
  }
  if (worst.quiet >= 1 || worst.typical >= 1) {
    return "too few steps to say how well the figures are known (" + effort + ")";
  }
  return "at worst the quiet step is known to " + fixed(100 * worst.quiet, 1) +
         " %, the typical step to " + fixed(100 * worst.typical, 1) + " % (" + effort + ")";
}

std::vector<bool> made_elsewhere(const RunCommandOptions& options,
                                 const std::vector<Loaded>& loaded) {
  std::vector<bool> elsewhere;
  for (const Loaded& one : loaded) {
    const std::optional<models::Cluster> cluster = cluster_of(options, one);
    elsewhere.push_back(cluster && !is_of_this_machine(*cluster));
  }
  return elsewhere;
}

std::string belief_in_plans(const RunCommandOptions& options, const std::vector<Loaded>& loaded,
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
    if (!cluster || !is_of_this_machine(*cluster)) {
      return "predicted and measured cannot be compared: " + one.path + " was made for " +
             one.plan.summary.cluster + ", not for this machine";
    }
    const auto& figures =
        cluster->quality ? cluster->quality->figures : std::map<std::string, double>();
    const auto taken = figures.find("core_taken_share");
    const auto work = figures.find("known_work_us");
    if (taken == figures.end() || work == figures.end()) {
      return "predicted from " + one.plan.summary.cluster +
             ", which does not tell how disturbed the machine was; compare with "
             "--calibrate-between";
    }
    double taken_now = 0;
    double work_now = 0;
    for (const traces::CoreRecord& record : result.disturbances) {
      taken_now = std::max(taken_now, traces::share_taken(record));
      work_now = std::max(work_now, to_us(record.quickest));
    }
    const double slower = work->second > 0 ? work_now / work->second - 1 : 0;
    const bool drifted =
        std::abs(taken_now - taken->second) > kMostDrift || std::abs(slower) > kMostDrift;
    return std::string(drifted ? "the machine is not as it was when it was calibrated, so the "
                                 "comparison means little"
                               : "the machine is as it was when it was calibrated") +
           ": known work takes " + fixed(100 * slower, 1, "+") + " %, a core was taken for " +
           fixed(100 * taken->second, 1) + " % then and " + fixed(100 * taken_now, 1) + " % now" +
           (drifted ? "; compare with --calibrate-between" : "");
  }
  return {};
}

}  // namespace dovetail::cli

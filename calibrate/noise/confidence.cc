// Compares the errors of figures with what is wanted, and two records of the same machine with each other.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/noise/confidence.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "exec/machine.h"

namespace dovetail::testbed {
namespace {

constexpr double kMostDrift = 0.02;  // of the reference load between calibration and run

}  // namespace

Known known_to(std::span<const Duration> steps) {
  return {.quiet = quiet_known_to(steps), .typical = typical_known_to(steps)};
}

Known worst_of(std::span<const Known> plans) {
  Known worst = {.quiet = 0, .typical = 0};
  for (const Known& known : plans) {
    worst.quiet = std::max(worst.quiet, known.quiet);
    worst.typical = std::max(worst.typical, known.typical);
  }
  return worst;
}

bool is_of_this_machine(const models::Cluster& cluster) {
  return cluster.origin.ends_with(exec::this_machine().text());
}

bool Drift::matters() const {
  return std::abs(taken_now - taken_then) > kMostDrift || std::abs(slower) > kMostDrift;
}

std::optional<Drift> drift_since(const models::Cluster& cluster, const traces::Disturbances& now) {
  if (!cluster.quality) return std::nullopt;
  const std::map<std::string, double>& figures = cluster.quality->figures;
  const auto taken = figures.find("core_taken_share");
  const auto work = figures.find("known_work_us");
  if (taken == figures.end() || work == figures.end()) return std::nullopt;
  Drift drift{.taken_then = taken->second};
  double work_now = 0;
  for (const traces::CoreRecord& record : now) {
    drift.taken_now = std::max(drift.taken_now, traces::share_taken(record));
    work_now = std::max(work_now, to_us(record.quickest));
  }
  if (work->second > 0) drift.slower = work_now / work->second - 1;
  return drift;
}

}  // namespace dovetail::testbed

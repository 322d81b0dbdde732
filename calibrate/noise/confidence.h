// How far the figures of a run may be trusted: how well they are known, and whether the machine is still the one
// that was calibrated.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

#include "base/units.h"
#include "calibrate/noise/step_figures.h"
#include "models/clusters/cluster.h"
#include "traces/disturbances.h"

namespace dovetail::testbed {

inline constexpr double kWanted = 0.01;  // figures are known well enough

// How well the two measured figures of a plan are known (step_figures.h), as shares; 1: not at all.
struct Known {
  double quiet = 1;
  double typical = 1;
  [[nodiscard]] bool is_enough() const { return quiet <= kWanted && typical <= kWanted; }
};
Known known_to(std::span<const Duration> steps);
// At worst, of several plans.
Known worst_of(std::span<const Known> plans);

// Whether the cluster file was calibrated on this machine.
bool is_of_this_machine(const models::Cluster& cluster);

// What changed between a calibration and a run, on the rank that is disturbed most.
struct Drift {
  double slower = 0;      // known work takes so much longer, as a share
  double taken_then = 0;  // shares of a core that others had
  double taken_now = 0;
  [[nodiscard]] bool matters() const;
};
// Nothing where the calibration does not tell how disturbed the machine was.
std::optional<Drift> drift_since(const models::Cluster& cluster, const traces::Disturbances& now);

}  // namespace dovetail::testbed

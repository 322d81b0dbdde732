// What may be believed of a run: whose machine its plans were made for, and how well figures are known.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "cli/run.h"
#include "cli/run_report.h"
#include "models/costs.h"

namespace dovetail::cli {

inline constexpr double kWanted = 0.01;  // figures are known well enough

// What the costs of a prediction come from: the cluster file, but for what is measured between rounds.
struct Machine {
  std::vector<models::Costs> costs;  // one per plan
  Duration shield{};
};

// Throws InputError for a plan that was not made for a calibration of this machine.
Machine machine_of(const RunCommandOptions& options, const std::vector<Loaded>& loaded);

// With costs of the same minutes: how well both sides are known.
std::string belief_in_figures(const Result& result);

// With costs of a cluster file: whether it is of this machine, and what changed since; "" where no plan has
// a prediction.
std::string belief_in_plans(const RunCommandOptions& options, const std::vector<Loaded>& loaded,
                            const Result& result);

// Which plans were made for a machine that is known to be another: their predictions have no error here.
std::vector<bool> made_elsewhere(const RunCommandOptions& options,
                                 const std::vector<Loaded>& loaded);

}  // namespace dovetail::cli

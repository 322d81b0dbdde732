// Whose machine the plans of a run were made for, and what may be trusted of the run's figures, in words.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/units.h"
#include "cli/run.h"
#include "cli/run_report.h"
#include "models/costs/costs.h"

namespace dovetail::cli {

// What the costs of a prediction come from: the cluster file, but for what is measured between rounds.
struct RunMachine {
  std::vector<models::Costs> costs;  // one per plan
  Duration shield{};
};

// Throws InputError for a plan that was not made for a calibration of this machine.
RunMachine machine_of(const RunCommandOptions& options, const std::vector<Loaded>& loaded);

// With costs of the same minutes: how well both sides are known.
std::string confidence_in_figures(const Result& result);

// With costs of a cluster file: whether it is of this machine, and what changed since; "" where no plan has
// a prediction.
std::string confidence_in_plans(const RunCommandOptions& options, const std::vector<Loaded>& loaded,
                                const Result& result);

// Which plans were made for a machine that is known to be another: their predictions have no error here.
void find_made_elsewhere(const RunCommandOptions& options, const std::vector<Loaded>& loaded,
                         Result& result);

}  // namespace dovetail::cli

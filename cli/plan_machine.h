// The machine that a plan is predicted on: the one that is named, else the one it was made for.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/costs.h"
#include "schedule/plan_json.h"

namespace dovetail::cli {

struct PlanMachineOptions {
  std::string command;   // for messages: "predict"
  std::string cluster;   // empty: the plan's own, if it is shipped or its workload's
  std::string data_dir;  // holds workloads/ and clusters/
};

struct PlanMachine {
  models::Costs costs;
  std::vector<std::string> notes;  // what is assumed, one line each
};

// The lower bound that the plan states, if it is predicted on the machine that it was made for: `cluster` is
// empty.
std::optional<Duration> bound_on(const schedule::Plan& plan, const std::string& cluster);

// Throws InputError where the plan's machine is a file that nobody named.
PlanMachine machine_of(const PlanMachineOptions& options, const schedule::Plan& plan);

}  // namespace dovetail::cli

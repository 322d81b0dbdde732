// The machine that a plan is predicted on: the one that is named, else the one it was made for.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "answers/inputs.h"
#include "base/units.h"
#include "schedule/plan_json.h"

namespace dovetail::predict {

struct PlanMachineOptions {
  std::string command;          // for messages: "predict"
  std::string cluster;          // empty: the plan's own, if it is shipped or its workload's
  std::string data_dir;         // holds workloads/ and clusters/
  models::WhatIf what_if = {};  // nothing: the plan's own, on its own machine
};

// The lower bound that the plan states, if it is predicted on the machine that it was made for: `cluster` is
// empty, and nothing else is asked of it.
std::optional<Duration> bound_on(const schedule::Plan& plan, const std::string& cluster,
                                 const models::WhatIf& what_if = {});

struct PlanAndMachine {
  schedule::Plan plan;
  Machine machine;
};

// The plan of a file with the durations of another workload, the same model measured anew, on
// `wanted.cluster`; where that is empty on the workload's own machine, if it brings one for the ranks that are asked
// for, else the plan's, with what was asked of that. Throws InputError, also where the plan's gradients are not all of the workload's gradients.
PlanAndMachine plan_on_workload(const std::string& path, InputOptions wanted);

// The step of a workload without a plan, which only one has that owes no reduction: all its collectives stand in it. Throws
// InputError for others.
PlanAndMachine step_as_it_stands(const InputOptions& wanted);

// The machine that `options` name, else the plan's own; the summary's `what_if` is then what was asked of it. Throws
// InputError where it is a file that nobody named.
Machine machine_of(PlanMachineOptions options, schedule::Plan& plan);

}  // namespace dovetail::predict

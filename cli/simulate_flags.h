// Binding explore, evaluate, plan, predict, explain and compare.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/command_line.h"
#include "cli/compare.h"
#include "cli/evaluate.h"
#include "cli/explain.h"
#include "cli/explore.h"
#include "cli/plan.h"
#include "cli/predict.h"

namespace dovetail::cli {

struct SimulateOptions {
  ExploreOptions explore;
  PlanOptions plan;
  PredictOptions predict;
  EvaluateOptions evaluate;
  ExplainOptions explain;
  CompareOptions compare;
};

// `options` outlives the parser; `action` is set by the subcommand that is named.
void bind_simulate_commands(CLI::App& app, SimulateOptions& options, Action& action);

}  // namespace dovetail::cli

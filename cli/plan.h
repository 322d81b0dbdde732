// dovetail plan: writes the Schedule of a policy, and what is predicted for it, to a plan file
// (schedule/plan_json.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

#include "cli/inputs.h"
#include "cli/page.h"
#include "cli/steady_trace.h"

namespace dovetail::cli {

struct PlanOptions {
  InputOptions inputs;
  std::string policy = "exact";
  std::string output;  // plan file
  std::string trace;   // also write the predicted trace; empty: none
  PageOptions page;
};

void plan(const PlanOptions& options, std::ostream& out);

// dovetail predict: simulates an existing plan on a cluster and writes the predicted trace.
struct PredictOptions {
  std::string plan;
  std::string cluster;  // empty: the plan's own, if it is shipped or its workload's
  std::string data_dir;
  std::string trace;     // output; empty: only the report
  std::string perfetto;  // likewise
  std::string costs;     // likewise: what everything was taken to cost (models/costs_json.h)
  bool timeline = false;
  std::int32_t steps = kTraceSteps;  // the median is reported; fewer than kTraceSteps: just these
  PageOptions page;
};

void predict(const PredictOptions& options, std::ostream& out);

}  // namespace dovetail::cli

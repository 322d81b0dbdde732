// dovetail plan: writes the Schedule of a policy, and what is predicted for it, to a plan file
// (schedule/plan_json.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

#include "answers/inputs.h"
#include "cli/page.h"
#include "cli/text.h"

namespace dovetail::cli {

struct PlanOptions {
  predict::InputOptions inputs;
  std::string policy;  // "": exact, or what the job decides
  std::string job;     // instead of inputs.workload
  std::string start;   // the Schedule of this plan file instead; empty: none
  std::string output;  // plan file; "-": standard output; empty: only print
  bool json = false;   // likewise
  std::string trace;   // also write the predicted trace; empty: none
  Detail detail;
  PageOptions page;
};

void plan(const PlanOptions& options, std::ostream& out);

}  // namespace dovetail::cli

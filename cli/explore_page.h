// The report of a sweep: curves for the rules of frameworks, over bucket sizes or over how far ahead parameters are
// gathered, and all of the best plan.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "answers/page/report.h"
#include "base/units.h"
#include "cli/answer.h"
#include "cli/page.h"
#include "schedule/plan_json.h"
#include "search/planner.h"
#include "search/sweep.h"

namespace dovetail::cli {

struct SweepOnPage {
  const PageOptions& page;
  const schedule::PlanSummary& summary;  // of the best, without what is predicted
  std::vector<std::string> notes;        // what the sweep assumes
  search::Planner& planner;
  const search::Sweep& sweep;
  std::vector<Bytes> thresholds;
  std::string json;  // of the sweep
  Answer answer;     // whose lines use the best, or that says why nothing is to be set
};

report::Report report_of(const SweepOnPage& sweep);

}  // namespace dovetail::cli

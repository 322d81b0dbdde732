// The report of a sweep: curves for the rules of frameworks, over bucket sizes or over how far ahead parameters are
// gathered, and all of the best plan.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "answers/exploration.h"
#include "answers/page/report.h"
#include "base/units.h"
#include "cli/answer.h"
#include "cli/page.h"

namespace dovetail::cli {

struct SweepOnPage {
  const PageOptions& page;
  answers::Exploration& one;  // whose planner draws the curves
  std::vector<Bytes> thresholds;
  std::string json;  // of the exploration
  Answer answer;     // whose lines use the best, or that says why nothing is to be set
};

report::Report report_of(const SweepOnPage& sweep);

}  // namespace dovetail::cli

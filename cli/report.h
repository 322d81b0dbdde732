// dovetail report: one HTML file with everything about a workload on a machine, about plans, or about traces.
//
//   dovetail report --workload resnet50 --cluster a100x8 -o report.html     a sweep, and all of its best plan
//   dovetail report plan.json -o report.html                                a plan
//   dovetail report plan.json predicted.json measured.json -o report.html   a plan as predicted and as measured
//
// --json prints the figures (schema dovetail.report/1) instead of the page.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "cli/explore.h"
#include "cli/page.h"

namespace dovetail::cli {

struct ReportOptions {
  ExploreOptions explore;          // without files
  std::vector<std::string> files;  // plans and traces
  std::string cluster;             // for plans; empty: each plan's own
  PageOptions page;
  bool json = false;
};

void report(const ReportOptions& options, std::ostream& out);

}  // namespace dovetail::cli

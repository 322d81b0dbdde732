// dovetail predict: simulates existing plans on machines, as a report, as a table of several, as JSON
// (dovetail.predict/1), as a predicted trace and as one Perfetto file with all plans.
//
//   plan       cluster   buckets  step ms  exposed ms  against best
//   best.json  a100x8          3   48.526       0.022       best
//   ddp.json   a100x8          5   49.061       0.118     +1.1 %
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "answers/prediction.h"
#include "cli/document.h"
#include "cli/page.h"
#include "cli/text.h"
#include "models/costs/what_if.h"
#include "schedule/data_parallel.h"

namespace dovetail::cli {

struct PredictOptions {
  std::vector<std::string> plans_by_flag;  // --plan
  std::vector<std::string> plans;          // by their place
  std::vector<std::string> clusters;  // none: each plan's own, if it is shipped or its workload's
  std::string workload;               // other durations for the same model; empty: the plan's own
  std::optional<schedule::DataParallel> layout;  // of the workload; absent: as it has it
  bool force = false;                            // take a capture that is not valid
  models::WhatIf what_if;                        // of the machines
  std::string data_dir;
  std::string trace;     // output; empty: only the report
  std::string perfetto;  // likewise
  std::string costs;     // likewise: what everything was taken to cost (models/costs/costs_json.h)
  bool timeline = false;
  bool critical_path = false;  // also print it
  std::int32_t steps =
      predict::kTraceSteps;  // the median is reported; fewer than kTraceSteps: just these
  Detail detail;
  DocumentOptions document;
  PageOptions page;
};

void predict(const PredictOptions& options, std::ostream& out);

}  // namespace dovetail::cli

// The reports of what was measured: a run, a comparison, a diagnosis.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "answers/page/report.h"
#include "cli/page.h"
#include "cli/run_report.h"
#include "recordings/diagnose/diagnosis.h"
#include "recordings/timeline/rank_set.h"
#include "traces/trace.h"

namespace dovetail::cli {

// One plan or several, each with its measured timeline. `json`: what the command prints with --json.
report::Report report_of_run(const PageOptions& page, const Result& result,
                             const std::vector<Loaded>& loaded, const std::string& json);

// REQUIRES: every step of both has a span.
report::Report report_of_comparison(const PageOptions& page, const traces::Trace& predicted,
                                    const traces::Trace& measured);

report::Report report_of_diagnosis(const PageOptions& page, const imports::JobTrace& job,
                                   const diagnose::Diagnosis& diagnosis, const std::string& json);

// Adds both timelines and the comparison.
void add_comparison(report::Report& report, const traces::Trace& predicted,
                    const traces::Trace& measured);

}  // namespace dovetail::cli

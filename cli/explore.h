// dovetail explore: what every policy and fusion threshold would cost, the best of them, and how
// far it can be from optimal.
//
//   resnet50 on a100x16_ib: 16 ranks, 161 gradients, 97.5 MiB; predicted (simulated), dovetail 0.1.0
//   policy                         buckets  step ms  exposed ms  against best
//   threshold 25 MiB                     4   48.664       0.067     +0.1 %
//   torch-ddp 25 MiB, first 1 MiB        5   49.114       0.118     +1.1 %
//   exact                                3   48.601       0.018       best
//   best: exact
//   no schedule of whole gradients in consecutive buckets on one stream is faster than 47.806 ms on
//   this model: gap 1.66 %                                                    (printed in one line)
//
// With several workloads or clusters: a row for each pair, with its best policy and what PyTorch DDP's
// default costs (dovetail.explorations/1, which holds the document of each pair).
//
// One row per policy and threshold; `exposed` is communication that nothing hides. Policies with k
// micro-steps per update are compared by the time of one (a column of its own, where there are any)
// and are never best among others. The last line bounds schedules that all-reduce each gradient once
// per step; if the best is none of these (sharded updates), the line names the best of them too.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/document.h"
#include "cli/page.h"
#include "predict/inputs.h"

namespace dovetail::cli {

struct ExploreOptions {
  predict::InputOptions inputs;        // but for workload and cluster:
  std::vector<std::string> workloads;  // one or more, or none and
  std::string job;                     // a job (explore_job.h)
  std::vector<std::string> clusters;   // none: the workload's own machine
  std::string thresholds;              // a range, or a list with commas; empty: 0.5MiB:128MiB
  std::optional<int> points;           // of a range, spaced evenly in log size; absent: 17
  std::string first_bucket;            // of torch-ddp; empty: 1MiB
  std::vector<std::string>
      policies;                    // lists of them with commas, or "all"; empty: what is comparable
  std::string framework;           // --for; empty: that of the policies, else torch
  std::string mode, wait;          // empty: the default of each policy
  std::vector<std::string> plans;  // plan files of the same workload: a row for each
  DocumentOptions document;
  bool yes = false;       // also where it takes hours
  bool all = false;       // every row of a job's table
  bool plot = false;      // draw the plot ...
  bool terminal = false;  // ... which is the default here
  PageOptions page;
};

// 0, or 130 where Ctrl-C ended the sweep: the report is of what was tried until then.
int explore(const ExploreOptions& options, std::ostream& out);

// The report of the sweep that `explore` would print, of the first workload on the first machine.
report::Report report_of_sweep(const ExploreOptions& options, const PageOptions& page);

}  // namespace dovetail::cli

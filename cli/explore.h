// dovetail explore: what every policy and fusion threshold would cost, the best of them, and how
// far it can be from optimal.
//
//   set:   DistributedDataParallel(model, gradient_as_bucket_view=True)
//   gives: 48.9 ms a step against 49.1 ms now (PyTorch DDP's default): 0.5 % less
//   left:  at most 0.51 %: no schedule of whole gradients ... is faster than 48.6 ms
//
//   resnet50 on a100x8: 8 ranks, 161 gradients, 97.5 MiB; predicted (simulated), dovetail 0.1.0
//   policy                                  buckets  step ms  exposed ms  against best
//   torch-ddp:cap=25MiB,first=1MiB,mode=view      5   48.855       0.169          best
//   torch-ddp:cap=25MiB,first=1MiB                5   49.117       0.018        +0.5 %
//   threshold:cap=512KiB                         39   49.227       0.049        +0.8 %
//   22 more rows: --all
//
// With several workloads or clusters: a row for each pair, with its best policy and what PyTorch DDP's
// default costs (dovetail.explorations/1, which holds the document of each pair).
//
// One row per policy and threshold, by step, named as --policies takes it; `exposed` is communication that nothing hides. Policies with k
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

#include "answers/inputs.h"
#include "base/units.h"
#include "cli/document.h"
#include "cli/page.h"
#include "cli/text.h"

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
  std::string framework;           // --framework; empty: that of the policies, else torch
  std::string mode, wait;          // empty: the default of each policy
  std::vector<std::string> plans;  // plan files of the same workload: a row for each
  DocumentOptions document;
  bool yes = false;    // also where it takes hours
  bool whole = false;  // of a job: play all micro-batches of every row
  Detail detail;
  bool plot = false;      // draw the plot ...
  bool terminal = false;  // ... which is the default here
  PageOptions page;
};

// 0, or 130 where Ctrl-C ended the sweep: the report is of what was tried until then.
int explore(const ExploreOptions& options, std::ostream& out);

// The report of the sweep that `explore` would print, of the first workload on the first machine.
report::Report report_of_sweep(const ExploreOptions& options, const PageOptions& page);

}  // namespace dovetail::cli

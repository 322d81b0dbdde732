// dovetail run: executes plans for real, checks every reduced gradient element, and lays the
// measured step time beside the predicted one.
//
//   both figures of every plan are known to 1 % (3 rounds in 50 s, costs measured between them)
//   dovetail 0.1.0; measured: cpu/ring, 2 ranks, link: namespaces dovetailN; vm, AMD EPYC, 2 cores
//   plan   buckets  quiet ms  measured   error  typical ms  measured   error  p90 ms  measured
//   exact       12    482.69    484.06  -0.3 %      484.71    488.57  -0.8 %  487.63    493.10
//   reference load, rank 0, core 0: 0.3 % of the core taken, in bursts of about 1.4 ms; ...
//   checked 3808392000 gradient elements, 0 wrong
//   measurement valid
//
// The first line says what may be believed. Without --calibrate-between predictions are those of the
// plans, there is one figure, the median, and the first line says whether the machine is as it was when
// it was calibrated. "valid" is a verdict on how quiet the machine was, not on the two figures.
//
// The report as JSON, schema dovetail.run/1. A row has measured_step_us (median), quiet_us, p10_us, p90_us and
// predicted_step_us, with --calibrate-between of the typical step, beside predicted_quiet_us, predicted_p10_us,
// predicted_p90_us and planned_step_us (of the plan); quiet_known_to and typical_known_to are shares.
// "yardstick" has a line per rank: taken_share, burst_us, known_work_us, slowdown.
//
// Several plans run interleaved, round by round, so that slow drift of the machine meets all of
// them alike.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "cli/cuda_job.h"
#include "cli/document.h"
#include "cli/job.h"
#include "cli/page.h"

namespace dovetail::cli {

struct RunCommandOptions {
  std::vector<std::string> plans;          // by their place
  std::vector<std::string> plans_by_flag;  // --plan; these come first
  std::vector<std::string> traces;         // one per plan, in order; may be fewer
  JobOptions job;
  BackendChoice backend;
  std::int32_t warmup = 1;
  std::int32_t steps = 5;  // per round
  std::int32_t rounds = 3;
  // Instead of `rounds`: until both figures of every plan are known to 1 %, at most this long.
  std::string time;
  // Measures costs between the rounds and predicts both figures from them. Needs the calibrated file that
  // the plans were made for (`cluster`, or where their own name is one) for collectives, host and
  // contention.
  bool calibrate_between = false;
  std::string cluster;
  std::string data_dir;
  bool yes = false;  // also where it takes hours
  // On GPUs: also time each plan with two events per step, none per command.
  bool two_events = false;
  bool exposed = false;  // also run each plan without communication, and report (traces/exposed.h)
  DocumentOptions document;
  PageOptions page;
};

// 0, 3 when a gradient element was wrong, or 130 where Ctrl-C ended it: the report is of the rounds until
// then.
int run(const RunCommandOptions& options, std::ostream& out);

}  // namespace dovetail::cli

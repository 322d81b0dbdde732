// dovetail run: executes plans for real, checks every reduced gradient element, and lays the
// measured step time beside the predicted one.
//
//   dovetail 0.1.0; measured: cpu/ring, 2 ranks, link: namespaces dovetailN; vm, AMD EPYC, 2 cores
//   plan                            buckets  predicted ms  measured ms     p10     p90    error
//   exact                                10        484.23       488.26  486.80  497.56   -0.8 %
//   torch-ddp:cap=25MiB,first=1MiB        3        576.02       583.16  576.78  591.18   -1.2 %
//   checked 3400350000 gradient elements, 0 wrong         (of this run's five plans two are shown)
//   measurement valid
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
#include "cli/job.h"

namespace dovetail::cli {

struct RunCommandOptions {
  std::vector<std::string> plans;
  std::vector<std::string> traces;  // one per plan, in order; may be fewer
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
  bool exposed = false;  // also run each plan without communication, and report (cli/exposed.h)
  bool json = false;
};

// 0, or 3 when a gradient element was wrong.
int run(const RunCommandOptions& options, std::ostream& out);

}  // namespace dovetail::cli

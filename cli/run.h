// dovetail run: executes plans for real, checks every reduced gradient element, and lays the
// measured step time beside the predicted one.
//
//   2 ranks, cpu/ring, dovetail0/1 network namespaces; measured on HOST, CPU, 2 cores
//   plan         policy                    predicted ms  measured ms  p10..p90       error
//   exact.json   exact                           484.15       486.02  485.1..487.9  -0.4 %
//   checked 90,676,000 elements, 0 wrong; measurement valid
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

#include "cli/job.h"

namespace dovetail::cli {

struct RunCommandOptions {
  std::vector<std::string> plans;
  std::vector<std::string> traces;  // one per plan, in order; may be fewer
  JobOptions job;
  std::int32_t warmup = 1;
  std::int32_t steps = 5;  // per round
  std::int32_t rounds = 3;
  bool json = false;
};

// 0, or 3 when a gradient element was wrong.
int run(const RunCommandOptions& options, std::ostream& out);

}  // namespace dovetail::cli

// Reads a job and joins its decisions with those that somebody named.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/job_flag.h"

#include "base/error.h"
#include "frameworks/framework.h"
#include "frameworks/jobs/job_source.h"
#include "models/networks/decisions.h"

namespace dovetail::cli {

jobs::Job job_of(const std::string& text) { return frameworks::load_job(text); }

void take_job(const std::string& text, predict::InputOptions& inputs) {
  if (!inputs.workload.empty()) throw InputError("--workload and --job: give one of them");
  inputs.job = job_of(text);
  inputs.workload = text;
}

std::string policy_of_job(const jobs::Job& job, const std::string& given) {
  if (given.empty()) return jobs::policy_text(job);
  return frameworks::parse_policy(given).decisions.stages ? given : jobs::policy_text(job, given);
}

}  // namespace dovetail::cli

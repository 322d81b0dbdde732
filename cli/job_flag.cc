// Reads a job and joins its decisions with those that somebody named.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/job_flag.h"

#include "frameworks/jobs/job_source.h"

namespace dovetail::cli {

jobs::Job job_of(const std::string& text) { return frameworks::load_job(text); }

}  // namespace dovetail::cli

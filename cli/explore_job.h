// `dovetail explore --job`: the job as asked beside what else its ranks could do, each with its step, the figures in which
// jobs are judged, its exposed communication by kind, its bubble and its peak of memory. Of a job without a layout: all
// layouts of its model over the machine's ranks.
//
// What does not fit into the device's memory is marked and is never best.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>

#include "cli/explore.h"

namespace dovetail::cli {

// REQUIRES: options.job is not empty. Throws InputError. 0, or 130 where Ctrl-C ended it.
int explore_job(const ExploreOptions& options, std::ostream& out);

}  // namespace dovetail::cli

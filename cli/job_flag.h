// --job of plan, explore and calibrate.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "models/networks/job.h"

namespace dovetail::cli {

// A job as --job says it. Throws InputError.
jobs::Job job_of(const std::string& text);

}  // namespace dovetail::cli

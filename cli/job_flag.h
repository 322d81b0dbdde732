// --job of plan and explore: a job in place of a workload, and the policy that it decides.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "answers/inputs.h"
#include "models/networks/job.h"

namespace dovetail::cli {

// A job as --job says it. Throws InputError.
jobs::Job job_of(const std::string& text);

// Puts the job that the text says into the inputs. Throws InputError, also where a workload is named, too.
void take_job(const std::string& text, predict::InputOptions& inputs);

// The job's own policy where `given` is empty; else what is given, with the job's stages and micro-batches unless it
// decides stages itself.
std::string policy_of_job(const jobs::Job& job, const std::string& given);

}  // namespace dovetail::cli

// dovetail export --job: a job in the words of the framework that shall run it (frameworks/jobs/job_export.h), with what that
// framework cannot be told and, on a machine, what it costs.
//
//   $ dovetail export --job llama3_8b:dp_shard=8,seq=8192,prefetch=2 --to torchtitan --cluster h100x8 -o train.toml
//   train.toml: a job as TOML, for torchtitan 0.2.2
//   predicted (simulated) 713.223 ms a step as it is run there, 713.223 ms as asked
//     given up: prefetch=2, 1 there: FSDP2 gathers the next layer by itself (--to fsdp2 has lists): +0.0 %
//   use: CONFIG_FILE=train.toml ./run_train.sh
//   to see it: dovetail explore --job train.toml --cluster h100x8
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

#include "cli/export.h"
#include "models/networks/job.h"

namespace dovetail::cli {

// REQUIRES: options.job is given and options.plan is not.
void export_job(const ExportCommandOptions& options, std::ostream& out);

// "dovetail export --job JOB --to torchtitan (or fsdp2)": what to do next with a job; empty where no framework can be
// told it. Of those that can those that give nothing up, where there are any. `text` is how the job is said, `cluster` where it was predicted.
std::string export_job_command(const jobs::Job& job, const std::string& text,
                               const std::string& cluster);

}  // namespace dovetail::cli

// dovetail validate job: what the log of a run says beside what is predicted of the job that ran.
//
//   of a step or rank      measured        p10 to p90  predicted          p5 to p95  ratio  inside
//   step ms                  8110.0  8050.0 to 8160.0     7209.6  5046.7 to 10598.1   1.12     yes
//   GiB allocated, rank 0      48.0                 -       49.6       40.2 to 62.5   0.97     yes
//
// The job is the log itself, where that begins with Megatron-LM's arguments, or stands beside its log. Steps behind the first ones count, memory is that
// of the rank that holds most, beside its own stage: what tensors take, and what PyTorch's allocator reserves for them. CUDA's context
// and NCCL's buffers are in neither.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ostream>
#include <string>

#include "cli/document.h"
#include "cli/text.h"

namespace dovetail::cli {

struct ValidateJobOptions {
  std::string job;      // as --job takes it
  std::string log;      // "": the job is the log
  std::string cluster;  // a shipped name or a file
  std::string gpu;      // another GPU or its book; "": the cluster's
  std::string data_dir;
  Detail detail = {};
};

// Throws InputError, where no step in the log is behind the first ones, too.
void validate_job(const ValidateJobOptions& options, const DocumentOptions& document,
                  std::ostream& out);

}  // namespace dovetail::cli

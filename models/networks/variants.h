// Jobs beside a job: what else the same ranks could do with the same batch.
//
//   variants(job)     single changes: recompute=full, zero=1, vp=2, ...; each with the options that differ
//   layouts(job, 64)  the model over 64 ranks: powers of two for tp, up to a node, and for pp; what is left as
//                     replicas with sharded optimizer states (zero=1) or as shards (dp_shard); experts whole, and over a node
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/networks/job.h"

namespace dovetail::jobs {

struct Variant {
  std::string change;  // in the words of text.h: "tp=4,dp=4"
  Job job;
};

// The job with these options of text.h; nothing where it does not hold together, or nothing changes.
std::optional<Job> with_options(const Job& job, const std::string& options);

std::vector<Variant> variants(const Job& job);

// Those that complete() takes; `node`: ranks of a node, the most that tp may have. What the job says beside degrees, zero
// and reshard is kept.
std::vector<Variant> layouts(const Job& job, std::int64_t world, std::int64_t node);

}  // namespace dovetail::jobs

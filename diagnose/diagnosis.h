// What a traced job loses, to what, and what each change would give.
//
//   Diagnosis diagnosis = diagnose(job);
//   diagnosis.headline        "host-bound: no bucket size will help; the GPU waits 163 of 222 ms ..."
//   diagnosis.ranks[0].causes[1].by[...]
//
// Nothing is answered by a replay that does not give the recorded step first (replay.h): then `what_ifs`
// and `buckets` are empty and the headline says so. Every gain is a difference of two replays, the
// recorded schedule's and the changed one's, as a mean over the steps. Its interval holds the error of the
// replay, the spread over the steps, and, for buckets, what is not known of sizes the trace has not seen.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "diagnose/bucket_advice.h"
#include "diagnose/causes.h"
#include "diagnose/replay.h"
#include "diagnose/traced.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::diagnose {

struct WhatIf {
  std::string change;  // "a network that takes no time"
  Gain gain;
};

struct RankDiagnosis {
  std::int64_t rank = 0;
  std::string file;
  ReplayModel model;
  ReplayError error;
  std::vector<ReplayedStep> recorded, replayed;  // by step
  std::vector<StepCauses> causes;                // by step
  std::vector<TracedBuckets> buckets;            // by step
  Contention contention;
  std::vector<WhatIf> what_ifs;
};

// Who was late, over all collectives.
struct LateRank {
  std::int64_t rank = 0;
  Duration caused{};        // waiting of the other ranks, summed
  std::string mostly_with;  // operator or annotation; empty: nothing stands out
  std::string mostly_in;    // the collective that waited most, "all-to-all of 24 KiB"
  std::size_t collectives = 0;
};

struct Diagnosis {
  std::string headline;
  std::vector<std::string> sentences;  // what else matters, by weight
  std::vector<RankDiagnosis> ranks;
  std::vector<LateRank> late;  // worst first; of several ranks
  std::optional<BucketAdvice> buckets;
  std::vector<std::string> unknowns;
};

// Settings of buckets are those of `framework`.
Diagnosis diagnose(const JobTrace& job,
                   const Framework& framework = frameworks::framework("torch"));

}  // namespace dovetail::diagnose

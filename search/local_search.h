// The local search: climbs from given placements with the evaluator, thousands of candidates in the time
// in which the simulator plays a few.
//
// Moves at each bucket: merge with the next, move the border to the next by 1, 2, 4, 8 or 16 gradients
// either way, split in the middle or at a quarter, launch 1 to 32 ops later or again when ready, swap with
// the next in launch order, wait elsewhere. All of them can be executed. The first move of a bucket that
// makes the step shorter is taken (a merge also where the step stays as long); rounds over all buckets go
// on until none helps. Deterministic: the limit counts evaluations, not seconds.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "search/step_model.h"

namespace dovetail::search {

struct LocalSearchOptions {
  std::int64_t evaluations = 4000;  // at most, over all starts
  std::size_t climbs = 3;           // from the best different starts
  bool delays = true;               // launches may be held back
  bool orders = false;              // buckets may be launched in another order than they are ready
  bool waits = false;               // the wait point may change
};

struct LocalSearchResult {
  Choices choices;
  sim::StepSummary summary;
  std::int64_t evaluations = 0;
};

// Nothing where no start can be evaluated. REQUIRES: as StepModel::evaluate, for every start.
std::optional<LocalSearchResult> local_search(const StepModel& model, std::vector<Choices> starts,
                                              const LocalSearchOptions& options);

}  // namespace dovetail::search

// The local search: climbs from given placements with the evaluator, hundreds of candidates in the time
// in which the simulator plays a few.
//
// Moves at each bucket: merge with the next, move the border to the next by 1, 2, 4, 8 or 16 gradients
// either way, split in the middle or at a quarter, launch 1 to 32 ops later or again when ready. All of them
// can be executed. The first move of a bucket that makes the step shorter is taken (a merge also where the step
// stays as long); rounds over all buckets go on until none helps. Then as many climbs from other numbers of buckets, as dense as
// the best ones are where these are (resampled), as long as that helps. Deterministic: the limit counts evaluations,
// not seconds.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "search/step_model.h"

namespace dovetail::search {

// As many buckets in all, as dense as those that end there: where these are small, the others are too. REQUIRES: ends rise to
// a number of gradients that is not less than `count`, both above 0.
std::vector<std::size_t> resampled(std::span<const std::size_t> ends, std::size_t count);
// Numbers of buckets near one that are worth trying: by one, by a quarter and by half more or less, from 1 to `most`.
std::vector<std::size_t> counts_near(std::size_t count, std::size_t most);

// A placement and its steady step.
struct Placed {
  Choices choices;
  Duration step{};
};

// Groupings: launches stay where they are. Delays: launches are held back first, and buckets are moved where that
// helped.
enum class Moves { Groupings, Delays };

struct LocalSearchOptions {
  Moves moves = Moves::Groupings;
  std::int64_t evaluations = 4000;  // at most, over all starts
  std::size_t climbs = 3;           // from the best different starts
  Duration enough = {};             // a step with which no other number of buckets is tried
};

struct LocalSearchResult {
  Placed best;
  std::int64_t evaluations = 0;
};

// REQUIRES: at least one start; as StepModel::evaluate, for every start.
LocalSearchResult local_search(const StepModel& model, std::vector<Placed> starts,
                               const LocalSearchOptions& options);

}  // namespace dovetail::search

// Whether several measurements of one collective over equally many ranks are repetitions of each other, or of
// different machines, links or settings: then their mean is the time of none.
//
// Repetitions are within a factor of each other at the sizes that they share: in the middle over all of these, and over
// their largest quarter, as small sizes take the same time on links of any speed. Of four and more measurements a
// single disturbed one does not count.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "schedule/program.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dovetail::imports {

struct TimedSize {
  Bytes bytes{};
  Duration time{};
};

// Where two measurements are farthest apart: which, and their medians at that size.
struct Gap {
  Bytes bytes{};
  Duration fast{}, slow{};
  std::size_t fast_of = 0, slow_of = 0;
};
double factor_of(const Gap& gap);

// Absent: as a whole all are repetitions, by this factor. Single sizes may differ by more all the same.
std::optional<Gap> contradiction(const std::vector<std::span<const TimedSize>>& measurements,
                                 double factor);

// The sizes at which repetitions are farther apart than this factor, rising: their mean is the time of none.
std::vector<Gap> contradictory_sizes(const std::vector<std::span<const TimedSize>>& measurements,
                                     double factor);

// "1 GiB takes 4.9 ms and 19.8 ms (383.5 and 94.9 GB/s busbw)"
std::string in_words(const Gap& gap, schedule::Collective collective, std::int64_t ranks);

}  // namespace dovetail::imports

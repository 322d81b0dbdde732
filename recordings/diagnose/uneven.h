// Whether ranks wait for one another because one has more to compute: experts with more tokens, longer sequences.
//
//   std::optional<Uneven> uneven = uneven_work(job);
//   uneven->gain             9 ms a step: were all as long as their mean
//   uneven->ranks[2].times   1.23 times the mean
//
// Between the begins of two collectives of the same ranks each rank computes for some time; all go on when the one with the most
// has. What the others wait is at least the difference, and with the same work spread evenly all would take the mean:
//   gain    over all such stretches, most - mean; at most what is waited for late ranks in all
// It is told where that explains half of the waiting for late ranks, and is a fiftieth of the step and more. Stages of a pipeline are
// not compared.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/diagnose/traced.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace dovetail::diagnose {

struct UnevenRank {
  std::int64_t rank = 0;
  Duration compute{};  // a step, of the stretches
  double times = 1;    // the mean of the ranks
};

struct Uneven {
  bool of_experts = false;        // most of it ends in all-to-alls
  Duration gain{};                // a step
  std::vector<UnevenRank> ranks;  // most first
  bool is_always_the_same =
      true;  // the rank with most has a twentieth more than the mean over all steps
};

std::optional<Uneven> uneven_work(const JobTrace& job);

}  // namespace dovetail::diagnose

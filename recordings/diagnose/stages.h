// A recorded pipeline in its own words: what its bubble should be, what it is, and what other schedules would leave of it.
//
//   bubble of 1F1B or GPipe      (P - 1)(F + B): P stages, F and B of a micro-batch on a stage, forward and backward
//   with v chunks a stage        (P - 1)(F + B) / v                                (Narayanan et al. 2021, section 2.2)
//   zero-bubble ZB-H1            (P - 1) F, weights' gradients taking half of B     (Qi et al. 2023, section 2.2)
//   2 M micro-batches            (P - 1)(F + B) / 2, of half as many samples each
//
// F and B are means over the given ranks of the compute within and outside of autograd's functions, without the optimizer's. The gains
// are the measured bubble in these proportions, as far as it is the schedule's: what is more comes of uneven or late stages, and no
// schedule mends that. At most: kernels of half as many samples take more than half. Leaves out memory.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/diagnose/causes.h"
#include "recordings/diagnose/traced.h"

#include <optional>
#include <vector>

namespace dovetail::diagnose {

struct Stages {
  imports::Pipeline pipeline;
  Duration forward{},
      backward{};  // of a micro-batch, over all chunks of a stage; zero: micro-batches are not known
  Duration bubble{};                      // measured, a step, mean of the ranks
  std::optional<Duration> of_schedule{};  // by the formula
  // A step less, at most; nothing where the formula has nothing to go by.
  std::optional<Duration> twice_the_micro_batches{}, twice_the_chunks{}, zero_bubble{};
};

// `causes`: of each rank by step. Nothing for a job that is no pipeline.
std::optional<Stages> stages_of(const JobTrace& job,
                                const std::vector<std::vector<StepCauses>>& causes);

}  // namespace dovetail::diagnose

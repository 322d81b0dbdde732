// Where a policy folds the factor of an average.
//
// The source's rule (P9 to P13): into the fill of the loss gradient if all process groups have one
// degree, else into optimizers that have a rescale factor, else the scale ops stay in the program.
// It is not followed where it would change results: where backward reads a reduced gradient, nothing
// is folded. Ours asks the same of every factor that a gradient owes, and never gives up more than
// one pass over each bucket. What is possible is the question of rewrite/scale.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "schedule/schedule.h"

namespace dovetail::schedule {

struct Scaling {
  ScaleAt at = ScaleAt::Collective;
  std::string reason = {};  // for the report
};

// As the option asks; without one, what the source decides. AfterCollective: its scale ops stay, one
// after each reduction.
Scaling source_scaling(const Program& program, std::optional<ScaleAt> asked);

// As the option asks; without one, the loss gradient if possible, else the optimizer, else once per
// bucket.
Scaling improved_scaling(const Program& program, std::optional<ScaleAt> asked);

// Why a policy with this scaling cannot be applied; nothing: it can.
std::optional<std::string> scaling_refusal(const Program& program, ScaleAt at);

}  // namespace dovetail::schedule

// Where a policy folds the factor of an average.
//
// The source's rule (P9 to P13): into the fill of the loss gradient if all process groups have one
// degree, else into optimizers that have a rescale factor, else the scale ops stay in the program.
// Ours asks the same of every factor that a gradient owes, and never gives up more than one pass
// over each bucket.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "schedule/schedule.h"

namespace dovetail::schedule {

struct Scaling {
  ScaleAt at = ScaleAt::Collective;
  std::string reason;  // for the report
};

// Why the factors cannot be applied there: the rule in words. Empty: they can.
std::optional<std::string> scaling_refusal(const Program& program, ScaleAt at);

// What the source decides. AfterCollective: its scale ops stay, one after each reduction.
Scaling source_scaling(const Program& program);

// The loss gradient if possible, else the optimizer, else once per bucket.
Scaling improved_scaling(const Program& program);

}  // namespace dovetail::schedule

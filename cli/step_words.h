// What plan and predict say of a step beside its time.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>

#include "sim/interval.h"

namespace dovetail::cli {

// How far the step strays, where the spread of costs was measured; else nothing.
//
//   p10 of the step 482.690 ms, median 484.710 ms, p90 487.630 ms: of 200 draws from the spread of ...
void print_figures(std::ostream& out, const std::optional<sim::StepInterval>& interval);

}  // namespace dovetail::cli

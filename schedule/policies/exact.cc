// exact: the grouping with the earliest last completion. It needs costs: search/planner.h solves it and
// calls partition().
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/definition.h"

namespace dovetail::schedule {

PolicyDefinition exact_policy() {
  return {.name = "exact",
          .purpose = "the grouping with the earliest last completion",
          .batches = {options::batch(), options::tail()},
          .decide = [](Decisions& decisions) { decisions.grouping = Searched{}; },
          .groups_by = "the grouping with the earliest last completion"};
}

}  // namespace dovetail::schedule

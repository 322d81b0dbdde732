// How much a plan's step depends on each cost: every part of the costs a share lower and higher, one at a time.
//
//   for (const SensitivityRow& row : sensitivity({program, costs, plan, usual}))
//     row.plan      the plan's steady step with these costs
//     row.best      that of a plan searched for them: row.plan / row.best - 1 is what the plan loses
//
// A plan whose loss stays small is the right one even where the costs are that much off.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "models/costs/costs.h"
#include "models/costs/scaled_costs.h"
#include "schedule/policies/policies.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

#include <optional>
#include <vector>

namespace dovetail::search {

inline constexpr double kSensitivityShare = 0.2;

struct SensitivityRow {
  models::CostPart part = models::CostPart::Link;
  double factor = 1;  // of the time
  Duration plan{};
  std::optional<Duration> usual = std::nullopt;  // of the usual policy, where it can be applied
  Duration best{};                               // at most `plan`
};

struct SensitivityOf {
  const schedule::Program& program;  // stages and all
  const models::Costs& costs;
  const schedule::Schedule& plan;
  std::optional<schedule::Policy> usual;  // nothing: no other is compared
};

// Parts in the order of kAllOf<CostPart>, each lower, then higher. Cost: a search for each row.
std::vector<SensitivityRow> sensitivity(const SensitivityOf& what);

}  // namespace dovetail::search

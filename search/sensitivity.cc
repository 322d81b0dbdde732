// Simulates a plan and searches again with each part of the costs scaled down and up, so that the
// loss of keeping the plan shows.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/sensitivity.h"

#include <algorithm>

#include "search/planner.h"
#include "search/same_kind.h"

namespace dovetail::search {
namespace {

SensitivityRow row_of(const SensitivityOf& what, models::CostPart part, double factor) {
  Planner planner(what.program, models::scaled(what.costs, part, factor));
  SensitivityRow row{.part = part, .factor = factor};
  row.plan = Duration(planner.evaluate(what.plan).step_ns);
  row.best = row.plan;
  const auto spec = searched_like(what.program, what.plan);
  if (spec && !planner.refusal_of(*spec)) {
    row.best = std::min(row.best, Duration(planner.evaluate(*spec).summary.step_ns));
  }
  if (what.usual && !planner.refusal_of(*what.usual)) {
    row.usual = Duration(planner.evaluate(*what.usual).summary.step_ns);
  }
  return row;
}

}  // namespace

std::vector<SensitivityRow> sensitivity(const SensitivityOf& what) {
  std::vector<SensitivityRow> rows;
  for (const models::CostPart part : kAllOf<models::CostPart>) {
    for (const double factor : {1 - kSensitivityShare, 1 + kSensitivityShare}) {
      rows.push_back(row_of(what, part, factor));
    }
  }
  return rows;
}

}  // namespace dovetail::search

// Simulates a plan and searches again with each part of the costs scaled down and up, so that the
// loss of keeping the plan shows.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/sensitivity.h"

#include <algorithm>

#include "search/planner.h"

namespace dovetail::search {
namespace {

// With the waits and copies of the plan, so that what differs is the grouping.
std::optional<schedule::Policy> search_like(const schedule::Schedule& plan, Planner& planner) {
  if (plan.merge.micro_steps != 1 || is_sharded(plan) || plan.buckets.empty()) return std::nullopt;
  const schedule::Bucket& first = plan.buckets.front();
  const schedule::Policy spec =
      schedule::placed(schedule::parse_policy("exact"),
                       {.mode = first.mode, .wait = first.wait, .scope = first.scope});
  if (planner.refusal_of(spec)) return std::nullopt;
  return spec;
}

SensitivityRow row_of(const SensitivityOf& what, models::CostPart part, double factor) {
  Planner planner(what.program, models::scaled(what.costs, part, factor));
  SensitivityRow row{.part = part, .factor = factor};
  row.plan = Duration(planner.evaluate(what.plan).step_ns);
  row.best = row.plan;
  if (const auto spec = search_like(what.plan, planner)) {
    row.best = std::min(row.best, Duration(planner.evaluate(*spec).summary.step_ns));
  }
  if (!planner.refusal_of(what.usual)) {
    row.usual = Duration(planner.evaluate(what.usual).summary.step_ns);
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

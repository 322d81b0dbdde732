// The alternatives of a workload on a machine: every policy that was tried, what there is now, and which one to set.
//
//   Exploration found = explore(given, options_of, run);
//   found.sweep.rows[found.sweep.best]     // what to set,
//   found.now                              // beside what there is now; the same row where no gain can be told
//   found.alike[3]                         // whether row 3 can be told from the best
//
// On a machine that nobody calibrated small differences cannot be told. Of the rows that cannot be told from the fastest the
// best is the one that asks least of who runs it: what there is now, then a setting, then a file; of these the one that holds
// the least memory, then the fastest. It can be told from what there is now, as the fastest can.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "answers/inputs.h"
#include "answers/prediction.h"
#include "answers/step_range.h"
#include "base/units.h"
#include "models/workloads/profile.h"
#include "schedule/plan_json.h"
#include "search/planner.h"
#include "search/recorded.h"
#include "search/sweep.h"
#include "sim/interval.h"

namespace dovetail::answers {

struct Exploration {
  predict::InputOptions given;
  schedule::PlanSummary summary = {};            // of a plan that is made of the best
  std::vector<std::string> notes = {};           // what the rows rest on, one line each
  std::vector<std::string> sharding_notes = {};  // besides, where a row shards updates
  std::optional<predict::HostBound> host_bound = std::nullopt;  // of the best row
  // Rows that cannot be told from the fastest that can be set; empty of a machine that was measured.
  std::vector<bool> alike = {};
  std::optional<models::RecordedStep> recorded = std::nullopt;  // the step as it was recorded
  // Of that step on its own machine: its gain, and whether it can be told.
  std::optional<search::RecordedAnswer> answer = std::nullopt;
  // The fastest row of those that can be set, where that is not the best as no gain can be told.
  std::optional<std::size_t> fastest = std::nullopt;
  std::optional<std::size_t> now = std::nullopt;  // the row of what there is now, if it was tried
  // Of the best row's step; absent: not known of such steps, or an average of micro-steps.
  std::optional<predict::StepRange> range = std::nullopt;
  std::optional<sim::StepInterval> interval = std::nullopt;
  std::optional<Bytes> capacity = std::nullopt;  // of a device
  search::Planner planner;
  search::Sweep sweep;

  [[nodiscard]] const search::SweepRow& best() const { return sweep.rows[sweep.best]; }
  // All that must be known, for documents and pages: host-bound first.
  [[nodiscard]] std::vector<std::string> all_notes() const;
};

// What is tried: policies, plans, sizes. Called once, with the Program.
using SweepOptionsOf = std::function<search::SweepOptions(const schedule::Program&)>;

// Runs the sweep, with whoever watches it.
using RunSweep = std::function<search::Sweep(search::Planner&, const search::SweepOptions&)>;

// Cost: beside the sweep, some simulations of each row that is near the best. Throws InputError.
Exploration explore(predict::InputOptions given, const SweepOptionsOf& options_of,
                    const RunSweep& run);

}  // namespace dovetail::answers

// The sweep of explore: every policy and threshold on one workload and machine.
//
// Rows with k micro-steps per update are compared by step time / k, but only rows with the fewest
// micro-steps of the sweep can be best: the others train with larger batches. Sharded updates can be best
// where they were asked for: they change which rank holds what.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "cli/explore.h"
#include "search/planner.h"

namespace dovetail::cli {

struct SweepRow {
  search::Candidate candidate;
  std::optional<Bytes> threshold;
  std::optional<Bytes> first_bucket;
};

struct Sweep {
  std::vector<SweepRow> rows;
  std::size_t best = 0;
  std::optional<std::size_t> best_bounded;  // of the rows that the lower bound bounds
  std::optional<Duration> lower_bound;      // absent with best_bounded, or with a reason:
  std::string bound_problem;                // why the bound that was found is none
  double gap = 0;                           // of best_bounded
  std::size_t simulated = 0;
  bool interrupted = false;           // by Ctrl-C: `rows` are those until then
  std::vector<std::string> left_out;  // policies, and steps of them, that do not apply, and why
};

std::int32_t micro_steps(const SweepRow& row);

// Of one micro-step.
double step_ns(const SweepRow& row);

// The thresholds that a text names, rising and distinct; "": the usual range. `points` is of a range.
// Throws InputError.
std::vector<Bytes> parse_thresholds(const std::string& text, std::optional<int> points);

// Those of the thresholds that leave a sharded policy, which cuts tensors, few buckets; of other policies all.
inline constexpr std::int64_t kMostCutBuckets = 1024;
std::vector<Bytes> thresholds_for(const schedule::PolicySpec& spec,
                                  const schedule::Program& program,
                                  const std::vector<Bytes>& thresholds);

// Throws InputError for a policy that cannot be compared and for options without effect.
Sweep run_sweep(search::Planner& planner, const ExploreOptions& options);

}  // namespace dovetail::cli

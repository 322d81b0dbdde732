// Each policy is weighed by the planner, which remembers equal Schedules; then the fastest row of those
// that train the same job is looked for, and laid beside the lower bound.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/sweep.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <utility>

namespace dovetail::search {
namespace {

using schedule::PolicyKind;
using schedule::PolicySpec;

// Sharded updates as Megatron overlaps them: parameters are gathered beside the next forward. Of the swept
// sizes the best one is shown.
constexpr std::string_view kShardedRule = "sharded:p=1,gather=next-forward";

// Adds the rows of one policy; fewer where the watch ends the sweep.
void add_rows(Sweep& sweep, Planner& planner, const SweptPolicy& policy,
              std::span<const Bytes> thresholds, const SweepWatch& watch) {
  PolicySpec spec = policy.spec;
  const auto add = [&](std::optional<Bytes> threshold) {
    SweepRow row{planner.evaluate(spec), threshold, {}};
    if (spec.kind == PolicyKind::TorchDdp) row.first_bucket = spec.first_bucket;
    sweep.rows.push_back(std::move(row));
    sweep.interrupted = !watch.goes_on();
  };
  if (policy.sizes == SweptPolicy::Sizes::Own) {
    add(is_swept(spec.kind) ? std::optional(spec.threshold) : std::nullopt);
    return;
  }
  for (const Bytes threshold : thresholds) {
    spec.threshold = threshold;
    add(threshold);
    if (sweep.interrupted) return;
  }
}

// The best of the thresholds, as one row.
SweepRow best_size(Planner& planner, PolicySpec spec, const std::vector<Bytes>& thresholds) {
  std::optional<SweepRow> best;
  for (const Bytes threshold : thresholds_for(spec, planner.program(), thresholds)) {
    spec.threshold = threshold;
    SweepRow row{planner.evaluate(spec), std::nullopt, {}};
    if (!best || step_ns(row) < step_ns(*best)) best = std::move(row);
  }
  return std::move(*best);
}

void find_best(Sweep& sweep, SweepOptions::Chosen chosen) {
  const auto better = [&](const SweepRow& a, const SweepRow& b) {
    if (micro_steps(a) != micro_steps(b)) return micro_steps(a) < micro_steps(b);
    const bool shards = a.candidate.sharded();
    if (chosen == SweepOptions::Chosen::Comparable && shards != b.candidate.sharded()) {
      return !shards;
    }
    if (step_ns(a) != step_ns(b)) return step_ns(a) < step_ns(b);
    return a.candidate.buckets() < b.candidate.buckets();
  };
  for (std::size_t i = 0; i < sweep.rows.size(); ++i) {
    if (better(sweep.rows[i], sweep.rows[sweep.best])) sweep.best = i;
    if (!sweep.rows[i].candidate.bounded) continue;
    if (!sweep.best_bounded || better(sweep.rows[i], sweep.rows[*sweep.best_bounded])) {
      sweep.best_bounded = i;
    }
  }
}

void find_bound(Sweep& sweep, const Planner& planner) {
  if (!sweep.best_bounded) return;
  const Candidate& found = sweep.rows[*sweep.best_bounded].candidate;
  Bound checked = checked_bound(planner.lower_bound(), found);
  sweep.lower_bound = checked.time;
  sweep.bound_problem = std::move(checked.problem);
  if (!sweep.lower_bound) return;
  const auto bound = static_cast<double>(sweep.lower_bound->count());
  sweep.gap = bound > 0 ? static_cast<double>(found.summary.step_ns) / bound - 1 : 0;
}

// Whether the policy applies; where nobody named it, one that does not is left out with its reason.
bool applies(Sweep& sweep, const Planner& planner, const PolicySpec& spec,
             SweepOptions::Chosen chosen) {
  const Planner::Fit fit = planner.fit_of(spec);
  if (chosen == SweepOptions::Chosen::Comparable && fit.refusal) {
    std::string line = std::string(schedule::name(spec.kind)) + ": " + *fit.refusal;
    if (std::ranges::find(sweep.left_out, line) == sweep.left_out.end()) {
      sweep.left_out.push_back(std::move(line));
    }
    return false;
  }
  for (const std::string& step : fit.left_out) {
    sweep.left_out.push_back(schedule::to_string(spec) + ": " + step);
  }
  return true;
}

}  // namespace

bool is_swept(PolicyKind kind) {
  return kind == PolicyKind::Threshold || kind == PolicyKind::TorchDdp;
}

std::vector<SweptPolicy> comparable_policies() {
  std::vector<SweptPolicy> policies;
  for (const std::string& name : schedule::policy_names()) {
    const PolicySpec spec = schedule::parse_policy(name);
    if (spec.kind == PolicyKind::Pipeline || spec.kind == PolicyKind::Fsdp) continue;
    policies.push_back(
        {spec, is_swept(spec.kind) ? SweptPolicy::Sizes::Each : SweptPolicy::Sizes::Own});
    // The best that DDP can be told stands beside the best.
    if (spec.kind == PolicyKind::Exact) {
      policies.push_back({schedule::parse_policy("exact:mode=copy,wait=end-of-backward")});
    }
  }
  policies.push_back({schedule::parse_policy(kShardedRule), SweptPolicy::Sizes::Best});
  return policies;
}

std::int64_t row_count(const SweepOptions& options) {
  std::size_t rows = 0;
  for (const SweptPolicy& policy : options.policies) {
    rows += policy.sizes == SweptPolicy::Sizes::Each ? options.thresholds.size() : 1;
  }
  return static_cast<std::int64_t>(rows);
}

std::int32_t micro_steps(const SweepRow& row) { return row.candidate.spec.merge.micro_steps; }

double step_ns(const SweepRow& row) {
  return static_cast<double>(row.candidate.summary.step_ns) / micro_steps(row);
}

std::vector<Bytes> log_range(Bytes low, Bytes high, int points) {
  std::set<Bytes> range;
  const double first = std::log(static_cast<double>(low.count()));
  const double last = std::log(static_cast<double>(high.count()));
  for (int i = 0; i < points; ++i) {
    const double at = first + (last - first) * i / (points - 1);
    range.insert(std::clamp(Bytes(std::llround(std::exp(at))), low, high));
  }
  return {range.begin(), range.end()};
}

std::vector<Bytes> thresholds_for(const PolicySpec& spec, const schedule::Program& program,
                                  const std::vector<Bytes>& thresholds) {
  if (spec.kind != PolicyKind::Sharded) return thresholds;
  Bytes total;
  for (const schedule::OwedGradient& gradient : schedule::owed_gradients(program)) {
    total += gradient.bytes;
  }
  std::vector<Bytes> few;
  for (const Bytes threshold : thresholds) {
    if (total.count() / threshold.count() < kMostCutBuckets) few.push_back(threshold);
  }
  if (few.empty()) few.push_back(thresholds.back());
  return few;
}

Sweep run_sweep(Planner& planner, const SweepOptions& options, const SweepWatch& watch) {
  Sweep sweep;
  for (const SweptPolicy& policy : options.policies) {
    if (!applies(sweep, planner, policy.spec, options.chosen)) continue;
    watch.begins(policy.spec.kind);
    if (policy.sizes == SweptPolicy::Sizes::Best) {
      sweep.rows.push_back(best_size(planner, policy.spec, options.thresholds));
      sweep.interrupted = !watch.goes_on();
    } else {
      add_rows(sweep, planner, policy, options.thresholds, watch);
    }
    if (sweep.interrupted) break;
  }
  find_best(sweep, options.chosen);
  static_cast<void>(planner.verified(sweep.rows[sweep.best].candidate.schedule));
  sweep.simulated = planner.simulated();
  find_bound(sweep, planner);
  return sweep;
}

}  // namespace dovetail::search

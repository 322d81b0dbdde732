// Each policy is weighed by the planner, which remembers equal Schedules; then the fastest row of those
// that train the same job is looked for, and laid beside the lower bound.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/sweep.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"

namespace dovetail::search {
namespace {

using schedule::PolicyKind;
using schedule::PolicySpec;

// Sharded updates as Megatron overlaps them: parameters are gathered beside the next forward. Of the swept
// sizes the best one is shown.
constexpr std::string_view kShardedRule = "sharded:p=1,gather=next-forward";

// So many sizes are all tried, of more those near the best of a few.
constexpr std::size_t kAllSizes = 17;

class Sweeper {
 public:
  Sweeper(Planner& planner, const SweepOptions& options, const SweepWatch& watch)
      : planner_(planner), options_(options), watch_(watch) {}

  Sweep run() {
    for (const NamedSchedule& plan : options_.plans) {
      watch_.begins(plan.name);
      planner_.add_start(plan.schedule);
      add({planner_.evaluate(plan), {}, {}});
      if (sweep_.interrupted) return std::move(sweep_);
    }
    for (const SweptPolicy& policy : options_.policies) {
      watch_.begins(std::string(schedule::name(policy.spec.kind)));
      add_rows(policy);
      if (sweep_.interrupted) break;
    }
    return std::move(sweep_);
  }

 private:
  // The rows of one policy; fewer where the watch ends the sweep, and none where the policy does not apply.
  void add_rows(const SweptPolicy& policy) {
    PolicySpec spec = policy.spec;
    switch (policy.sizes) {
      case SweptPolicy::Sizes::Own:
        if (auto row = row_of(spec)) {
          if (is_swept(spec.kind)) row->threshold = spec.threshold;
          tell_left_out(*row);
          add(*std::move(row));
        }
        return;
      case SweptPolicy::Sizes::Best:
        if (auto row = best_size(spec)) {
          tell_left_out(*row);
          add(*std::move(row));
        }
        return;
      case SweptPolicy::Sizes::Each:
        break;
    }
    for (const Bytes threshold : options_.thresholds) {
      spec.threshold = threshold;
      std::optional<SweepRow> row = row_of(spec);
      if (!row) return;
      row->threshold = threshold;
      if (threshold == options_.thresholds.front()) tell_left_out(*row);
      add(*std::move(row));
      if (sweep_.interrupted) return;
    }
  }

  void add(SweepRow row) {
    sweep_.rows.push_back(std::move(row));
    sweep_.interrupted = !watch_.goes_on();
  }

  // Nothing where the policy does not apply: then it is left out with its reason if nobody named it, else refused.
  std::optional<SweepRow> row_of(const PolicySpec& spec) {
    Weighed weighed = planner_.try_policy(spec);
    if (weighed.candidate) {
      SweepRow row{*std::move(weighed.candidate), {}, {}};
      if (spec.kind == PolicyKind::TorchDdp) row.first_bucket = spec.first_bucket;
      return row;
    }
    if (options_.chosen == SweepOptions::Chosen::Named) {
      throw InputError("policy " + schedule::to_string(spec) + ": " + weighed.refusal);
    }
    std::string line = std::string(schedule::name(spec.kind)) + ": " + weighed.refusal;
    if (std::ranges::find(sweep_.left_out, line) == sweep_.left_out.end()) {
      sweep_.left_out.push_back(std::move(line));
    }
    return std::nullopt;
  }

  void tell_left_out(const SweepRow& row) {
    for (const std::string& step : row.candidate.left_out) {
      sweep_.left_out.push_back(schedule::to_string(row.candidate.spec) + ": " + step);
    }
  }

  // The row of the best threshold. Of many thresholds a few are tried, evenly spaced, and then those halfway from the
  // best of them to its neighbours, until none is left between: the curve over sizes is nearly flat at its bottom.
  std::optional<SweepRow> best_size(PolicySpec spec) {
    const std::vector<Bytes> sizes = thresholds_for(spec, planner_.program(), options_.thresholds);
    std::optional<SweepRow> best;
    std::size_t at = 0;
    const auto try_size = [&](std::size_t i) {
      spec.threshold = sizes[i];
      std::optional<SweepRow> row = row_of(spec);
      if (!row || (best && step_ns(*row) >= step_ns(*best))) return;
      best = std::move(row);
      at = i;
    };
    std::size_t apart = (sizes.size() + kAllSizes - 1) / kAllSizes;
    for (std::size_t i = 0; i < sizes.size(); i += apart) {
      try_size(i);
      if (!best) return best;
    }
    while (apart > 1) {
      apart = (apart + 1) / 2;
      const std::size_t middle = at;
      if (middle >= apart) try_size(middle - apart);
      if (middle + apart < sizes.size()) try_size(middle + apart);
    }
    return best;
  }

  Planner& planner_;
  const SweepOptions& options_;
  const SweepWatch& watch_;
  Sweep sweep_;
};

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
  std::size_t rows = options.plans.size();
  for (const SweptPolicy& policy : options.policies) {
    rows += policy.sizes == SweptPolicy::Sizes::Each ? options.thresholds.size() : 1;
  }
  return static_cast<std::int64_t>(rows);
}

std::int32_t micro_steps(const SweepRow& row) { return row.candidate.schedule.merge.micro_steps; }

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
  Sweep sweep = Sweeper(planner, options, watch).run();
  find_best(sweep, options.chosen);
  static_cast<void>(planner.verified(sweep.rows[sweep.best].candidate.schedule));
  sweep.simulated = planner.simulated();
  find_bound(sweep, planner);
  return sweep;
}

}  // namespace dovetail::search

// Each policy is weighed by the planner, which remembers equal Schedules, as the framework runs it if it has words for it;
// then the fastest row that can be set and trains the same job is looked for, and laid beside the lower bound.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/sweep.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <set>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/interruption.h"
#include "frameworks/restriction.h"
#include "schedule/policies/definition.h"
#include "schedule/resident.h"

namespace dovetail::search {
namespace {

// Thread blocks are a setting of NCCL, whatever the framework is told.
void keep_ctas(const schedule::Schedule& asked, schedule::Schedule& there) {
  if (asked.buckets.empty()) return;
  for (schedule::Bucket& bucket : there.buckets) bucket.max_ctas = asked.buckets.front().max_ctas;
}

using schedule::Policy;

// The limits that a sweep changes, where the policy has some.
const schedule::ByLimits* limits_in(const Policy& policy) {
  if (!policy.decisions.grouping) return nullptr;
  return std::get_if<schedule::ByLimits>(&*policy.decisions.grouping);
}

// Sharded updates as Megatron overlaps them: parameters are gathered beside the next forward. Of the swept
// sizes the best one is shown.
constexpr std::string_view kShardedRule = "sharded:p=1,gather=next-forward";
// The same in whole tensors, grouped by the search.
constexpr std::string_view kShardedSearch = "sharded:p=1,gather=next-forward,mode=view+exact";

// So many sizes are all tried, of more those near the best of a few.
constexpr std::size_t kAllSizes = 17;

frameworks::Gradients gradients_of(const schedule::Program& program) {
  const std::vector<schedule::OwedGradient> owed = schedule::owed_gradients(program);
  if (owed.empty()) return {};
  return {.element = schedule::element_size(owed.front().dtype),
          .ranks = program.group(owed.front().group).size()};
}

// The limits of the framework's option in bytes, with this size or without one.
std::vector<Bytes> limits_of(const frameworks::Framework& framework, std::optional<Bytes> size,
                             const frameworks::Gradients& gradients) {
  const frameworks::SizeOption& option = *framework.size;
  const std::int64_t unit =
      option.unit == schedule::CountedIn::Bytes ? 1 : gradients.element.count();
  std::optional<std::int64_t> number;
  if (size) number = std::max<std::int64_t>(1, size->count() / unit);
  std::vector<Bytes> limits;
  for (const std::int64_t limit : option.limits(number, gradients.ranks)) {
    limits.emplace_back(limit * unit);
  }
  return limits;
}

class Sweeper {
 public:
  Sweeper(Planner& planner, const SweepOptions& options, const SweepWatch& watch)
      : planner_(planner),
        options_(options),
        watch_(watch),
        gradients_(gradients_of(planner.program())) {
    sweep_.framework = options.framework;
  }

  Sweep run() {
    try {
      add_all();
    } catch (const Interrupted&) {
      if (sweep_.rows.empty()) throw;
      sweep_.interrupted = true;
    }
    return std::move(sweep_);
  }

 private:
  void add_all() {
    if (options_.recorded) {
      watch_.begins("as recorded");
      add_recorded(*options_.recorded);
      if (sweep_.interrupted) return;
    }
    for (const NamedSchedule& plan : options_.plans) {
      watch_.begins(plan.name);
      planner_.add_start(plan.schedule);
      SweepRow row{planner_.evaluate(plan), {}, {}, {}};
      if (has_writer(*options_.framework)) run_there(row, by_file("a plan file"));
      add(std::move(row));
      if (sweep_.interrupted) return;
    }
    begin_searches();
    for (const SweptPolicy& policy : options_.policies) {
      watch_.begins(schedule::name(policy.spec));
      add_rows(policy);
      if (sweep_.interrupted) return;
    }
    if (options_.chosen == SweepOptions::Chosen::Named) add_nearest();
  }

  // It needs nothing to be set where the framework is the one that ran it.
  void add_recorded(const RecordedRun& run) {
    SweepRow row{planner_.evaluate(NamedSchedule{"as recorded", run.schedule}), {}, {}, {}};
    row.is_recorded = true;
    const bool is_its_own =
        !run.framework.empty() && options_.framework->id.starts_with(run.framework);
    if (is_its_own) {  // an older version, too
      row.said = frameworks::Said{.words = std::string(options_.framework->name) + " as recorded",
                                  .by = frameworks::ToldBy::Default};
    }
    add(std::move(row));
  }

  // What a search found, and how many candidates it simulated.
  struct Searched {
    Weighed weighed;
    std::optional<Bound> bound = std::nullopt;
    std::size_t simulated = 0;
  };

  // Searches take most of the time and know nothing of each other: each has a planner of its own, beside the other rows.
  void begin_searches() {
    for (const SweptPolicy& policy : options_.policies) {
      if (!schedule::is_searched(policy.spec)) continue;
      auto search = [this, spec = policy.spec] {
        Planner planner(planner_.program(), planner_.costs());
        for (const NamedSchedule& plan : options_.plans) planner.add_start(plan.schedule);
        Searched found{.weighed = planner.try_policy(spec)};
        const std::optional<Candidate>& candidate = found.weighed.candidate;
        if (candidate && candidate->bounded) found.bound = planner.lower_bound(*candidate);
        found.simulated = planner.simulated();
        return found;
      };
      searches_.emplace_back(policy.spec, std::async(std::launch::async, std::move(search)));
    }
  }

  // In its own planner where that has begun.
  Searched weigh(const Policy& spec) {
    const auto search = std::ranges::find(searches_, spec, &Search::first);
    if (search == searches_.end() || !search->second.valid()) return {planner_.try_policy(spec)};
    Searched found = search->second.get();
    sweep_.simulated += found.simulated;
    return found;
  }

  // The rows of one policy; fewer where the watch ends the sweep, and none where the policy does not apply.
  void add_rows(const SweptPolicy& policy) {
    Policy spec = policy.spec;
    switch (policy.sizes) {
      case SweptPolicy::Sizes::Own:
        if (auto row = row_of(spec, policy.is_named)) {
          // What was added beside the policies that were named is no point of a curve.
          if (policy.is_named && is_swept(spec)) row->threshold = bucket_size(spec);
          tell_left_out(*row);
          add(*std::move(row));
        }
        return;
      case SweptPolicy::Sizes::Best:
        if (auto row = best_size(spec, policy.is_named)) {
          tell_left_out(*row);
          add(*std::move(row));
        }
        return;
      case SweptPolicy::Sizes::Each:
        break;
    }
    for (const Bytes threshold : options_.thresholds) {
      std::optional<SweepRow> row =
          row_of(at_size(policy, threshold, planner_.program()), policy.is_named);
      if (!row) return;
      row->threshold = threshold;
      if (threshold == options_.thresholds.front()) tell_left_out(*row);
      add(*std::move(row));
      if (sweep_.interrupted) return;
    }
  }

  void add(SweepRow row) {
    row.resident = schedule::resident(planner_.program(), row.candidate.schedule).total();
    row.fits = !options_.capacity || row.resident <= *options_.capacity;
    sweep_.rows.push_back(std::move(row));
    sweep_.interrupted = !watch_.goes_on();
  }

  // Nothing where the policy does not apply: then it is left out with its reason if nobody named it, else refused.
  std::optional<SweepRow> row_of(const Policy& spec, bool is_named) {
    auto [weighed, bound, simulated] = weigh(spec);
    if (weighed.candidate) {
      SweepRow row{*std::move(weighed.candidate), {}, {}, {}};
      row.bound = std::move(bound);
      if (const schedule::ByLimits* limits = limits_in(spec)) row.first_bucket = limits->first;
      if (auto said = options_.framework->says(spec, gradients_)) {
        const std::vector<schedule::Bucket>& buckets = row.candidate.schedule.buckets;
        const std::int32_t ctas = buckets.empty() ? 0 : buckets.front().max_ctas;
        // A file gives it up, and says so.
        const bool is_told =
            said->by == frameworks::ToldBy::Setting || said->by == frameworks::ToldBy::Default;
        if (options_.chosen == SweepOptions::Chosen::Every &&
            said->by == frameworks::ToldBy::List) {
          said->words = frameworks::in_words(spec);  // its own framework's
        }
        if (ctas > 0 && is_told) said->words += ", NCCL_MAX_CTAS=" + std::to_string(ctas);
        run_there(row, *std::move(said));
      }
      return row;
    }
    if (is_named) {
      throw InputError("policy " + schedule::to_string(spec) + ": " + weighed.refusal);
    }
    leave_out(schedule::name(spec) + ": " + weighed.refusal);
    return std::nullopt;
  }

  void leave_out(std::string line) {
    if (std::ranges::find(sweep_.left_out, line) == sweep_.left_out.end()) {
      sweep_.left_out.push_back(std::move(line));
    }
  }

  // "PyTorch DDP (export --to torch)"
  [[nodiscard]] frameworks::Said by_file(const std::string& what) const {
    return {what + " (export --to " + std::string(options_.framework->id) + ")", "",
            frameworks::ToldBy::File};
  }

  // What the framework makes of the row, told like this; as it was where the framework cannot run it.
  void run_there(SweepRow& row, frameworks::Said said) {
    try {
      const bool by_file =
          said.by == frameworks::ToldBy::File || said.by == frameworks::ToldBy::List;
      if (by_file) require_names(*options_.framework, planner_.program());
      Candidate& candidate = row.candidate;
      schedule::Schedule schedule =
          as_run(*options_.framework, planner_.program(), candidate.schedule);
      if (!by_file) keep_ctas(candidate.schedule, schedule);
      const bool is_changed = schedule != candidate.schedule;
      const bool stays = options_.chosen == SweepOptions::Chosen::Every;
      if (is_changed && stays && !is_searched(candidate.spec)) return;
      if (is_changed) {
        candidate.summary = planner_.evaluate(schedule);
        candidate.bounded = planner_.is_bounded(schedule);
        row.bound.reset();
        candidate.schedule = std::move(schedule);
        row.is_changed = true;
      }
      row.said = std::move(said);
    } catch (const frameworks::CannotRun& refusal) {
      leave_out(std::string(options_.framework->name) + ": " + refusal.why());
    } catch (const InputError& error) {
      leave_out(std::string(options_.framework->name) + ": " + error.what());
    }
  }

  // Of the rows that somebody named and the framework cannot run as they stand: what it makes of the fastest, if that
  // is faster than all that it can run.
  void add_nearest() {
    const SweepRow* fastest = nullptr;
    for (const SweepRow& row : sweep_.rows) {
      if (row.said || row.is_recorded || row.candidate.sharded() || !row.fits) continue;
      if (fastest == nullptr || step_ns(row) < step_ns(*fastest)) fastest = &row;
    }
    if (fastest == nullptr || !has_writer(*options_.framework)) return;
    SweepRow nearest = *fastest;
    run_there(nearest, by_file(std::string(options_.framework->name)));
    const bool is_news = std::ranges::none_of(sweep_.rows, [&](const SweepRow& row) {
      return row.said && step_ns(row) <= step_ns(nearest);
    });
    if (nearest.said && is_news) add(std::move(nearest));
  }

  void tell_left_out(const SweepRow& row) {
    for (const std::string& step : row.candidate.left_out) {
      sweep_.left_out.push_back(schedule::to_string(row.candidate.spec) + ": " + step);
    }
  }

  // The row of the best threshold. Of many thresholds a few are tried, evenly spaced, and then those halfway from the
  // best of them to its neighbours, until none is left between: the curve over sizes is nearly flat at its bottom.
  std::optional<SweepRow> best_size(Policy spec, bool is_named) {
    const std::vector<Bytes> sizes = thresholds_for(spec, planner_.program(), options_.thresholds);
    std::optional<SweepRow> best;
    std::size_t at = 0;
    const auto try_size = [&](std::size_t i) {
      spec = with_bucket_size(std::move(spec), sizes[i]);
      std::optional<SweepRow> row = row_of(spec, is_named);
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
  frameworks::Gradients gradients_;
  Sweep sweep_;
  using Search = std::pair<Policy, std::future<Searched>>;
  std::vector<Search> searches_;  // last: they use all the others
};

// Whether what the framework does by itself shards updates: then a row that does so is the same training job.
bool shards_by_itself(const frameworks::Framework& framework) {
  return std::ranges::any_of(framework.usual, [](std::string_view policy) {
    return schedule::parse_policy(policy).decisions.sharding.has_value();
  });
}

void find_best(Sweep& sweep, const SweepOptions& options) {
  const bool may_shard =
      options.chosen == SweepOptions::Chosen::Named || shards_by_itself(*options.framework);
  const auto better = [&](const SweepRow& a, const SweepRow& b) {
    if (a.fits != b.fits) return a.fits;
    if (micro_steps(a) != micro_steps(b)) return micro_steps(a) < micro_steps(b);
    const bool shards = a.candidate.sharded();
    if (!may_shard && shards != b.candidate.sharded()) return !shards;
    if (step_ns(a) != step_ns(b)) return step_ns(a) < step_ns(b);
    return a.candidate.buckets() < b.candidate.buckets();
  };
  const auto better_to_set = [&](const SweepRow& a, const SweepRow& b) {
    if (a.fits != b.fits) return a.fits;
    return a.said.has_value() != b.said.has_value() ? a.said.has_value() : better(a, b);
  };
  for (std::size_t i = 0; i < sweep.rows.size(); ++i) {
    const SweepRow& row = sweep.rows[i];
    if (better_to_set(row, sweep.rows[sweep.best])) sweep.best = i;
    if (!row.said && (!sweep.beyond || better(row, sweep.rows[*sweep.beyond]))) sweep.beyond = i;
    if (!row.candidate.bounded) continue;
    if (!sweep.best_bounded || better(row, sweep.rows[*sweep.best_bounded])) {
      sweep.best_bounded = i;
    }
  }
  if (sweep.beyond && !better(sweep.rows[*sweep.beyond], sweep.rows[sweep.best])) {
    sweep.beyond.reset();
  }
}

void find_bound(Sweep& sweep, Planner& planner) {
  if (!sweep.best_bounded) return;
  const SweepRow& row = sweep.rows[*sweep.best_bounded];
  const Candidate& found = row.candidate;
  Bound bound = row.bound ? *row.bound : planner.lower_bound(found);
  sweep.lower_bound = bound.time;
  sweep.bounded_schedules = std::move(bound.schedules);
  sweep.bound_problem = std::move(bound.problem);
  if (!sweep.lower_bound) return;
  const auto least = static_cast<double>(sweep.lower_bound->count());
  sweep.gap = least > 0 ? static_cast<double>(found.summary.step_ns) / least - 1 : 0;
}

}  // namespace

bool is_swept(const Policy& policy) { return limits_in(policy) != nullptr; }

std::vector<SweptPolicy> usual_policies(const frameworks::Framework& framework,
                                        const schedule::Program& program) {
  std::vector<SweptPolicy> policies;
  if (framework.policy != nullptr) {
    policies.push_back({schedule::parse_policy(
        framework.policy(limits_of(framework, std::nullopt, gradients_of(program))))});
  }
  for (const std::string_view policy : framework.usual) {
    policies.push_back({schedule::parse_policy(policy)});
  }
  return policies;
}

std::optional<SweptPolicy> size_policy(const frameworks::Framework& framework,
                                       const schedule::Program& program) {
  if (framework.policy == nullptr) return std::nullopt;
  return SweptPolicy{usual_policies(framework, program).front().spec, SweptPolicy::Sizes::Each,
                     &framework};
}

std::vector<SweptPolicy> comparable_policies(const frameworks::Framework& framework,
                                             const schedule::Program& program) {
  std::vector<SweptPolicy> policies;
  const auto add = [&](const SweptPolicy& policy) {
    if (std::ranges::find(policies, policy) == policies.end()) policies.push_back(policy);
  };
  const auto add_all = [&](const std::vector<std::string_view>& texts, SweptPolicy::Sizes sizes) {
    for (const std::string_view text : texts) add({schedule::parse_policy(text), sizes});
  };
  for (const schedule::PolicyDefinition& definition : schedule::all_policies()) {
    const Policy spec = schedule::parse_policy(definition.name);
    if (spec.decisions.stages || spec.decisions.gathers || !definition.compared) continue;
    if (limits_in(spec) != nullptr && limits_in(spec)->first) {
      add({spec});
      for (const SweptPolicy& policy : usual_policies(framework, program)) add(policy);
      if (const auto sizes = size_policy(framework, program)) add(*sizes);
      continue;
    }
    add({spec, is_swept(spec) ? SweptPolicy::Sizes::Each : SweptPolicy::Sizes::Own});
    // What the framework can be told of it stands beside the best.
    if (is_searched(spec)) add_all(framework.more, SweptPolicy::Sizes::Own);
  }
  add({schedule::parse_policy(kShardedRule), SweptPolicy::Sizes::Best});
  add({schedule::parse_policy(kShardedSearch)});
  add_all(framework.swept, SweptPolicy::Sizes::Best);
  return policies;
}

std::vector<SweptPolicy> every_policy(const schedule::Program& program) {
  std::vector<SweptPolicy> policies;
  const auto add = [&](const SweptPolicy& policy) {
    if (std::ranges::find(policies, policy) == policies.end()) policies.push_back(policy);
  };
  for (const std::string& name : schedule::policy_names()) add({schedule::parse_policy(name)});
  for (const frameworks::Framework& framework : frameworks::all()) {
    for (const schedule::Preset& preset : framework.presets) {
      add({schedule::parse_policy(preset.stands_for)});
    }
    for (const SweptPolicy& policy : usual_policies(framework, program)) add(policy);
  }
  return policies;
}

std::optional<schedule::Policy> policy_of_now(const Policy& wanted,
                                              const schedule::Program& program) {
  if (wanted.decisions.stages) return std::nullopt;  // another Program
  const std::vector<SweptPolicy> usual = usual_policies(framework_of({{wanted}}), program);
  if (usual.empty()) return std::nullopt;
  Policy now = usual.front().spec;
  now.decisions.accumulation = wanted.decisions.accumulation;
  return now;
}

std::optional<std::size_t> row_of_now(const Sweep& sweep, const schedule::Program& program) {
  const auto recorded = std::ranges::find(sweep.rows, true, &SweepRow::is_recorded);
  if (recorded != sweep.rows.end()) {
    return static_cast<std::size_t>(recorded - sweep.rows.begin());
  }
  const std::vector<SweptPolicy> usual = usual_policies(*sweep.framework, program);
  const auto is_now = [&](const SweepRow& row) {
    if (row.candidate.plan || micro_steps(row) != micro_steps(sweep.rows[sweep.best])) return false;
    if (row.said && row.said->by == frameworks::ToldBy::Default) return true;
    Policy plain = row.candidate.spec;
    plain.decisions.accumulation.reset();
    return !usual.empty() && plain == usual.front().spec;
  };
  const auto row = std::ranges::find_if(sweep.rows, is_now);
  if (row == sweep.rows.end()) return std::nullopt;
  return static_cast<std::size_t>(row - sweep.rows.begin());
}

const frameworks::Framework& framework_of(const std::vector<SweptPolicy>& policies) {
  const frameworks::Framework* found = nullptr;
  for (const frameworks::Framework& framework : frameworks::all()) {
    if (!has_rows(framework)) continue;
    const bool says_all = std::ranges::all_of(policies, [&](const SweptPolicy& policy) {
      const std::optional<frameworks::Said> said = framework.says(policy.spec, {});
      // Who can be given any buckets one by one is not meant by every policy that makes buckets.
      return said && (framework.id == "torch" || said->by != frameworks::ToldBy::List);
    });
    if (says_all && (found == nullptr || (!has_writer(*found) && has_writer(framework)))) {
      found = &framework;
    }
  }
  return found != nullptr ? *found : frameworks::framework("torch");
}

Policy at_size(const SweptPolicy& policy, Bytes threshold, const schedule::Program& program) {
  Policy spec = with_bucket_size(policy.spec, threshold);
  if (policy.set_in == nullptr) return spec;
  const Policy set = schedule::parse_policy(
      policy.set_in->policy(limits_of(*policy.set_in, threshold, gradients_of(program))));
  spec.decisions.grouping = set.decisions.grouping;
  return spec;
}

std::int64_t row_count(const SweepOptions& options) {
  std::size_t rows = options.plans.size() + (options.recorded ? 1 : 0);
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

std::vector<Bytes> usual_thresholds() {
  constexpr int kPoints = 17;
  return log_range(kib(512), mib(128), kPoints);
}

std::vector<Bytes> thresholds_for(const Policy& spec, const schedule::Program& program,
                                  const std::vector<Bytes>& thresholds) {
  const auto& grouping = spec.decisions.grouping;
  if (!grouping || !std::holds_alternative<schedule::EqualSizes>(*grouping)) return thresholds;
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
  find_best(sweep, options);
  sweep.simulated += planner.simulated();
  if (sweep.interrupted) return sweep;
  static_cast<void>(planner.verified(sweep.rows[sweep.best].candidate.schedule));
  find_bound(sweep, planner);
  return sweep;
}

}  // namespace dovetail::search

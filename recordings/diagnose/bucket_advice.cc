// Each setting's buckets are forecast three times: as explore would, and with what makes a bucket dear or cheap where the
// trace does not say.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/bucket_advice.h"

#include "recordings/diagnose/trial.h"
#include "schedule/policies/policies.h"
#include "search/schedule_memo.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dovetail::diagnose {
namespace {

StepGradients gradients_of(const TracedWorkload& workload, std::int64_t ranks) {
  StepGradients gradients;
  gradients.ranks = ranks;
  for (const models::ProfiledGradient& gradient : workload.profile.gradients) {
    gradients.element = schedule::element_size(gradient.dtype);
    gradients.bytes.push_back(gradients.element * gradient.numel);
    gradients.ready.push_back(gradient.ready.front() -
                              workload.profile.gradients.front().ready.front());
  }
  return gradients;
}

Duration gain_in(const BucketSetting& setting) { return setting.gain.middle; }

// The ends of buckets that are runs of gradients in ready order; nothing of others.
std::optional<std::vector<std::size_t>> ends_of(const schedule::Program& program,
                                                const schedule::Schedule& schedule) {
  std::vector<std::size_t> ends;
  std::size_t next = 0;
  for (const schedule::Bucket& bucket : schedule.buckets) {
    for (const schedule::Slice& slice : bucket.gradients) {
      const bool follows =
          next < program.reductions.size() && program.reductions[next].gradient == slice.tensor;
      if (!follows) return std::nullopt;
      ++next;
    }
    ends.push_back(next);
  }
  return ends;
}

// What is weighed, and how.
class Adviser {
 public:
  Adviser(const JobTrace& job, const RankForecast& own, const Framework& framework)
      : own_(own),
        workload_(*own.workload),
        recorded_(*workload_.profile.recorded),
        framework_(framework),
        gradients_(gradients_of(workload_, job.least_world_size())),
        forecast_(workload_, workload_.profile),
        runs_(forecast_.buckets(workload_.ends, InFlight::Any)),
        gains_(program(), forecast_.planner().costs(),
               models::profile_bounds(workload_.profile, program()), runs_, recorded_.off()) {}

  BucketAdvice advice(const JobTrace& job) {
    BucketAdvice advice;
    advice.framework = &framework_;
    for (BucketCandidate& candidate : bucket_candidates(framework_, gradients_)) {
      schedule::Schedule buckets = forecast_.buckets(candidate.ends, candidate.in_flight);
      advice.settings.push_back(setting(std::move(candidate), std::move(buckets)));
    }
    std::vector<std::size_t> list;
    // Of the framework that was recorded explore's rows are settings; others make DDP's buckets in
    // their own way.
    if (framework_.id.starts_with(recorded_.framework)) {
      add_best_of_sweep(advice);
    } else {
      list = add_list(advice);
      // What is better for certain before what may be worse.
      const auto best = std::ranges::max_element(advice.settings, {}, [](const auto& setting) {
        return std::pair(setting.gain.low > Duration{}, gain_in(setting));
      });
      advice.best = static_cast<std::size_t>(best - advice.settings.begin());
    }
    finish(advice, job);
    if (!list.empty()) advice.given_up = given_up(advice.settings, list);
    return advice;
  }

 private:
  [[nodiscard]] const schedule::Program& program() { return forecast_.planner().program(); }
  [[nodiscard]] Duration gain_of(const std::vector<std::size_t>& ends) {
    return gains_.of(forecast_.buckets(ends, InFlight::Any)).middle;
  }

  BucketSetting setting(BucketCandidate candidate, schedule::Schedule buckets) {
    BucketSetting setting;
    static_cast<BucketCandidate&>(setting) = std::move(candidate);
    setting.schedule = std::move(buckets);
    setting.is_recorded = search::is_same(setting.schedule, runs_);
    setting.gain = gains_.of(setting.schedule);
    return setting;
  }

  // The best row of explore, in the framework's words.
  void add_best_of_sweep(BucketAdvice& advice) {
    const search::SweepOptions options{
        .framework = &framework_,
        .policies = search::comparable_policies(framework_, program()),
        .recorded = search::RecordedRun{.schedule = runs_, .framework = recorded_.framework},
        .thresholds = search::usual_thresholds()};
    const search::Sweep sweep = search::run_sweep(forecast_.planner(), options);
    const search::SweepRow& best = sweep.rows[sweep.best];
    const schedule::Schedule& found = best.candidate.schedule;
    const auto known = std::ranges::find_if(advice.settings, [&](const BucketSetting& one) {
      return search::is_same(one.schedule, found);
    });
    advice.best = static_cast<std::size_t>(known - advice.settings.begin());
    if (known != advice.settings.end()) return;
    BucketCandidate candidate;
    candidate.setting = "as recorded";
    const std::optional<std::vector<std::size_t>> ends = ends_of(program(), found);
    if (best.said && best.said->by == frameworks::ToldBy::Setting) {
      candidate.setting = best.said->words;
      candidate.line = best.said->paste;
    } else if (!best.is_recorded && ends) {
      const schedule::BucketMode mode =
          found.buckets.empty() ? schedule::BucketMode::Copy : found.buckets.front().mode;
      candidate = list_candidate(framework_, gradients_, *ends, mode).value_or(candidate);
    }
    if (ends) candidate.ends = *ends;
    advice.settings.push_back(setting(std::move(candidate), found));
  }

  // Buckets one by one, where the framework has words for that: the best that are known.
  std::vector<std::size_t> add_list(BucketAdvice& advice) {
    if (!workload_.sizes_known || gradients_.bytes.size() > 4096) return {};
    std::vector<std::size_t> list = best_list();
    if (auto candidate = list_candidate(framework_, gradients_, list)) {
      advice.settings.push_back(
          setting(*std::move(candidate), forecast_.buckets(list, InFlight::Any)));
    }
    return list;
  }

  // Whether a free network would give what can be told: no grouping gives more.
  [[nodiscard]] bool network_matters() const {
    return std::ranges::any_of(own_.what_ifs, [&](const WhatIf& what_if) {
      return what_if.change == Change::NoNetwork &&
             what_if.gain.middle * 200 > own_.check->predicted;
    });
  }

  // The best grouping that is known: of those that DDP's rule makes, and the one that `exact`
  // finds.
  std::vector<std::size_t> best_list() {
    std::vector<std::vector<std::size_t>> lists;
    if (network_matters()) {
      const std::string mode = recorded_.is_copied ? "copy" : "view";
      const search::Candidate found = forecast_.planner().evaluate(
          schedule::parse_policy("exact:mode=" + mode + ",wait=end-of-backward"));
      if (auto ends = ends_of(program(), found.schedule)) lists.push_back(*std::move(ends));
    }
    for (BucketCandidate& candidate :
         bucket_candidates(frameworks::framework("torch"), gradients_)) {
      lists.push_back(std::move(candidate.ends));
    }
    return *std::ranges::max_element(
        lists, {}, [&](const std::vector<std::size_t>& ends) { return gain_of(ends); });
  }

  // From any buckets to the best of the framework's, one thing at a time.
  std::vector<GivenUp> given_up(const std::vector<BucketSetting>& settings,
                                const std::vector<std::size_t>& list) {
    Duration best = gain_of(list);
    std::vector<GivenUp> steps;
    const auto give_up = [&](std::string what, Duration left) {
      steps.push_back({std::move(what), best - left});
      best = left;
    };
    const std::string name(framework_.name);
    Duration sizes = Duration::min();
    for (const BucketSetting& setting : settings) {
      sizes = std::max(
          sizes, setting.in_flight == InFlight::Any ? setting.gain.middle : gain_of(setting.ends));
    }
    const bool has_list = std::ranges::any_of(settings, &BucketSetting::is_list);
    if (!has_list) give_up("a size for each bucket: " + name + " has one for all", sizes);
    if (std::ranges::all_of(settings, [](const auto& s) { return s.in_flight == InFlight::One; })) {
      give_up("several reductions in flight: " + name + " has one",
              gain_in(*std::ranges::max_element(settings, {}, gain_in)));
    }
    return steps;
  }

  // What can be told from the best, and how many steps show it.
  void finish(BucketAdvice& advice, const JobTrace& job) {
    const BucketSetting& best = advice.settings[advice.best];
    advice.step = recorded_.step;
    advice.answer = {.recorded = recorded_.step, .now = gains_.now(), .gain = best.gain};
    advice.tell = std::max(recorded_.off(), best.gain.middle - best.gain.low);
    for (std::size_t i = 0; i < advice.settings.size(); ++i) {
      const BucketSetting& setting = advice.settings[i];
      if (best.gain.middle - setting.gain.middle <= advice.tell) advice.alike.push_back(i);
      if (setting.is_recorded && advice.recorded.empty()) advice.recorded = setting.setting;
    }
    std::vector<Duration> recorded;
    for (const TimedStep& one : recorded_steps(job.ranks.front().line)) {
      recorded.push_back(one.step);
    }
    if (const BucketSetting* const use = advised(advice)) {
      advice.steps_to_see = steps_to_see(use->gain.middle, recorded);
    }
  }

  const RankForecast& own_;
  const TracedWorkload& workload_;
  const models::RecordedStep& recorded_;
  const Framework& framework_;
  StepGradients gradients_;
  Forecast forecast_;
  schedule::Schedule runs_;  // what was recorded
  search::Gains gains_;
};

}  // namespace

std::string short_setting(const BucketSetting& setting) {
  constexpr std::string_view kCaps = "bucket_cap_mb_list";
  return setting.setting.starts_with(kCaps) ? std::string(kCaps) : setting.setting;
}

std::optional<BucketAdvice> bucket_advice(const JobTrace& job, const RankForecast& own,
                                          const Framework& framework) {
  if (!own.workload) return std::nullopt;
  return Adviser(job, own, framework).advice(job);
}

const BucketSetting* advised(const BucketAdvice& advice) {
  const BucketSetting& best = advice.settings[advice.best];
  if (best.gain.middle > advice.tell) return &best;
  const auto usual = std::ranges::find(advice.settings, true, &BucketSetting::is_default);
  const bool has_usual = usual != advice.settings.end();
  if (advice.framework->id == "torch") {
    return has_usual && usual->gain.middle > Duration{} ? &*usual : nullptr;
  }
  // Another framework than the trace's has to be told something: what needs no setting, if that is as good.
  for (const std::size_t i : advice.alike) {
    if (advice.settings[i].is_default) return &advice.settings[i];
  }
  return &best;
}

}  // namespace dovetail::diagnose

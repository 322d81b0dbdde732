// Each setting's buckets are forecast three times: as explore would, and with what makes a bucket dear or cheap where the
// trace does not say.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/bucket_advice.h"

#include "recordings/diagnose/trial.h"
#include "schedule/policies/policies.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

namespace dovetail::diagnose {
namespace {

// Steps with other buckets are told within half a percent: what copies, waits and calls each further bucket brings is known
// of the recorded buckets only.
Duration tellable(Duration step) { return step / 200; }

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

// Everything that the trace does not tell as cheap, or as dear, as it may be: what a bucket costs the host, and all-reduces
// of sizes that were not recorded.
models::Profile with_estimates(models::Profile profile, Duration call,
                               Duration models::EstimatedTime::*bound) {
  profile.bucket_call = call;
  for (models::EstimatedTime& estimate : profile.collectives->estimated) {
    estimate.time = estimate.*bound;
  }
  return profile;
}

// A host that waits for the GPU has its waits taken for work of its own (HostTaken), or is no part of the workload: a further
// call makes a wait shorter there, and may cost nothing.
Duration cheapest_call(const TracedWorkload& workload) {
  return workload.profile.host && !workload.host_waits ? workload.calls.quick : Duration{};
}

// Gains of buckets against the recorded ones, remembered: settings of several sizes make the same buckets.
class Gains {
 public:
  Gains(const TracedWorkload& workload, Duration off)
      : ends_(workload.ends),
        off_(off),
        forecasts_{Forecast(workload, workload.profile),
                   Forecast(workload, with_estimates(workload.profile, cheapest_call(workload),
                                                     &models::EstimatedTime::low)),
                   Forecast(workload, with_estimates(workload.profile, workload.calls.slow,
                                                     &models::EstimatedTime::high))} {
    for (std::size_t k = 0; k < forecasts_.size(); ++k) {
      recorded_[k] = forecasts_[k].step(ends_, InFlight::Any);
    }
  }

  [[nodiscard]] const Gain& of(const std::vector<std::size_t>& ends, InFlight in_flight) {
    const auto [known, is_new] = known_.try_emplace({ends, in_flight});
    if (!is_new) return known->second;
    std::array<Duration, 3> gains{};
    for (std::size_t k = 0; k < forecasts_.size(); ++k) {
      gains[k] = recorded_[k] - forecasts_[k].step(ends, in_flight);
    }
    const auto [low, high] = std::ranges::minmax(gains);
    // Buckets that are the recorded ones differ by nothing, whatever is not known.
    const bool same = ends == ends_ && in_flight == InFlight::Any;
    const Duration off = same ? Duration{} : off_;
    known->second = {gains.front(), low - off, high + off};
    return known->second;
  }

  [[nodiscard]] Forecast& own() { return forecasts_.front(); }
  [[nodiscard]] Duration recorded() const { return recorded_.front(); }

 private:
  const std::vector<std::size_t>& ends_;
  Duration off_;
  std::array<Forecast, 3> forecasts_;  // as explore has it, cheap, dear
  std::array<Duration, 3> recorded_{};
  std::map<std::pair<std::vector<std::size_t>, InFlight>, Gain> known_;
};

Duration gain_in(const BucketSetting& setting) { return setting.gain.middle; }

std::vector<BucketSetting> settings_of(std::vector<BucketCandidate> candidates, Gains& gains,
                                       const std::vector<std::size_t>& recorded) {
  std::vector<BucketSetting> settings;
  for (BucketCandidate& candidate : candidates) {
    BucketSetting setting;
    static_cast<BucketCandidate&>(setting) = std::move(candidate);
    setting.is_recorded = setting.ends == recorded && setting.in_flight == InFlight::Any;
    setting.gain = gains.of(setting.ends, setting.in_flight);
    settings.push_back(std::move(setting));
  }
  return settings;
}

// Whether a free network would give what can be told: no grouping gives more.
bool network_matters(const RankForecast& own) {
  return std::ranges::any_of(own.what_ifs, [&](const WhatIf& what_if) {
    return what_if.change == Change::NoNetwork && what_if.gain.middle * 200 > own.check->predicted;
  });
}

// The best grouping that is known: of those that DDP's rule makes, and the one that `exact` finds.
std::vector<std::size_t> best_list(const RankForecast& own, const StepGradients& gradients,
                                   Gains& gains) {
  std::vector<std::vector<std::size_t>> lists;
  if (network_matters(own)) {
    const std::string mode = own.workload->copied ? "copy" : "view";
    const search::Candidate found = gains.own().planner().evaluate(
        schedule::parse_policy("exact:mode=" + mode + ",wait=end-of-backward"));
    lists.emplace_back();
    for (const schedule::Bucket& bucket : found.schedule.buckets) {
      const std::size_t before = lists[0].empty() ? 0 : lists[0].back();
      lists[0].push_back(before + bucket.gradients.size());
    }
  }
  for (BucketCandidate& candidate : bucket_candidates(frameworks::framework("torch"), gradients)) {
    lists.push_back(std::move(candidate.ends));
  }
  return *std::ranges::max_element(lists, {}, [&](const std::vector<std::size_t>& ends) {
    return gains.of(ends, InFlight::Any).middle;
  });
}

// From any buckets to the best of the framework's, one thing at a time.
std::vector<GivenUp> given_up(const std::vector<BucketSetting>& settings, Gains& gains,
                              const std::vector<std::size_t>& list, const Framework& framework) {
  Duration best = gains.of(list, InFlight::Any).middle;
  std::vector<GivenUp> steps;
  const auto give_up = [&](std::string what, Duration left) {
    steps.push_back({std::move(what), best - left});
    best = left;
  };
  const std::string name(framework.name);
  Duration sizes = Duration::min();
  for (const BucketSetting& setting : settings) {
    sizes = std::max(sizes, setting.in_flight == InFlight::Any
                                ? setting.gain.middle
                                : gains.of(setting.ends, InFlight::Any).middle);
  }
  const bool has_list = std::ranges::any_of(settings, &BucketSetting::is_list);
  if (!has_list) give_up("a size for each bucket: " + name + " has one for all", sizes);
  if (std::ranges::all_of(settings, [](const auto& s) { return s.in_flight == InFlight::One; })) {
    give_up("several reductions in flight: " + name + " has one",
            gain_in(*std::ranges::max_element(settings, {}, gain_in)));
  }
  return steps;
}

}  // namespace

std::string short_setting(const BucketSetting& setting) {
  constexpr std::string_view kCaps = "bucket_cap_mb_list";
  return setting.setting.starts_with(kCaps) ? std::string(kCaps) : setting.setting;
}

std::optional<BucketAdvice> bucket_advice(const JobTrace& job, const RankForecast& own,
                                          const Framework& framework) {
  if (!own.workload) return std::nullopt;
  const TracedWorkload& workload = *own.workload;
  const StepGradients gradients = gradients_of(workload, job.least_world_size());
  Gains gains(workload, std::max(std::chrono::abs(own.check->predicted - own.check->recorded),
                                 tellable(own.check->recorded)));
  std::vector<BucketCandidate> candidates = bucket_candidates(framework, gradients);
  std::vector<std::size_t> list;
  if (workload.sizes_known && gradients.bytes.size() <= 4096) {
    list = best_list(own, gradients, gains);
    if (auto candidate = list_candidate(framework, gradients, list)) {
      candidates.push_back(std::move(*candidate));
    }
  }
  BucketAdvice advice;
  advice.framework = &framework;
  advice.settings = settings_of(std::move(candidates), gains, workload.ends);
  const auto best = std::ranges::max_element(advice.settings, {}, gain_in);
  advice.best = static_cast<std::size_t>(best - advice.settings.begin());
  advice.tell = std::max(tellable(gains.recorded()), best->gain.middle - best->gain.low);
  for (std::size_t i = 0; i < advice.settings.size(); ++i) {
    const BucketSetting& setting = advice.settings[i];
    if (best->gain.middle - setting.gain.middle <= advice.tell) advice.alike.push_back(i);
    if (setting.is_recorded && advice.recorded.empty()) advice.recorded = setting.setting;
  }
  std::vector<Duration> recorded;
  for (const TimedStep& one : recorded_steps(job.ranks.front().line)) recorded.push_back(one.step);
  advice.step = own.check->recorded;
  if (const BucketSetting* const setting = advised(advice)) {
    advice.steps_to_see = steps_to_see(setting->gain.middle, recorded);
  }
  if (!list.empty()) advice.given_up = given_up(advice.settings, gains, list, framework);
  return advice;
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

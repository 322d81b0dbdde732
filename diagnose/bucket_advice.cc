// Replaying a step with other buckets.
//
// SPDX-License-Identifier: Apache-2.0
#include "diagnose/bucket_advice.h"

#include "diagnose/diagnosis.h"
#include "diagnose/what_if.h"
#include "diagnose/workload.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

namespace dovetail::diagnose {
namespace {

struct RecordedGradients : StepGradients {
  std::vector<std::size_t> ends;  // of the recorded buckets
  bool sizes_known = true;
};

// Of the last step: the first one after a start may group gradients otherwise.
RecordedGradients gradients_of(const RankDiagnosis& rank) {
  RecordedGradients gradients;
  for (const TracedBuckets& step : rank.buckets) gradients.sizes_known &= step.sizes_known;
  for (auto step = rank.buckets.rbegin(); step != rank.buckets.rend(); ++step) {
    if (step->buckets.empty()) continue;
    const Instant first = step->buckets.front().gradients.front().ready;
    gradients.element = step->buckets.front().element_size;
    for (const TracedBucket& bucket : step->buckets) {
      for (const TracedGradient& gradient : bucket.gradients) {
        gradients.bytes.push_back(bucket.element_size * gradient.elements);
        const Duration before = gradients.ready.empty() ? Duration{} : gradients.ready.back();
        gradients.ready.push_back(std::max(before, gradient.ready - first));
      }
      gradients.ends.push_back(gradients.bytes.size());
    }
    break;
  }
  return gradients;
}

// What one more bucket costs the host: the median duration of the operator that launches one.
Duration host_call(const RankTrace& rank, const RankDiagnosis& own) {
  std::vector<Duration> calls;
  for (const TracedBuckets& step : own.buckets) {
    for (const TracedBucket& bucket : step.buckets) {
      if (bucket.call == kNone) continue;
      calls.emplace_back(rank.trace.events[static_cast<std::size_t>(bucket.call)].duration_ns);
    }
  }
  if (calls.empty()) return {};
  std::ranges::sort(calls);
  return calls[calls.size() / 2];
}

// Replays of one rank's steps with any buckets, each twice: with what makes a bucket dear (the dearer
// guess of sizes that were never seen, the upper quartile of the host's calls) and with what makes it
// cheap.
class Replayer {
 public:
  Replayer(const RankTrace& rank, const RankDiagnosis& own, const RecordedGradients& gradients,
           const std::vector<std::pair<Bytes, Duration>>& points)
      : rank_(rank),
        own_(own),
        costs_{AllReduceCost(points, AllReduceCost::Below::Pessimist),
               AllReduceCost(points, AllReduceCost::Below::Optimist)} {
    for (std::size_t k = 0; k < costs_.size(); ++k) {
      recorded_[k] = step_times(with_buckets(rank_, own_.model, own_.buckets, gradients.ends,
                                             costs_[k], {.bucket_call = kBucketCalls[k]}));
    }
  }

  // Remembered: settings of several sizes make the same buckets.
  [[nodiscard]] const Gain& gain(const std::vector<std::size_t>& ends, InFlight in_flight) {
    const auto [known, is_new] = known_.try_emplace({ends, in_flight});
    if (is_new) known->second = replayed(ends, in_flight);
    return known->second;
  }

 private:
  [[nodiscard]] Gain replayed(const std::vector<std::size_t>& ends, InFlight in_flight) const {
    std::array<Gain, 2> gains;
    for (std::size_t k = 0; k < costs_.size(); ++k) {
      const RegroupOptions options{.in_flight = in_flight, .bucket_call = kBucketCalls[k]};
      gains[k] = gain_of(
          recorded_[k],
          step_times(with_buckets(rank_, own_.model, own_.buckets, ends, costs_[k], options)),
          own_.error);
    }
    return {(gains[0].middle + gains[1].middle) / 2, std::min(gains[0].low, gains[1].low),
            std::max(gains[0].high, gains[1].high)};
  }

  static constexpr std::array kBucketCalls = {BucketCall::Slow, BucketCall::Quick};  // as costs_

  const RankTrace& rank_;
  const RankDiagnosis& own_;
  std::array<AllReduceCost, 2> costs_;
  std::array<std::vector<Duration>, 2> recorded_;
  std::map<std::pair<std::vector<std::size_t>, InFlight>, Gain> known_;
};

Duration gain_in(const BucketSetting& setting) { return setting.gain.middle; }

std::vector<BucketSetting> settings_of(std::vector<BucketCandidate> candidates, Replayer& replayer,
                                       const RecordedGradients& gradients) {
  std::vector<BucketSetting> settings;
  for (BucketCandidate& candidate : candidates) {
    BucketSetting setting;
    static_cast<BucketCandidate&>(setting) = std::move(candidate);
    setting.is_recorded = setting.ends == gradients.ends && setting.in_flight == InFlight::Any;
    setting.gain = replayer.gain(setting.ends, setting.in_flight);
    settings.push_back(std::move(setting));
  }
  return settings;
}

// The best grouping that is known: of the sizes that DDP's rule makes, and the one whose last collective
// would end first if the host took no more time than a bucket's call.
std::vector<std::size_t> best_list(const RecordedGradients& gradients, Replayer& replayer,
                                   const AllReduceCost& cost, Duration per_bucket) {
  std::vector<std::vector<std::size_t>> lists = {
      best_bucket_ends(gradients.ready, gradients.bytes, cost, per_bucket)};
  for (BucketCandidate& candidate : bucket_candidates(frameworks::framework("torch"), gradients)) {
    if (std::ranges::find(lists, candidate.ends) == lists.end()) {
      lists.push_back(std::move(candidate.ends));
    }
  }
  return *std::ranges::max_element(lists, {}, [&](const std::vector<std::size_t>& ends) {
    return replayer.gain(ends, InFlight::Any).middle;
  });
}

// From any buckets to the best of the framework's, one thing at a time.
std::vector<GivenUp> given_up(const std::vector<BucketSetting>& settings, Replayer& replayer,
                              const std::vector<std::size_t>& list, const Framework& framework) {
  Duration best = replayer.gain(list, InFlight::Any).middle;
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
                                : replayer.gain(setting.ends, InFlight::Any).middle);
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

Gain gain_of(const std::vector<Duration>& before, const std::vector<Duration>& after,
             const ReplayError& error) {
  std::vector<double> steps;
  for (std::size_t i = 0; i < before.size(); ++i) {
    steps.push_back(static_cast<double>((before[i] - after[i]).count()));
  }
  const auto count = static_cast<double>(std::max<std::size_t>(1, steps.size()));
  const double middle = std::accumulate(steps.begin(), steps.end(), 0.0) / count;
  double squares = 0;
  for (const double step : steps) squares += (step - middle) * (step - middle);
  const double deviation = steps.size() < 2 ? 0 : std::sqrt(squares / (count - 1) / count);
  const double off =
      std::abs(error.step) * static_cast<double>(error.recorded_step.count()) / count;
  return {from_ns(middle), from_ns(middle - 2 * deviation - off),
          from_ns(middle + 2 * deviation + off)};
}

std::string short_setting(const BucketSetting& setting) {
  constexpr std::string_view kCaps = "bucket_cap_mb_list";
  return setting.setting.starts_with(kCaps) ? std::string(kCaps) : setting.setting;
}

std::optional<BucketAdvice> bucket_advice(const JobTrace& job, const RankDiagnosis& own,
                                          const Framework& framework) {
  const RankTrace& rank = job.ranks.front();
  RecordedGradients gradients = gradients_of(own);
  gradients.ranks = std::max<std::int64_t>(1, job.world_size());
  const auto points = all_reduce_times(job);
  const bool on_gpu = std::ranges::any_of(own.buckets, [](const TracedBuckets& step) {
    return std::ranges::any_of(step.buckets,
                               [](const TracedBucket& b) { return b.collective != kNone; });
  });
  if (gradients.bytes.empty() || points.empty() || !on_gpu || own.what_ifs.empty()) {
    return std::nullopt;
  }
  Replayer replayer(rank, own, gradients, points);
  std::vector<BucketCandidate> candidates = bucket_candidates(framework, gradients);
  std::vector<std::size_t> list;
  if (gradients.sizes_known && gradients.bytes.size() <= 4096) {
    const AllReduceCost cost(points, AllReduceCost::Below::Optimist);
    list = best_list(gradients, replayer, cost, host_call(rank, own));
    if (auto candidate = list_candidate(framework, gradients, list)) {
      candidates.push_back(std::move(*candidate));
    }
  }
  BucketAdvice advice;
  advice.framework = &framework;
  advice.settings = settings_of(std::move(candidates), replayer, gradients);
  const auto best = std::ranges::max_element(advice.settings, {}, gain_in);
  advice.best = static_cast<std::size_t>(best - advice.settings.begin());
  const Duration step = own.recorded.empty() ? Duration{}
                                             : own.error.recorded_step /
                                                   static_cast<std::int64_t>(own.recorded.size());
  advice.tell = std::max(step / 200, best->gain.middle - best->gain.low);
  for (std::size_t i = 0; i < advice.settings.size(); ++i) {
    const BucketSetting& setting = advice.settings[i];
    if (best->gain.middle - setting.gain.middle <= advice.tell) advice.alike.push_back(i);
    if (setting.is_recorded && advice.recorded.empty()) advice.recorded = setting.setting;
  }
  if (!list.empty()) advice.given_up = given_up(advice.settings, replayer, list, framework);
  return advice;
}

}  // namespace dovetail::diagnose

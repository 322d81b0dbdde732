// What other buckets would give a recorded step, in the words of one framework.
//
//   if (const auto advice = bucket_advice(job, rank, framework("megatron"))) {
//     advice->settings[advice->best].line      "--overlap-grad-reduce --ddp-bucket-size 6553600"
//     advice->alike                            the flat range: what cannot be told from the best
//     advice->given_up                         what this framework's words cost against any buckets
//   }
//
// Every gain is the difference of two replays of the recorded step (what_if.h), the recorded buckets' and
// the setting's, as a mean over the steps.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "diagnose/replay.h"
#include "diagnose/traced.h"
#include "frameworks/settings.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::diagnose {

using frameworks::BucketCandidate;
using frameworks::Framework;
using frameworks::InFlight;
using frameworks::StepGradients;

struct RankDiagnosis;

// Of the step time; positive is faster.
struct Gain {
  Duration middle{}, low{}, high{};
};

// Steps before and after a change as one gain: the mean of the differences; the interval is the spread of
// their mean plus the error of the replay, both ways.
Gain gain_of(const std::vector<Duration>& before, const std::vector<Duration>& after,
             const ReplayError& error);

struct BucketSetting : BucketCandidate {
  Gain gain;                 // against the recorded buckets
  bool is_recorded = false;  // gives the buckets of the trace
};

// The setting in a table or a trace: a list of buckets is too long for one.
std::string short_setting(const BucketSetting& setting);

// Something that buckets could do and the framework cannot: gain per step that is lost.
struct GivenUp {
  std::string what;
  Duration less{};
};

struct BucketAdvice {
  const Framework* framework = nullptr;
  std::vector<BucketSetting> settings;
  std::size_t best = 0;
  Duration tell{};  // gains that differ by less cannot be told apart
  // Settings whose gain cannot be told from the best's, by number.
  std::vector<std::size_t> alike;
  std::string recorded;           // which setting the trace's buckets come from; empty: unknown
  std::vector<GivenUp> given_up;  // simulated, where the sizes of gradients are known
};

// REQUIRES: has_settings(framework), which outlives the advice.
// Nothing where the trace has no all-reduces issued from backward on a GPU, or its replay is not trusted.
std::optional<BucketAdvice> bucket_advice(const JobTrace& job, const RankDiagnosis& own,
                                          const Framework& framework);

}  // namespace dovetail::diagnose

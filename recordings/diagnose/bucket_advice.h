// What other buckets would give a recorded step, in the words of one framework.
//
//   if (const auto advice = bucket_advice(job, forecast_of_first_rank, framework("megatron"))) {
//     advice->settings[advice->best].line      "--overlap-grad-reduce --ddp-bucket-size 6553600"
//     advice->alike                            the flat range: what cannot be told from the best
//     advice->given_up                         what this framework's words cost against any buckets
//   }
//
// Every gain is the difference of two steady steps of the imported workload (search/recorded.h),
// with the recorded buckets and with the setting's: those that explore finds for it. The interval
// holds what the trace does not tell: what a bucket costs the host (the lower and the upper
// quartile of its calls; from nothing where the host waits for the GPU anyway), what an all-reduce
// takes whose size was not recorded (models/rates/collective_estimate.h), and by how much the
// workload misses the recorded step, half a percent at least.
//
// For the framework that was recorded the best is the best row of explore's sweep; for another one the largest gain among those
// that are gains for certain, if there are any. The framework's
// own default is always among the settings, so the best one is never slower.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "frameworks/settings.h"
#include "recordings/diagnose/traced.h"
#include "recordings/diagnose/what_if.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::diagnose {

using frameworks::BucketCandidate;
using frameworks::Framework;
using frameworks::StepGradients;

struct BucketSetting : BucketCandidate {
  schedule::Schedule schedule;
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
  search::RecordedAnswer answer;  // of the best against the recorded buckets
  Duration tell{};                // gains that differ by less cannot be told apart
  Duration step{};                // as recorded, usually
  // How many steps of each show the advised setting's gain; absent where the recorded ones do not tell.
  std::optional<std::int64_t> steps_to_see = {};
  // Settings whose gain cannot be told from the best's, by number.
  std::vector<std::size_t> alike;
  std::string recorded;           // which setting the trace's buckets come from; empty: unknown
  std::vector<GivenUp> given_up;  // simulated, where the sizes of gradients are known
};

// Of the job's first rank. REQUIRES: has_settings(framework), which outlives the advice. Nothing where its trace makes no
// workload that can be held against the recorded step.
std::optional<BucketAdvice> bucket_advice(const JobTrace& job, const RankForecast& own,
                                          const Framework& framework);

// The setting to use: the best one; where it is not better than what there is by more than can be told, the recorded
// buckets (nothing), unless the framework's own default is faster than these.
const BucketSetting* advised(const BucketAdvice& advice);

}  // namespace dovetail::diagnose

// Sorts repetitions by what they met, and keeps those that tell most.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/undisturbed.h"

#include <algorithm>
#include <cstddef>

namespace dovetail::calibrate {

Duration within(const traces::CoreRecord& record, std::int64_t begin_ns, std::int64_t start_ns,
                std::int64_t end_ns) {
  return traces::taken_within(record, Duration(start_ns - begin_ns), Duration(end_ns - begin_ns));
}

Preemptions preemptions_since(const Lab& lab, std::int64_t begin_ns) {
  Preemptions preemptions;
  if (lab.load == nullptr) return preemptions;
  preemptions.begin_ns = rank_0_says(lab.exchange, begin_ns);
  preemptions.all = testbed::share_records(lab.exchange, record_since(lab, begin_ns));
  preemptions.restless = traces::restless(preemptions.all);
  // Without a known shield nobody knows what a preemption took of a collective.
  if (lab.shield == Duration{}) return preemptions;
  for (const traces::CoreRecord& record : preemptions.all) {
    preemptions.silences.push_back(traces::silences(record, lab.shield));
  }
  return preemptions;
}

Sample sample_of(const Repetition& repetition, const Preemptions& preemptions) {
  std::int64_t calm_ns = 0;
  std::int64_t calm = 0;
  std::int64_t before_ns = repetition.arrived_ns;
  for (const std::int64_t done_ns : repetition.done_ns) {
    if (within(preemptions.restless, preemptions.begin_ns, before_ns, done_ns) == Duration{}) {
      calm_ns += done_ns - before_ns;
      ++calm;
    }
    before_ns = done_ns;
  }
  const auto count = static_cast<std::int64_t>(repetition.done_ns.size());
  if (calm > 0) return {.ns = calm_ns * count / calm, .met = Met::Nothing};
  const std::int64_t took_ns = before_ns - repetition.arrived_ns;
  std::int64_t silent_ns = 0;
  for (const traces::CoreRecord& silent : preemptions.silences) {
    silent_ns += within(silent, preemptions.begin_ns, repetition.arrived_ns, before_ns).count();
  }
  return {.ns = std::max<std::int64_t>(0, took_ns - silent_ns),
          .met = silent_ns == 0 ? Met::Preemptions : Met::Silences};
}

std::vector<std::int64_t> undisturbed(std::span<const Sample> samples) {
  const auto those = [&](Met most) {
    std::vector<std::int64_t> times;
    for (const Sample& sample : samples) {
      if (sample.met <= most) times.push_back(sample.ns);
    }
    return times;
  };
  std::vector<std::int64_t> calm = those(Met::Nothing);
  if (3 * calm.size() >= samples.size()) return calm;
  std::vector<std::int64_t> heard = those(Met::Preemptions);
  if (5 * heard.size() < samples.size()) return those(Met::Silences);
  std::ranges::sort(heard);
  heard.resize((heard.size() + 4) / 5);
  return heard;
}

}  // namespace dovetail::calibrate

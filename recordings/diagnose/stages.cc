// Sums of kernels by what launched them; medians over steps, means over ranks.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/stages.h"

#include "base/statistics.h"
#include "traces/intervals.h"

#include <algorithm>

namespace dovetail::diagnose {
namespace {

struct Passes {
  Duration forward{}, backward{};  // of a step
};

Passes passes_of(const RankTrace& rank) {
  std::vector<Duration> forward, backward;
  const auto is_within = [&](std::int32_t event, Is kind) {
    return imports::enclosing(rank.trace, rank.line, event, kind) != kNone;
  };
  for (const TracedStep& step : rank.line.steps) {
    std::vector<traces::Interval> in_forward, in_backward;
    for (const std::int32_t number : step.works) {
      const GpuWork& work = rank.line.works[static_cast<std::size_t>(number)];
      if (work.collective != kNone || work.is_aside || work.launch == kNone) continue;
      const std::int32_t call = rank.line.calls[static_cast<std::size_t>(work.launch)].event;
      if (is_within(call, Is::OptimizerStep)) continue;
      const bool is_backward = is_within(call, Is::EngineFunction);
      (is_backward ? in_backward : in_forward).push_back({work.start, work.end});
    }
    forward.push_back(traces::length(traces::union_of(std::move(in_forward))));
    backward.push_back(traces::length(traces::union_of(std::move(in_backward))));
  }
  return {median_or(std::move(forward), Duration{}), median_or(std::move(backward), Duration{})};
}

}  // namespace

std::optional<Stages> stages_of(const JobTrace& job,
                                const std::vector<std::vector<StepCauses>>& causes) {
  if (!job.pipeline) return std::nullopt;
  Stages found;
  found.pipeline = *job.pipeline;
  const auto ranks = std::ssize(job.ranks);
  for (std::size_t r = 0; r < job.ranks.size(); ++r) {
    std::vector<Duration> bubbles;
    for (const StepCauses& step : causes[r]) {
      bubbles.push_back(step.by[static_cast<std::size_t>(Cause::Bubble)]);
    }
    found.bubble += median_or(std::move(bubbles), Duration{}) / ranks;
    const Passes passes = passes_of(job.ranks[r]);
    const std::int64_t parts = ranks * std::max<std::int64_t>(1, found.pipeline.micro_batches);
    found.forward += passes.forward / parts;
    found.backward += passes.backward / parts;
  }
  if (found.pipeline.micro_batches == 0) {
    found.forward = found.backward = {};
    return found;
  }
  const std::int64_t chunks = found.pipeline.chunks;
  found.of_schedule = (found.pipeline.stages - 1) * (found.forward + found.backward) / chunks;
  const Duration own = std::min(found.bubble, *found.of_schedule);
  found.twice_the_micro_batches = own / 2;
  found.twice_the_chunks = own / 2;
  const Duration both = found.forward + found.backward;
  // Without passes of autograd nobody knows which part is backward.
  if (found.backward <= Duration{} || chunks > 1) return found;
  const double share =
      static_cast<double>(found.backward.count()) / static_cast<double>(both.count());
  found.zero_bubble = from_ns(static_cast<double>(own.count()) * share);
  return found;
}

}  // namespace dovetail::diagnose

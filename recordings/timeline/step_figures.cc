// Computes spans, overlaps and idle time of one step by unions of intervals over its GPU work.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/timeline/step_figures.h"

#include <algorithm>

namespace dovetail::imports {
namespace {

using traces::Interval;

std::vector<Interval> part_of(std::span<const WorkTime> works, bool communicates) {
  std::vector<Interval> intervals;
  for (const WorkTime& work : works) {
    if (work.is_aside || work.communicates != communicates) continue;
    intervals.push_back({work.start, work.end});
  }
  return traces::union_of(std::move(intervals));
}

}  // namespace

std::vector<Interval> exposed_intervals(std::span<const WorkTime> works) {
  return traces::without(part_of(works, true), part_of(works, false));
}

StepFigures figures_of(std::span<const WorkTime> works) {
  StepFigures figures;
  figures.gpu_works = works.size();
  Instant first = Instant::max();
  Instant last;
  std::vector<Interval> all;
  for (const WorkTime& work : works) {
    if (work.is_aside) continue;
    first = std::min(first, work.start);
    last = std::max(last, work.end);
    all.push_back({work.start, work.end});
  }
  if (all.empty()) return figures;
  figures.span = last - first;
  figures.comp = traces::length(part_of(works, false));
  figures.comm = traces::length(part_of(works, true));
  figures.exposed = traces::length(exposed_intervals(works));
  figures.overlap = figures.comm - figures.exposed;
  figures.idle = figures.span - traces::length(traces::union_of(std::move(all)));
  return figures;
}

std::vector<Duration> periods(std::span<const StepBounds> steps) {
  std::vector<Duration> result;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const StepBounds& now = steps[s];
    const StepBounds* const next =
        s + 1 < steps.size() && !now.is_before_gap ? &steps[s + 1] : nullptr;
    const StepBounds* const before = s > 0 && !steps[s - 1].is_before_gap ? &steps[s - 1] : nullptr;
    Duration period = now.end - now.begin;
    if (next != nullptr && now.first && next->first) {
      period = *next->first - *now.first;
    } else if (now.first) {
      const Duration span = *now.last - *now.first;
      if (before != nullptr && before->last) period = std::min(period, *now.last - *before->last);
      period = std::max(period, span);
    }
    result.push_back(std::max(period, Duration{}));
  }
  return result;
}

std::vector<WorkTime> work_times(const RankTimeline& line, const TracedStep& step) {
  std::vector<WorkTime> times;
  times.reserve(step.works.size());
  for (const std::int32_t number : step.works) {
    const GpuWork& work = line.works[static_cast<std::size_t>(number)];
    times.push_back({work.start, work.end, work.collective != kNone, work.is_aside});
  }
  return times;
}

StepFigures figures_of(const RankTimeline& line, const TracedStep& step) {
  StepFigures figures = figures_of(work_times(line, step));
  figures.cpu_step = step.end - step.start;
  return figures;
}

}  // namespace dovetail::imports

// A step of a replay or of a trace is the work that the host launched between its markers, whenever the GPU ran it; its
// time is the period of recordings/timeline/step_figures.h.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/replay.h"

#include "base/statistics.h"
#include "sim/player.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dovetail::diagnose {
namespace {

double relative(Duration replayed, Duration recorded) {
  if (recorded <= Duration{}) return replayed <= Duration{} ? 0 : 1;
  return static_cast<double>((replayed - recorded).count()) / static_cast<double>(recorded.count());
}

// One step as it is measured: its markers on the host, its GPU work, and which stream computes.
struct Measured {
  imports::StepBounds bounds;
  std::vector<WorkTime> works;

  void add(const WorkTime& work, bool computes) {
    works.push_back(work);
    if (!computes) return;
    bounds.first = std::min(bounds.first.value_or(work.start), work.start);
    bounds.last = std::max(bounds.last.value_or(work.end), work.end);
  }
};

// Of a whole trace nothing says when a step began on the host.
void span_gpu_work(Measured& whole) {
  for (const WorkTime& work : std::exchange(whole.works, {})) whole.add(work, true);
  if (!whole.bounds.first) return;
  whole.bounds.begin = *whole.bounds.first;
  whole.bounds.end = *whole.bounds.last;
}

std::vector<TimedStep> steps_of(std::vector<Measured> measured, const RankTimeline& line) {
  if (line.is_whole_trace) span_gpu_work(measured.front());
  std::vector<imports::StepBounds> bounds;
  for (Measured& now : measured) {
    // Nothing on the compute stream: any work.
    if (!now.bounds.first) {
      for (const WorkTime& work : std::exchange(now.works, {})) now.add(work, true);
    }
    bounds.push_back(now.bounds);
  }
  const std::vector<Duration> times = imports::periods(bounds);
  std::vector<TimedStep> result;
  for (std::size_t s = 0; s < measured.size(); ++s) {
    TimedStep step;
    step.figures = imports::figures_of(measured[s].works);
    step.figures.cpu_step = bounds[s].end - bounds[s].begin;
    step.step = times[s];
    result.push_back(step);
  }
  return result;
}

}  // namespace

step::Timeline played(const step::StepGraph& graph) {
  sim::Workspace workspace;
  sim::play(graph, workspace);
  return std::move(workspace.timeline);
}

std::vector<TimedStep> replayed_steps(const RecordedGraph& recorded, const RankTimeline& line,
                                      const step::Timeline& timeline) {
  const auto at = [&](std::int64_t ns) { return recorded.zero + Duration(ns); };
  std::vector<Measured> measured;
  for (std::size_t s = 0; s < recorded.steps.size(); ++s) {
    const RecordedGraph::Step& step = recorded.steps[s];
    Measured now;
    now.bounds.begin = at(timeline.start_of(step.begin));
    now.bounds.end = at(timeline.end_of(step.end));
    now.bounds.is_before_gap = line.steps[s].is_before_gap;
    for (const step::NodeId node : recorded.works[s]) {
      const GpuWork& work = line.works[static_cast<std::size_t>(recorded.origin_of(node).index)];
      now.add({at(timeline.start_of(node)), at(timeline.end_of(node)), recorded.communicates(node),
               work.is_aside},
              work.stream == line.compute_stream);
    }
    measured.push_back(std::move(now));
  }
  return steps_of(std::move(measured), line);
}

std::vector<TimedStep> recorded_steps(const RankTimeline& line) {
  std::vector<Measured> measured;
  for (const TracedStep& step : line.steps) {
    Measured now;
    now.bounds.begin = step.start;
    now.bounds.end = step.end;
    now.bounds.is_before_gap = step.is_before_gap;
    for (const std::int32_t number : step.works) {
      const GpuWork& work = line.works[static_cast<std::size_t>(number)];
      now.add({work.start, work.end, work.collective != kNone, work.is_aside},
              work.stream == line.compute_stream);
    }
    measured.push_back(std::move(now));
  }
  return steps_of(std::move(measured), line);
}

Duration usual_step(const std::vector<TimedStep>& steps) {
  std::vector<Duration> times;
  for (const TimedStep& step : steps) times.push_back(step.step);
  return median_or(std::move(times), Duration{});
}

bool ReplayError::is_trustworthy() const {
  const Duration exposed_error = replayed_exposed > recorded_exposed
                                     ? replayed_exposed - recorded_exposed
                                     : recorded_exposed - replayed_exposed;
  const bool small = exposed_error * 100 <= recorded_step;
  return std::abs(step) <= 0.02 && std::abs(span) <= 0.02 && (std::abs(exposed) <= 0.1 || small);
}

ReplayError replay_error(const RecordedGraph& recorded, const step::Timeline& timeline,
                         const RankTimeline& line) {
  ReplayError error;
  for (const TimedStep& step : replayed_steps(recorded, line, timeline)) {
    error.replayed_step += step.step;
    error.replayed_span += step.figures.span;
    error.replayed_exposed += step.figures.exposed;
  }
  for (const TimedStep& step : recorded_steps(line)) {
    error.recorded_step += step.step;
    error.recorded_span += step.figures.span;
    error.recorded_exposed += step.figures.exposed;
  }
  error.step = relative(error.replayed_step, error.recorded_step);
  error.span = relative(error.replayed_span, error.recorded_span);
  error.exposed = relative(error.replayed_exposed, error.recorded_exposed);
  return error;
}

}  // namespace dovetail::diagnose

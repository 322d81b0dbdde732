// A step of a replay or of a trace is the work that the host launched between its markers, whenever the GPU ran it: so
// its time counts from the end of the step before, which is the end of its host part or of its GPU work, whichever is later.
//
// SPDX-License-Identifier: Apache-2.0
#include "diagnose/replay.h"

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

// One step as it is measured: its markers on the host and its GPU work.
struct Measured {
  Instant begin, end;
  std::vector<WorkTime> works;
};

std::vector<TimedStep> steps_of(const std::vector<Measured>& measured) {
  std::vector<TimedStep> result;
  Instant before = measured.empty() ? Instant() : measured.front().begin;
  for (const Measured& now : measured) {
    TimedStep step;
    step.figures = imports::figures_of(now.works);
    step.figures.cpu_step = now.end - now.begin;
    Instant end = now.end;
    for (const WorkTime& work : now.works) end = std::max(end, work.end);
    step.step = end - before;
    before = std::max(before, end);
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

std::vector<TimedStep> replayed_steps(const RecordedGraph& recorded,
                                      const step::Timeline& timeline) {
  const auto at = [&](std::int64_t ns) { return recorded.zero + Duration(ns); };
  std::vector<Measured> measured;
  for (std::size_t s = 0; s < recorded.steps.size(); ++s) {
    const RecordedGraph::Step& step = recorded.steps[s];
    Measured now{at(timeline.start_of(step.begin)), at(timeline.end_of(step.end)), {}};
    for (const step::NodeId node : recorded.works[s]) {
      now.works.push_back(
          {at(timeline.start_of(node)), at(timeline.end_of(node)), recorded.communicates(node)});
    }
    measured.push_back(std::move(now));
  }
  return steps_of(measured);
}

std::vector<TimedStep> recorded_steps(const RankTimeline& line) {
  std::vector<Measured> measured;
  for (const TracedStep& step : line.steps) {
    measured.push_back({step.start, step.end, imports::work_times(line, step)});
  }
  return steps_of(measured);
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
  for (const TimedStep& step : replayed_steps(recorded, timeline)) {
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

// Playing a model, and what comes of it.
//
// SPDX-License-Identifier: Apache-2.0
#include "diagnose/replay.h"

#include <algorithm>
#include <cmath>

namespace dovetail::diagnose {
namespace {

double relative(Duration replayed, Duration recorded) {
  if (recorded <= Duration{}) return replayed <= Duration{} ? 0 : 1;
  return static_cast<double>((replayed - recorded).count()) / static_cast<double>(recorded.count());
}

// The end of a step is that of its host part or of its GPU work, whichever is later.
std::vector<ReplayedStep> steps_of(const std::vector<std::vector<WorkTime>>& works,
                                   const std::vector<std::pair<Instant, Instant>>& host) {
  std::vector<ReplayedStep> result;
  Instant before = host.empty() ? Instant() : host.front().first;
  for (std::size_t i = 0; i < host.size(); ++i) {
    ReplayedStep step;
    step.figures = figures_of(works[i]);
    step.figures.cpu_step = host[i].second - host[i].first;
    Instant end = host[i].second;
    for (const WorkTime& work : works[i]) end = std::max(end, work.end);
    step.step = end - before;
    before = std::max(before, end);
    result.push_back(step);
  }
  return result;
}

void play_host(const ReplayModel& model, std::size_t at, Instant& host, Replay& replay) {
  const ReplayNode& node = model.nodes[at];
  const Instant start = host + node.gap;
  Instant end = start + node.duration;
  for (const std::int32_t wait : node.waits) {
    const Instant until = replay.end[static_cast<std::size_t>(wait)] + node.lag;
    if (until <= end) continue;
    end = until;
    replay.cause[at] = wait;
  }
  replay.start[at] = start;
  replay.end[at] = end;
  host = std::max(host, end);
}

struct StreamState {
  Instant end;
  std::int32_t last = kNone;
};

void play_gpu(const ReplayModel& model, std::size_t at, std::vector<StreamState>& streams,
              Replay& replay) {
  const ReplayNode& node = model.nodes[at];
  StreamState& stream = streams[static_cast<std::size_t>(node.stream)];
  Instant start = node.fixed_start;
  replay.by[at] = StartedBy::Fixed;
  if (node.launch != kNone) {
    start = replay.end[static_cast<std::size_t>(node.launch)] + node.latency;
    replay.by[at] = StartedBy::Launch;
    replay.cause[at] = node.launch;
  }
  if (stream.last != kNone && stream.end + node.stream_gap > start) {
    start = stream.end + node.stream_gap;
    replay.by[at] = StartedBy::Stream;
    replay.cause[at] = stream.last;
  }
  for (const std::int32_t wait : node.waits) {
    const Instant until = replay.end[static_cast<std::size_t>(wait)] + model.dependency_gap;
    if (until <= start) continue;
    start = until;
    replay.by[at] = StartedBy::Dependency;
    replay.cause[at] = wait;
  }
  start += node.lag;
  replay.start[at] = start;
  replay.end[at] = start + node.duration;
  stream = {std::max(stream.end, replay.end[at]), static_cast<std::int32_t>(at)};
}

}  // namespace

Replay play(const ReplayModel& model) {
  Replay replay;
  const std::size_t size = model.nodes.size();
  replay.start.resize(size);
  replay.end.resize(size);
  replay.by.resize(size, StartedBy::Host);
  replay.cause.resize(size, kNone);
  std::vector<StreamState> streams(static_cast<std::size_t>(model.streams));
  Instant host = model.host_start;
  for (std::size_t i = 0; i < size; ++i) {
    if (model.nodes[i].kind == ReplayNode::Kind::Host) {
      play_host(model, i, host, replay);
    } else {
      play_gpu(model, i, streams, replay);
    }
  }
  return replay;
}

std::vector<ReplayedStep> replayed_steps(const ReplayModel& model, const Replay& replay) {
  std::vector<std::vector<WorkTime>> works(model.steps.size());
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    const ReplayNode& node = model.nodes[i];
    if (node.kind != ReplayNode::Kind::Gpu || node.step == kNone) continue;
    works[static_cast<std::size_t>(node.step)].push_back(
        {replay.start[i], replay.end[i], node.communicates});
  }
  std::vector<std::pair<Instant, Instant>> host;
  for (const ReplayStep& step : model.steps) {
    host.emplace_back(replay.start[static_cast<std::size_t>(step.begin)],
                      replay.end[static_cast<std::size_t>(step.end)]);
  }
  return steps_of(works, host);
}

std::vector<ReplayedStep> recorded_steps(const ReplayModel& model, const RankTimeline& line) {
  std::vector<std::vector<WorkTime>> works;
  std::vector<std::pair<Instant, Instant>> host;
  for (std::size_t i = 0; i < model.steps.size(); ++i) {
    works.push_back(work_times(line, line.steps[i]));
    host.emplace_back(line.steps[i].start, line.steps[i].end);
  }
  return steps_of(works, host);
}

bool ReplayError::is_trustworthy() const {
  const Duration exposed_error = replayed_exposed > recorded_exposed
                                     ? replayed_exposed - recorded_exposed
                                     : recorded_exposed - replayed_exposed;
  const bool small = exposed_error * 100 <= recorded_step;
  return std::abs(step) <= 0.02 && std::abs(span) <= 0.02 && (std::abs(exposed) <= 0.1 || small);
}

ReplayError replay_error(const ReplayModel& model, const RankTimeline& line) {
  ReplayError error;
  const Replay replay = play(model);
  for (const ReplayedStep& step : replayed_steps(model, replay)) {
    error.replayed_step += step.step;
    error.replayed_span += step.figures.span;
    error.replayed_exposed += step.figures.exposed;
  }
  for (const ReplayedStep& step : recorded_steps(model, line)) {
    error.recorded_step += step.step;
    error.recorded_span += step.figures.span;
    error.recorded_exposed += step.figures.exposed;
  }
  error.step = relative(error.replayed_step, error.recorded_step);
  error.span = relative(error.replayed_span, error.recorded_span);
  error.exposed = relative(error.replayed_exposed, error.recorded_exposed);
  std::vector<Duration> off;
  for (std::size_t i = 0; i < model.nodes.size(); ++i) {
    const ReplayNode& node = model.nodes[i];
    if (node.kind != ReplayNode::Kind::Gpu || node.step == kNone) continue;
    const Duration by = replay.start[i] - line.works[static_cast<std::size_t>(node.work)].start;
    off.push_back(by < Duration{} ? -by : by);
  }
  if (!off.empty()) {
    const auto middle = off.begin() + static_cast<std::ptrdiff_t>(off.size() / 2);
    std::ranges::nth_element(off, middle);
    error.median_start = *middle;
  }
  return error;
}

}  // namespace dovetail::diagnose

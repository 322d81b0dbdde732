// Plays the steps of a pipeline in a serial order that respects what each needs, so that one pass
// gives every step's time, and from these the slack of each stage.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pipeline_slack.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/error.h"

namespace dovetail::schedule {
namespace {

using StepKey = std::tuple<Phase, std::int32_t, std::int32_t>;  // phase, stage, micro-batch

std::int32_t virtual_stage(const PipelineShape& shape, const RoleStep& at) {
  return at.step.chunk * shape.stages + at.role;
}

StepKey key(const PipelineShape& shape, const RoleStep& at) {
  return {at.step.phase, virtual_stage(shape, at), at.step.micro_step};
}

}  // namespace

StageTimes equal_stages(const PipelineShape& shape, Duration forward, Duration backward) {
  const auto count = static_cast<std::size_t>(shape.virtual_stages());
  return {.forward = std::vector<Duration>(count, forward),
          .backward = std::vector<Duration>(count, backward)};
}

std::vector<TimedStep> play(const PipelineShape& shape, const StageTimes& times) {
  const auto stages = static_cast<std::size_t>(shape.virtual_stages());
  DOVETAIL_CHECK(times.forward.size() == stages && times.backward.size() == stages)
      << times.forward.size() << " and " << times.backward.size() << " times for " << stages;
  std::vector<Duration> free_at(static_cast<std::size_t>(shape.stages));
  std::map<StepKey, Duration> ended;
  std::vector<TimedStep> played;
  for (const RoleStep& at : serial_order(shape)) {
    Duration& role_free = free_at[static_cast<std::size_t>(at.role)];
    Duration start = role_free;
    if (const std::optional<RoleStep> needed = step_needed(shape, at)) {
      const Duration sent = needed->role == at.role ? Duration{} : times.send;
      start = std::max(start, ended.at(key(shape, *needed)) + sent);
    }
    const auto stage = static_cast<std::size_t>(virtual_stage(shape, at));
    const bool forward = at.step.phase == Phase::Forward;
    const Duration end = start + (forward ? times.forward : times.backward)[stage];
    ended[key(shape, at)] = end;
    role_free = end;
    played.push_back({at, start, end});
  }
  return played;
}

std::vector<RoleSlack> slack(const PipelineShape& shape, const StageTimes& times) {
  std::vector<RoleSlack> roles(static_cast<std::size_t>(shape.stages));
  Duration last{};
  for (const TimedStep& at : play(shape, times)) {
    if (at.step.step.phase != Phase::Backward) continue;
    RoleSlack& role = roles[static_cast<std::size_t>(at.step.role)];
    role.last_backward_end = std::max(role.last_backward_end, at.end);
    last = std::max(last, at.end);
  }
  for (RoleSlack& role : roles) role.slack = last - role.last_backward_end;
  return roles;
}

Duration exposed(const RoleSlack& role, Duration sync, Duration beside) {
  return std::max(Duration{}, sync - beside - role.slack);
}

}  // namespace dovetail::schedule

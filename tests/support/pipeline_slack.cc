// Plays the steps of a pipeline in a serial order that respects what each needs, so that one pass
// gives every step's time, and from these the slack of each stage.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pipeline_slack.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

#include "base/error.h"

namespace dovetail::schedule {
namespace {

using StepKey = std::tuple<Pass, std::int32_t, std::int32_t>;  // pass, stage, micro-batch

StepKey key(const PipelineShape& shape, const RoleStep& at) {
  return {at.step.pass, shape.stage_of(at.role, at.step.chunk), at.step.micro_step};
}

}  // namespace

StageTimes equal_stages(const PipelineShape& shape, Duration forward, Duration backward,
                        Duration weights) {
  const auto count = static_cast<std::size_t>(shape.virtual_stages());
  return {.forward = std::vector<Duration>(count, forward),
          .backward = std::vector<Duration>(count, backward),
          .weights = std::vector<Duration>(count, weights)};
}

std::vector<TimedStep> play(const PipelineShape& shape, const StageTimes& times) {
  const auto stages = static_cast<std::size_t>(shape.virtual_stages());
  DOVETAIL_CHECK(times.forward.size() == stages && times.backward.size() == stages &&
                 times.weights.size() == stages)
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
    const auto stage = static_cast<std::size_t>(shape.stage_of(at.role, at.step.chunk));
    const std::array passes = {&times.forward, &times.backward, &times.weights};
    const Duration end = start + (*passes[static_cast<std::size_t>(at.step.pass)])[stage];
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
    if (at.step.step.pass != shape.last_pass()) continue;
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

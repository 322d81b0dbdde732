// How long the stages of a pipeline take, and how much of a gradient synchronisation each can hide
// in its bubble.
//
// Plays the order of order.h: a step starts once its role is free and the step that it needs has
// ended and (across roles) been sent. With equal stages and free sends the last backward of role r
// ends r * t_b before that of role 0, because role 0 is the last to get each gradient:
//
//   P = 4, t_f = 1, t_b = 2, m = 8, 1F1B:  last backward ends 33 31 29 27, slack 0 2 4 6
//
// So a synchronisation of T_sync that begins when the role's backwards have ended (rule AS3) shows
// only max(0, T_sync - r * t_b) of itself; role 0 has no bubble, and hides what fits beside its
// last backward. Leaves out contention, optimizer and host; sim plays those.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "schedule/lower/pipeline/order.h"

namespace dovetail::schedule {

// Of one micro-batch, per virtual stage.
struct StageTimes {
  std::vector<Duration> forward;
  std::vector<Duration> backward;
  std::vector<Duration> weights;  // of orders that split backward
  Duration send{};                // from one role to the next; the roles compute on meanwhile
};

StageTimes equal_stages(const PipelineShape& shape, Duration forward, Duration backward,
                        Duration weights = {});

struct TimedStep {
  RoleStep step;
  Duration start{};
  Duration end{};
  friend bool operator==(const TimedStep&, const TimedStep&) = default;
};

// All steps, in an order in which each stands after those it needs. REQUIRES: no problem(shape),
// one time per virtual stage.
std::vector<TimedStep> play(const PipelineShape& shape, const StageTimes& times);

struct RoleSlack {
  Duration last_backward_end{};
  Duration slack{};  // until the last backward of all roles ends: the bubble at the end
  friend bool operator==(const RoleSlack&, const RoleSlack&) = default;
};

// One per role.
std::vector<RoleSlack> slack(const PipelineShape& shape, const StageTimes& times);

// What a synchronisation adds to the step: it begins `beside` before the role's last backward ends
// (zero where nothing may be launched during backward) and costs nothing while the bubble lasts.
Duration exposed(const RoleSlack& role, Duration sync, Duration beside = {});

}  // namespace dovetail::schedule

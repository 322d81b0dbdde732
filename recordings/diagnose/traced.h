// What the timeline of recordings found (recordings/timeline), under its own names: this room explains nothing else.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/recording.h"
#include "recordings/timeline/ddp_buckets.h"
#include "recordings/timeline/rank_set.h"
#include "recordings/timeline/rank_timeline.h"
#include "recordings/timeline/sharding.h"
#include "recordings/timeline/step_figures.h"

namespace dovetail::diagnose {

using imports::CallKind;
using imports::CollectiveKind;
using imports::EventKind;
using imports::GpuWork;
using imports::HostCall;
using imports::Is;
using imports::JobTrace;
using imports::kNone;
using imports::MatchedCollective;
using imports::RankTimeline;
using imports::RankTrace;
using imports::RecordedEvent;
using imports::Recording;
using imports::ShardedGroup;
using imports::Sharding;
using imports::StepFigures;
using imports::TracedBucket;
using imports::TracedBuckets;
using imports::TracedCollective;
using imports::TracedGradient;
using imports::TracedStep;
using imports::WorkTime;

}  // namespace dovetail::diagnose

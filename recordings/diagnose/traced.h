// What the reader of traces found (recordings/kineto), under its own names: this room explains nothing else.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/kineto/ddp_buckets.h"
#include "recordings/kineto/rank_set.h"
#include "recordings/kineto/rank_timeline.h"
#include "recordings/kineto/sharding.h"
#include "recordings/kineto/step_figures.h"
#include "recordings/kineto/trace.h"

namespace dovetail::diagnose {

using imports::CallKind;
using imports::CollectiveKind;
using imports::EventKind;
using imports::GpuWork;
using imports::HostCall;
using imports::JobTrace;
using imports::KinetoTrace;
using imports::kNone;
using imports::MatchedCollective;
using imports::RankTimeline;
using imports::RankTrace;
using imports::ShardedGroup;
using imports::Sharding;
using imports::StepFigures;
using imports::TracedBucket;
using imports::TracedBuckets;
using imports::TracedCollective;
using imports::TracedGradient;
using imports::TracedStep;
using imports::TraceEvent;
using imports::WorkTime;

}  // namespace dovetail::diagnose

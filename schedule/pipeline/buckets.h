// split_buckets_by_stage: no bucket spans two stages of a pipeline.
//
// Policies group gradients as they become ready, whoever makes them; ranks of one stage hold only
// that stage's gradients. Each bucket becomes one per virtual stage that it touches, at its place in
// launch order, the stages in the order in which its members name them; the first keeps the bucket's
// id, the others get fresh ones. A bucket of one stage stays as it is.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::schedule {

// REQUIRES: `program` says its stages (assign.h) and is not unrolled yet; every member of a bucket
// is written by an op.
Schedule split_buckets_by_stage(const Program& program, Schedule schedule);

}  // namespace dovetail::schedule

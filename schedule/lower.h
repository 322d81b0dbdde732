// lower: joins a Program and a Schedule into the commands that each rank enqueues.
//
// One pass per decision, in this order; each is a function in lower.cc and leaves one line in the
// report:
//   1. lay out   each bucket's buffer: members one after another, the end padded to pad_to
//   2. launch    after which op each collective is issued, never before the bucket listed above it
//   3. wait      before which op the compute stream waits for each bucket
//   4. emit      the ops in program order, and around them packs, collectives, events, waits
//
// An overlapped bucket (streams s0 compute, s1 comm0), in host issue order:
//   s0 run producer    s0 pack    s0 record e0    s1 wait e0    s1 all-reduce    s1 record e1
//   ...                s0 wait e1    s0 unpack    s0 run reader
// Copy mode packs each gradient right after its producer and unpacks a bucket right after its wait.
// An inline bucket issues its collective on s0 and needs no events. A whole-stream wait waits for
// the last collective launched on that stream so far.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/scheduled_program.h"

namespace dovetail::schedule {

struct Lowered {
  ScheduledProgram program;
  std::vector<std::string> report;  // one line per pass
};

// The Program is taken by value and stands in the result: move it in and out where copies matter.
// REQUIRES: problems(program) is empty. Throws InputError where the Schedule cannot be expressed at
// all: unknown gradients, an empty bucket, a bucket that mixes dtypes. Whether the result is legal
// is verify's question.
Lowered lower(Program program, const Schedule& schedule);

}  // namespace dovetail::schedule

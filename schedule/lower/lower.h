// lower: joins a Program and a Schedule into the commands that each rank enqueues.
//
// One pass per decision, in this order; each is a file of schedule/lower/ (draft.h lists them), and
// each that did something leaves a line in the report:
//   0. rewrite   the Program: pipeline, micro-steps, folded factors, sharded updates
//   1. lay out   each bucket's buffer: members one after another, the end padded
//   2. scale     which buckets are multiplied by a factor, before or behind their collective
//   3. launch    after which op each collective is issued, never before the bucket listed above it
//   4. wait      before which op the compute stream waits for each bucket
//   5. gather    where the parameters of sharded buckets are completed
//   6. emit      the ops in program order, and around them packs, collectives, events, waits
//
// An overlapped bucket (streams s0 compute, s1 comm0), in host issue order:
//   s0 run producer  s0 pack  [s0 scale]  s0 record e0
//   s1 wait e0       s1 all-reduce        [s1 scale]    s1 record e1
//   ...              s0 wait e1           s0 unpack     s0 run reader
// Copy mode packs each gradient (or the part of it) right after its producer, where parameters are gathered for each
// use all of a bucket behind the last of them, and unpacks a bucket
// right after its wait. An inline bucket issues its collective on s0 and needs no events. A
// whole-stream wait waits for the last collective launched on that stream so far.
//
// A reduce-scattered bucket, its update and its bucket of parameters (AfterUpdate):
//   s1 wait e0  s1 reduce-scatter b0  [s1 all-reduce b0 shard, over replicas]  s1 record e1
//   s0 wait e1  s0 run bucket0.update  s0 record e2  s1 wait e2  s1 all-gather b4  s1 record e3
//   ...         s0 wait e3  s0 unpack b4                          (at the end of the step)
// NextForward puts record, all-gather and unpack at the start of the step instead.
//
// Micro-steps: buckets hold the sums, and there is one collective per bucket; with EveryMicroStep
// they hold the gradients, and every bucket is launched once in every micro-step.
//
// A gradient that owes two reductions lies in two buckets of the same members: the second one has
// no buffer, its collective runs on that of the first one, behind it.
//
// A pipeline has one role per stage, with the ops and buckets of that stage. Its sends and receives
// run on streams "p2p<a>-<b>", one per pair of virtual stages that exchange tensors, the same
// stream on both roles:
//   sender    s0 run producer  s0 record e0  s3 wait e0  s3 run send     s3 record e1
//   receiver  s0 record e5  s3 wait e5 (start of the step)  s3 run recv  s3 record e6
//             ...  s0 wait e6  s0 run reader
// At the end of the step the compute stream waits for what its role has sent.
//
// Command and event ids are unique over all roles. Lowering is deterministic.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "schedule/lower/pass_line.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/scheduled_program.h"

namespace dovetail::schedule {

struct Lowered {
  ScheduledProgram program;
  std::vector<PassLine> report;  // of each pass that did something
};

// The Program is taken by value and stands in the result: move it in and out where copies matter. What is made of an op or a tensor
// without a name has none either.
// REQUIRES: problems(program) is empty. Throws InputError where the Schedule cannot be expressed at
// all: unknown gradients, an empty bucket, a bucket that mixes dtypes, parts that overlap or lie in
// a view, members that need different factors, and every refusal of a rewriting pass. Whether the
// result is legal is verify's question.
Lowered lower(Program program, const Schedule& schedule);

}  // namespace dovetail::schedule

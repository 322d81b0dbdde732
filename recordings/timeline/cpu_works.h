// A rank without a GPU as the same kind of timeline: its thread computes, and Gloo's threads communicate.
//
// What is taken for what:
//   compute       all that the thread with most operators does: a piece from the begin of one operator to that of the next,
//                 Python between them included. Of other threads with operators: the operators, but for those within a
//                 collective (Gloo's thread copies in gloo:all_gather). Each thread is a stream
//   collective    an event gloo:*, mpi:* or ucc:* of another thread, which is its stream. Gloo's sends and receives are told of by
//                 the thread that called them and run in none: those that overlap are streams of their own. A barrier moves
//                 nothing: all its time is waiting for a later rank
//   launch        of a piece: its begin, by a call that takes no time. Of a collective: the c10d:: operator of the same
//                 kind and the same place in order, which began before it (of Gloo's all-reduce also that of a reduce-scatter, which Gloo
//                 has not); without one, its own begin
//   wait          where the thread computes nothing for 50 us or more and a collective ends in that time: it stood in a wait
//                 for it from the end of the operator before. Nothing is computed between operators, in wait_tensor, and in an
//                 operator of collectives (c10d::, _c10d_functional::) that takes 50 us and more by itself, which is longer than
//                 issuing takes, nor in a hook of FSDP (annotated FSDP::...), also one that an operator of autograd calls. That is a blocking call, and no compute; so is such an operator where no collective
//                 ends. A collective whose operator the thread stood in counts from there on
//
// All is of one clock. Gloo's threads share the processor with the one that computes: what that costs is in the recorded times.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/recording.h"
#include "recordings/timeline/rank_timeline.h"

namespace dovetail::imports {

// Adds calls, works, streams and collectives, and sets on_cpu and compute_stream, where the trace has such collectives.
// REQUIRES: line.parent is known, line.works is empty, nothing tells of a device (a host that launches does not compute).
void add_cpu_works(const Recording& trace, RankTimeline& line);

}  // namespace dovetail::imports

// add_transfers: the sends and receives of a pipeline.
//
// Roles share no memory. Wherever an op reads what another role wrote last, a pair of ops moves it:
//
//   stage 0  fc1.forward@0                   writes fc1.out@0
//   stage 0  fc1.out@0.send.0-1   send       reads  fc1.out@0   right behind the writer
//   stage 1  fc1.out@0.recv.0-1   receive    writes fc1.out@0   before the first reader there
//   stage 1  fc2.forward@0                   reads  fc1.out@0
//
// Both are CollectiveWork SendRecv, purpose Pipeline, over the group of pairs "pp0-1": ranks 0 D 1
// D+1 ..., instances of 2; `root` is the sender's index in its pair.
//
// - A value is sent once per role that reads it; a value that is written again is sent again.
// - Between two roles, receives stand in the order of their sends: a channel is first in, first
//   out, so a receive may have to stand before the reader of a later message. That creates no
//   circle: the message was sent before the later one.
// - A role that holds an older value of the same tensor receives the new one under a fresh name
//   ("x.received@3"), so that no receive overwrites what is still being read or sent.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/lower/rewrite/rewritten.h"
#include "schedule/program.h"

namespace dovetail::schedule {

// Refuses where an optimizer op reads what another role wrote: a norm over all stages, say.
// REQUIRES: ops stand in a serial order and say their stage; no parameter, optimizer state or owed
// gradient is used on two roles.
Rewrite add_transfers(Program program);

}  // namespace dovetail::schedule

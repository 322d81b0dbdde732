// verify: every reason why a ScheduledProgram is illegal, whoever wrote it.
//
// Works on happens-before: a command comes after the one before it on its stream, and a WaitEvent
// after the RecordEvent it waits for. Two commands that touch the same memory, one of them writing,
// must be ordered; every owed gradient must be reduced exactly once, after its last producer and
// before its readers in the optimizer; all ranks of a group must issue the same collectives in the
// same order, and no set of streams may wait for each other in a circle. An empty list is a proof,
// within this memory model, that the schedule changes time and not results.
//
//   bucket 0: all-reduce (c15) is not ordered after the write of fc2.grad by op fc2.backward (c12)
//   gradient fc1.bias.grad is never reduced over dp
//   op fc1.update (c22) reads fc1.grad before it holds the reduced value
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedule/scheduled_program.h"

namespace dovetail::schedule {

enum class ProblemKind {
  BadReference,       // unknown stream, op or bucket; an event or command id used twice
  OpOrder,            // an op missing, run twice, or out of program order
  UnrecordedEvent,    // a wait for an event that no earlier command records
  Race,               // two unordered accesses to the same memory, one of them a write
  NotReduced,         // an owed gradient that no collective reduces
  ReducedTwice,       // ... or more than one
  ReducedTooEarly,    // a collective before the last write of one of its members
  ReadBeforeReduced,  // the optimizer reads a gradient that is not reduced (or not unpacked) yet
  WrongReduction,     // group, operation or kind of collective differ from what is owed
  RankMismatch,       // ranks of one group disagree on their collective sequence
  Deadlock,           // streams that wait for each other for ever
  BadLayout,          // members overlap, exceed the buffer, or lie in two buckets
};

std::string_view to_string(ProblemKind kind);

struct Problem {
  ProblemKind kind = ProblemKind::BadReference;
  std::string message;
  friend bool operator==(const Problem&, const Problem&) = default;
};

// All problems, in command order. Cost: O(commands x streams + accesses).
std::vector<Problem> verify(const ScheduledProgram& program);

}  // namespace dovetail::schedule

// verify: every reason why a ScheduledProgram is illegal, whoever wrote it.
//
// What is owed is taken from the Program that the user gave, not from the one that lowering made of
// it and put into the ScheduledProgram; that one must still compute the same (schedule/verify/kept.h).
//
// Works on happens-before: a command comes after the one before it on its stream, and a WaitEvent
// after the RecordEvent it waits for. Two commands that touch the same memory, one of them writing,
// must be ordered; every op must read what it reads in program order; what the optimizer reads of a
// gradient must hold every micro-step once, be reduced once over each group that it owes, and be
// multiplied by exactly the owed factor; sharded parameters must be gathered before they are read;
// all ranks of a group must issue the same collectives in the same order, and no set of streams may
// wait for each other in a circle. An empty list is a proof, within this memory model, that the
// schedule changes time and not results.
//
//   bucket 0: all-reduce (c15) is not ordered after the write of fc2.grad by op fc2.backward (c12)
//   gradient fc1.bias.grad is never reduced over dp
//   op fc1.update (c22) reads fc1.grad before it holds the reduced value
//   op fc1.update (c22) reads fc1.grad scaled by 1/4, but 1/2 is owed
//
// The parts: schedule/verify/layout.h (buffers), schedule/verify/kept.h (the rewritten Program), schedule/verify/references.h (ids, op order), schedule/verify/interpreter.h
// (races and values, role by role), schedule/verify/loss_factors.h, progress.h (all roles together).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/words.h"

#include <string>
#include <string_view>
#include <vector>

#include "schedule/scheduled_program.h"

namespace dovetail::schedule {

using dovetail::to_string;

enum class ProblemKind {
  BadReference,       // unknown stream, op or bucket; an event or command id used twice
  OpOrder,            // an op missing, run twice, or that reads what another op should have written
  UnrecordedEvent,    // a wait for an event that no earlier command records
  Race,               // two unordered accesses to the same memory, one of them a write
  NotReduced,         // an owed gradient that no collective reduces
  ReducedTwice,       // ... or more than one over the same group; a micro-step added twice
  ReducedTooEarly,    // a collective or pack before the last write of one of its members
  ReadBeforeReduced,  // a reader finds a gradient that is not reduced (or not unpacked) yet
  WrongReduction,     // group, operation or kind of collective differ from what is owed
  WrongScale,         // the factors on a gradient's path do not multiply to what it owes
  MissingMicroStep,   // the optimizer reads a gradient that lacks some micro-steps
  ReadBeforeGathered,  // an op reads a parameter whose shards are not gathered, or gathered but not
                       // waited for, or released again
  GatheredTwice,       // an all-gather of parameters that are there already
  ReleasedInUse,       // parameters are freed beside an op that reads them, or beside their gather
  NotReleased,         // gathered parameters stay, or are freed that were not gathered
  GatherLimitExceeded,  // more parameters may be gathered at a time than the schedule allows
  RankMismatch,         // ranks of one group disagree on their collective sequence
  Deadlock,             // streams that wait for each other for ever
  OtherProgram,         // the plan computes or owes something else than the Program it was made of
  BadLayout,            // members overlap, exceed the buffer or tensor, or need two memories
};
constexpr auto words_of(ProblemKind) {
  return words("bad reference", "op order", "unrecorded event", "race", "not reduced",
               "reduced twice", "reduced too early", "read before reduced", "wrong reduction",
               "wrong scale", "missing micro-step", "read before gathered", "gathered twice",
               "released in use", "not released", "gather limit exceeded", "rank mismatch",
               "deadlock", "other program", "bad layout");
}

struct Problem {
  ProblemKind kind = ProblemKind::BadReference;
  std::string message;
  friend bool operator==(const Problem&, const Problem&) = default;
};

// All problems: of layouts, else of the plan's Program and of each role in command order, else of all
// roles together. `original` is the Program that the user gave, `merge` how a Schedule combines
// its micro-steps (Schedule::merge); a plan of which more micro-steps are asked than it has, or the
// other way round, is illegal. Where nothing was rewritten, plan.program may stand for the original.
// REQUIRES: problems(original) and problems(plan.program) are empty. Cost: O(commands x streams +
// accesses).
std::vector<Problem> verify(const Program& original, const ScheduledProgram& plan,
                            const Merge& merge = {});

}  // namespace dovetail::schedule

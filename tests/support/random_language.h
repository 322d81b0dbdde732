// Schedules drawn from the whole language, and illegal ScheduledPrograms made by one mutation.
//
// The proof of the law takes both: legal ones must run on real ranks without a wrong element,
// illegal ones must be rejected before anything runs, for the right reason.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/random.h"
#include "schedule/schedule.h"
#include "schedule/scheduled_program.h"
#include "schedule/verify/verify.h"

namespace dovetail::testing {

// Grouping, slices, padding, modes, streams, launch points, batches, waits, scopes, micro-steps,
// scaling, sharding with both ways to gather: each drawn independently where the language allows the
// combination. What a rewriting pass refuses (lower throws InputError) is drawn all the same.
schedule::Schedule random_language_schedule(Random& random, const schedule::Program& program);

// Places some of the Program's own collectives: stream, launch and scope each at random.
void place_collectives(Random& random, const schedule::Program& program,
                       schedule::Schedule& schedule);

// One way to break a legal ScheduledProgram.
struct Mutation {
  std::string name;                            // "a wait removed"
  std::vector<schedule::ProblemKind> reasons;  // one of these must be among verify's problems
  schedule::ScheduledProgram plan;
};

// A random mutation of the kind `index` (taken modulo mutation_kinds()); nothing where this plan has
// no place for it.
std::optional<Mutation> mutate(Random& random, const schedule::ScheduledProgram& legal,
                               std::size_t index);
std::size_t mutation_kinds();

// Those kinds that change what the plan's own Program computes or owes; also among the kinds above.
std::optional<Mutation> mutate_program(Random& random, const schedule::ScheduledProgram& legal,
                                       std::size_t index);
std::size_t program_mutation_kinds();

}  // namespace dovetail::testing

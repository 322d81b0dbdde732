// What travels in a ScheduledProgram, who meets in it, and what opens its launch: worked out once.
//
// Which commands meet: the k-th of each role over the same process group on the same stream; of sends
// and receives the k-th in the same direction (root), as a communicator pairs them. Roles meet where an
// instance of the group has ranks of both.
// What opens a launch: the record on the compute stream, if between it and the collective the host
// issues nothing else to the compute stream. Collectives behind one record are enqueued together.
//
// lower calls it; who builds or changes commands by hand calls it again. The verifier (schedule/verify/progress.h) plays
// the commands themselves and does not rely on it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/id_table.h"
#include "schedule/scheduled_program.h"

#include <optional>

namespace dovetail::schedule {

// Fills plan.transfers, and `transfer` and `launch` of every command. REQUIRES: the commands name ops,
// buckets and groups that the plan has. Cost: O(commands + ranks of groups that several roles share).
void link_transfers(ScheduledProgram& plan);

// What one command communicates, with the size and type of its bucket or op.
class Messages {
 public:
  // Keeps references to the plan.
  explicit Messages(const ScheduledProgram& plan);
  // Without an id; absent where the command communicates nothing.
  [[nodiscard]] std::optional<Transfer> of(const Command& command) const;

 private:
  IdTable<OpId, const Op*> ops_{nullptr};  // whose work is a collective
  IdTable<BucketId, const BucketLayout*> layouts_{nullptr};
};

}  // namespace dovetail::schedule

// What a command puts on a network or moves in memory, whichever way it is written: a bucket's
// collective or an op of the Program whose work is one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "schedule/id_table.h"
#include "schedule/scheduled_program.h"

namespace dovetail::sim {

// max_ctas is left out: how a collective slows down with fewer thread blocks is not modelled.
struct Communication {
  schedule::Collective kind = schedule::Collective::AllReduce;
  const schedule::ProcessGroup* group = nullptr;
  Bytes bytes;            // as Costs::collective counts them
  std::int32_t root = 0;  // of a send: the sender's index in its instance
};

// Look-ups by id without a search. Keeps a reference to the program.
class Communications {
 public:
  explicit Communications(const schedule::ScheduledProgram& program);

  // Absent: the command communicates nothing.
  [[nodiscard]] std::optional<Communication> of(const schedule::Command& command) const;
  [[nodiscard]] Bytes bytes(const schedule::Copy& copy) const;
  [[nodiscard]] Bytes bytes(const schedule::Scale& scale) const;

 private:
  const schedule::ScheduledProgram& program_;
  schedule::IdTable<OpId, const schedule::CollectiveWork*> works_;
  schedule::IdTable<BucketId, const schedule::BucketLayout*> layouts_;
  // Of tensors that lie in one bucket, as a whole; 0 for others.
  schedule::IdTable<TensorId, Bytes> whole_;
};

}  // namespace dovetail::sim

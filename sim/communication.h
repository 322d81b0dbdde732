// What commands move in memory.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/id_table.h"
#include "schedule/scheduled_program.h"

namespace dovetail::sim {

// How much each command moves in memory, without a search. Keeps a reference to the program.
class MovedBytes {
 public:
  explicit MovedBytes(const schedule::ScheduledProgram& program);

  [[nodiscard]] Bytes of(const schedule::Copy& copy) const;
  [[nodiscard]] Bytes of(const schedule::Scale& scale) const;

 private:
  const schedule::ScheduledProgram& program_;
  schedule::IdTable<BucketId, const schedule::BucketLayout*> layouts_;
  // Of tensors that lie in one bucket, as a whole; 0 for others.
  schedule::IdTable<TensorId, Bytes> whole_;
};

}  // namespace dovetail::sim

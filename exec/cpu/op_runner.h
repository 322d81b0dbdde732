// OpRunner: what the ops of one rank compute. The seam between the backend, which moves data and
// orders streams, and the values that are moved.
//
//   SyntheticOps    synthetic_ops.h: work of the right shape, and known values that prove the schedule
//   a training job  exec/training: real forward, backward and optimizer
//
// The backend calls run() on the compute thread, in the order of the rank's commands, for every op
// whose work is not a collective. Those the backend executes itself, from tensor(reads[0]) to
// tensor(writes[0]), on whichever stream they stand. Collectives, packs, unpacks and scales between
// the ops are the backend's too: so a runner reads and writes TensorMemory and nothing else.
//   Update       reads tensor(gradient), writes tensor(parameter)
//   ShardUpdate  reads shard_members(gradients), writes shard_members(parameters): the i-th ranges
//                of both belong together. An all-gather and an unpack complete tensor(parameter)
//   GlobalNorm with shard: sums over shard_members of the buckets that hold what it reads
// Which memory an op may touch follows from its reads and writes; a legal plan has no race on it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/backend.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace dovetail::exec::cpu {

class TensorMemory;

class OpRunner {
 public:
  virtual ~OpRunner() = default;

  // Before the first command of a step. Steps rise, not always by one: plans may take turns.
  virtual void begin_step(std::int32_t step) = 0;
  virtual void run(const schedule::Op& op) = 0;
  // After the last command of a step, when every stream is idle.
  virtual CheckResult check_values() = 0;
};

// The memory is complete when this is called, and outlives the runner.
using MakeOps = std::function<std::unique_ptr<OpRunner>(const schedule::ScheduledProgram& plan,
                                                        Rank rank, TensorMemory& memory)>;

}  // namespace dovetail::exec::cpu

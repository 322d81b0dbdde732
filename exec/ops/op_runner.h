// OpRunner: what the ops of one rank compute. The seam between a backend, which moves data and orders
// streams, and the values that are moved.
//
//   SyntheticOps  synthetic_ops.h: work of the right shape, and known values that prove the schedule
//   TrainingOps   training_ops.h: a small job with real forward, backward and optimizer
//
// The backend calls run(), in the order of the rank's commands, for every op whose work is not a collective, with the
// stream that the op stands on. Collectives, packs, unpacks and scales between the ops are the backend's: so a
// runner reads and writes DeviceMemory and nothing else.
//   Update       reads tensor(gradient), writes tensor(parameter)
//   ShardUpdate  reads shard_members(gradients), writes shard_members(parameters): the i-th ranges
//                of both belong together. An all-gather and an unpack complete tensor(parameter)
//   Accumulate with shard: between the shard_members of the buckets that hold the two tensors
//   GlobalNorm with shard: sums over shard_members of the buckets that hold what it reads
// Which memory an op may touch follows from its reads and writes; a legal plan has no race on it. Nothing waits and
// nothing is allocated in run(), which may be under capture (device.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/backend.h"
#include "exec/device/memory.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <functional>
#include <memory>

namespace dovetail::exec {

class OpRunner {
 public:
  virtual ~OpRunner() = default;

  // Before the first command of a step, on the compute stream, never captured. Steps rise, not always by one: plans may
  // take turns.
  virtual void begin_step(std::int32_t step, DeviceStream stream) = 0;
  virtual void run(const schedule::Op& op, DeviceStream stream) = 0;
  // After the last command of a step, when every stream is idle. May wait.
  virtual CheckResult check_values(DeviceStream stream) = 0;
};

// The memory is complete when this is called, and outlives the runner.
using MakeOps = std::function<std::unique_ptr<OpRunner>(const schedule::ScheduledProgram& plan,
                                                        Rank rank, DeviceMemory& memory)>;

}  // namespace dovetail::exec

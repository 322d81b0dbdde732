// OpRunner: what the ops of one rank compute on the device, as exec/cpu/op_runner.h on a processor.
//
// The backend calls run() for every op whose work is not a collective, with the stream that the op
// stands on. Everything is enqueued, nothing waits, nothing is allocated: run() may be under
// capture for a graph that later steps replay, so what changes from step to step is read from
// device memory.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/backend.h"
#include "schedule/scheduled_program.h"

#include <cuda_runtime_api.h>

#include <cstdint>

namespace dovetail::exec::cuda {

class OpRunner {
 public:
  virtual ~OpRunner() = default;

  // Before the first command of a step, on the compute stream, never captured.
  virtual void begin_step(std::int32_t step, cudaStream_t stream) = 0;
  virtual void run(const schedule::Op& op, cudaStream_t stream) = 0;
  // After the last command of a step, when every stream is idle. May wait.
  virtual CheckResult check_values(cudaStream_t stream) = 0;
};

}  // namespace dovetail::exec::cuda

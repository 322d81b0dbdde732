// A whole step as one CUDA graph: captured over all streams once, launched ever after.
//
// Capture begins on the compute stream, the other streams join it through an event, and all of them
// meet again before it ends. Mode ThreadLocal, as NCCL's threads make CUDA calls of their own.
// Instantiated with node priorities, else the priority of communication streams would be lost.
//
// The first launch also moves the graph to the device, so it is no measurement (kGraphWarmup, module.h). cudaGraphUpload
// would do that apart, but in driver 580.159.04 it ends in a segmentation fault on a graph that holds NCCL's kernels.
//
// NCCL neither destroys nor aborts a communicator while a graph holds its kernels: whoever does so
// must release() the graph before, or waits for ever.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/handles.h"

#include <span>
#include <vector>

namespace dovetail::exec::cuda {

class StepGraph {
 public:
  // Begins capture. `streams` live as long as this; streams[0] is the compute stream.
  explicit StepGraph(std::span<const Stream> streams);
  StepGraph(const StepGraph&) = delete;
  StepGraph& operator=(const StepGraph&) = delete;
  ~StepGraph();

  // Ends capture and makes the graph executable.
  void finish();
  // REQUIRES: finish() was called.
  void launch();
  // Gives up what launch() needs. What runs goes on, and is freed when it has ended. Any thread.
  void release();

 private:
  std::span<const Stream> streams_;
  bool is_capturing_ = false;
  Event fork_;
  std::vector<Event> joins_;
  GraphExecHandle executable_;
};

}  // namespace dovetail::exec::cuda

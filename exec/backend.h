// A Backend: streams, events and buffers of one rank on one kind of hardware, behind the one interface that
// the run loop knows.
//
// exec/run.cc walks the rank's commands in host issue order and calls one function per command. A
// backend executes them asynchronously or not, but each stream in order, and notes when each began
// and ended.
//   cpu    exec/cpu: the compute stream is the calling thread, each communication stream a thread of its own
//   cuda   exec/cuda: streams and events of a GPU, NCCL's collectives
//   fake   exec/fake: a virtual clock with given durations, to hold the run loop against the simulator
//
// Times are nanoseconds of one clock that all ranks share (CLOCK_MONOTONIC on one host).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::exec {

// One command as it ran. Clock readings in nanoseconds since an arbitrary origin common to all
// ranks.
struct Timing {
  CommandId command;
  StreamId stream;
  std::int32_t step = 0;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
};

// A kernel or copy that the device ran for a command. Clock readings as in Timing; a profiling
// library maps them from the device's clock, so they may differ from Timings by microseconds.
struct DeviceWork {
  CommandId command;
  std::int32_t step = 0;
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
  std::string name;
  friend bool operator==(const DeviceWork&, const DeviceWork&) = default;
};

// The count of elements that were checked against their exact value, and of those that differed.
struct CheckResult {
  std::int64_t checked = 0;
  std::int64_t wrong = 0;
  std::string
      first_wrong;  // "rank 1 step 3 fc1.weight.grad[17]: expected 12.5, found 12"; empty when none
};

class Backend {
 public:
  virtual ~Backend() = default;

  // Meets the other ranks: returns once all have called it. Not timed.
  virtual void barrier() = 0;
  // A step begins now on the compute stream. Gradients and parameters hold this step's known values
  // afterwards.
  virtual void begin_step(std::int32_t step) = 0;

  virtual void run_op(const schedule::Command& command, const schedule::RunOp& action) = 0;
  virtual void communicate(const schedule::Command& command,
                           const schedule::Communicate& action) = 0;
  virtual void copy(const schedule::Command& command, const schedule::Copy& action) = 0;
  virtual void scale(const schedule::Command& command, const schedule::Scale& action) = 0;
  // Of parameters that were gathered. Costs no time on a device.
  virtual void release(const schedule::Command& command, const schedule::Release& action) = 0;
  virtual void record(const schedule::Command& command, const schedule::RecordEvent& action) = 0;
  virtual void wait(const schedule::Command& command, const schedule::WaitEvent& action) = 0;

  // Blocks until every stream is idle; returns the timings since begin_step. Throws DeviceError
  // naming rank, bucket and call when a peer died or a deadline passed.
  virtual std::vector<Timing> finish() = 0;
  // Of the same step, where the backend can tell and was asked to. Call after finish().
  virtual std::vector<DeviceWork> device_work() { return {}; }
  // Compares every reduced gradient element with its exact value. Call after finish().
  virtual CheckResult check_values() = 0;
};

}  // namespace dovetail::exec

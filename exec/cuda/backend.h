// The cuda backend: one rank on one GPU.
//
// Every stream of the plan is a CUDA stream, those that communicate at the highest priority.
// Commands are enqueued in host issue order and nothing waits but finish(): RecordEvent and
// WaitEvent become cudaEventRecord and cudaStreamWaitEvent, collectives NCCL calls, copies one
// kernel per command.
//
// With Issue::Graph the first step runs eagerly (it connects communicators and loads kernels), the
// second is captured and launched, and from then on each step is one more launch of that graph; what changes
// from step to step is the step number in device memory. Neither of the first two is a measurement (kGraphWarmup).
//
// Timings: one per op, collective, copy and scale, and one per wait of the compute stream (its
// stall). A Scale that its collective carries out (fold_scale.h) has a Timing of no length. Issuing
// costs the host time beside the device, so it has no Timing (a host of kind Async
// in models/costs/costs.h).
//
// The ranks of a job begin a step at one moment (exec/common_start.h), once each has prepared it.
//
// A CudaBackend is used by one thread, whose current device it sets.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/backend.h"
#include "exec/common_start.h"
#include "exec/cuda/communicators.h"
#include "exec/cuda/cupti.h"
#include "exec/cuda/device.h"
#include "exec/cuda/fold_scale.h"
#include "exec/cuda/graph.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/module.h"
#include "exec/cuda/timing.h"
#include "exec/cuda/watch.h"
#include "exec/device/bucket_moves.h"
#include "exec/device/memory.h"
#include "exec/device/message.h"
#include "exec/ops/op_runner.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::exec::cuda {

class CudaBackend final : public Backend {
 public:
  // Throws InputError for what cannot be executed, before the device is touched.
  // REQUIRES: plan outlives the backend and passed verify.
  CudaBackend(const schedule::ScheduledProgram& plan, const BackendOptions& options);
  ~CudaBackend() override;

  void barrier() override { options_.exchange.barrier(); }
  void begin_step(std::int32_t step) override;
  void run_op(const schedule::Command& command, const schedule::RunOp& action) override;
  void communicate(const schedule::Command& command, const schedule::Communicate& action) override;
  void copy(const schedule::Command& command, const schedule::Copy& action) override;
  void scale(const schedule::Command& command, const schedule::Scale& action) override;
  // Device memory stays laid out; what is released is spoiled (exec/device/device.h), so that whoever reads it
  // before the next gather reads NaN. Like an event it is one more launch, and has no Timing.
  void release(const schedule::Command& command, const schedule::Release& action) override;
  void record(const schedule::Command& command, const schedule::RecordEvent& action) override;
  void wait(const schedule::Command& command, const schedule::WaitEvent& action) override;
  std::vector<Timing> finish() override;
  std::vector<DeviceWork> device_work() override;
  CheckResult check_values() override;

  [[nodiscard]] std::map<std::string, std::string> notes() const;
  [[nodiscard]] training::Trained trained() const;

 private:
  // A message and the communicator that it runs on.
  struct Sending {
    Message message;
    std::size_t communicator = 0;
  };

  void load_kernels() const;
  void make_ops();
  void plan_folds();
  void plan_commands();
  void note_first(const schedule::Command& command);
  void plan_collective(const schedule::Command& command, Message message);
  void release_all();
  [[nodiscard]] cudaStream_t stream_of(const schedule::Command& command) const;
  [[nodiscard]] bool is_replayed() const { return mode_ == Mode::Replay; }
  // Enqueues within a timed span and a named range.
  template <class Enqueue>
  void timed(const schedule::Command& command, const Enqueue& enqueue);
  [[nodiscard]] bool is_timed_whole() const { return options_.events == StepEvents::TwoPerStep; }
  void begin_whole();
  void end_whole();
  void wait_until_idle();
  [[nodiscard]] std::string label_of_unfinished() const;

  enum class Mode { Eager, Capture, Replay };

  const schedule::ScheduledProgram& plan_;
  BackendOptions options_;
  Rank rank_;
  Bytes free_before_,
      free_after_;  // device memory, before and after all that this backend allocates
  Watch watch_;
  CudaDevice device_;
  DeviceMemory memory_;
  std::vector<Stream> streams_;       // by stream id
  std::unique_ptr<StepGraph> graph_;  // outlives the communicators, whose abort releases it
  std::unique_ptr<OpRunner> ops_;
  StepTimer timer_;
  CommonStart start_;
  std::map<EventId, Event> events_;
  std::vector<Event> ends_;  // of a step, by stream
  std::map<OpId, const schedule::Op*> op_of_;
  std::map<CommandId, Sending> sendings_;
  std::map<CommandId, Packing> packings_;
  std::map<BucketId, Freeing> freeings_;
  std::map<CommandId, Fold> folds_;  // by either command
  std::map<CommandId, std::string> labels_;
  std::unique_ptr<ActivityRecorder> recorder_;  // of a full trace
  std::size_t lost_work_ = 0;
  Mode mode_ = Mode::Eager;
  std::int32_t step_ = 0;
  std::int64_t steps_begun_ = 0;
  std::optional<CommandId> first_op_;  // of the compute stream
  std::size_t whole_step_ = 0;         // a span of timer_, where a step has two events
  // Destroyed first: freeing memory waits for the device, where a collective may hang until it is
  // aborted.
  std::unique_ptr<Communicators> communicators_;
};

}  // namespace dovetail::exec::cuda

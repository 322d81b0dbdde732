// The cpu backend: one rank on processor cores and a real network.
//
// The calling thread is the compute stream. Each communication stream is a thread with a transport
// (CommThread). A collective on stream 0 runs on the calling thread, through a transport of its
// own. Every backward op does its work and then writes the known values of its gradients
// (values.h); the first reader of a reduced gradient copies it, as an optimizer would. A command of
// a communication stream gives two Timings: on stream 0 while it is enqueued, on its own stream
// while it runs.
//
// Memory-bound work counts the gradient bytes it really touches towards its total. Only f32
// gradients and one process group of all ranks are executed; anything else is an InputError.
//
// A CpuBackend is used by one thread. It throws what a communication thread met at the next wait or
// finish.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/backend.h"
#include "exec/cpu/comm_thread.h"
#include "exec/cpu/memory.h"
#include "exec/cpu/transport.h"
#include "schedule/scheduled_program.h"

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::exec::cpu {

// What a rank is plugged into. open_transport is called once per stream that carries collectives,
// in stream order; every rank does so in the same order.
struct Ports {
  Rank rank;
  std::function<void()> barrier;
  std::function<std::unique_ptr<Transport>(StreamId)> open_transport;
  std::function<void()> prepare_comm_thread;  // pin it, set its priority; may be empty
  std::shared_ptr<Workspace> workspace;       // shared by backends that run in turn; may be empty
};

class CpuBackend final : public Backend {
 public:
  // REQUIRES: plan outlives the backend and passed verify.
  CpuBackend(const schedule::ScheduledProgram& plan, Ports ports);
  ~CpuBackend() override;

  void barrier() override { ports_.barrier(); }
  void begin_step(std::int32_t step) override;
  void run_op(const schedule::Command& command, const schedule::RunOp& action) override;
  void run_collective(const schedule::Command& command,
                      const schedule::RunCollective& action) override;
  void copy(const schedule::Command& command, const schedule::Copy& action) override;
  void scale(const schedule::Command& command, const schedule::Scale& action) override;
  void record(const schedule::Command& command, const schedule::RecordEvent& action) override;
  void wait(const schedule::Command& command, const schedule::WaitEvent& action) override;
  std::vector<Timing> finish() override;
  CheckResult check() override;

  // Processor time of all communication threads so far.
  [[nodiscard]] std::int64_t comm_cpu_ns() const;

 private:
  // An op with what it does to gradients.
  struct OpPlan {
    struct Production {
      TensorId gradient;
      std::int32_t writes_left = 0;
    };
    const schedule::Op* op = nullptr;
    std::vector<Production> writes;
    std::vector<TensorId> applies;  // reduced gradients that it is the first to read
    Bytes gradient_bytes;           // touched by both
  };

  void plan_ops();
  void plan_commands();
  void open_streams();
  [[nodiscard]] CommThread* comm_thread(const schedule::Command& command);
  CollectiveCall collective_call(const schedule::RunCollective& action) const;
  void note(const schedule::Command& command, std::int64_t start_ns, std::int64_t end_ns);
  void compare(const schedule::Reduction& reduction, std::span<const float> found,
               std::string_view where, CheckResult& result) const;

  const schedule::ScheduledProgram& plan_;
  Ports ports_;
  GradientMemory memory_;
  std::map<OpId, OpPlan> ops_;
  std::map<EventId, std::size_t> events_;  // numbered for the table
  // "all-reduce of bucket 3", for errors
  std::map<std::pair<BucketId, schedule::Collective>, std::string> labels_;
  std::vector<bool> carries_collectives_;  // by stream
  std::vector<bool> is_applied_;           // by position in program.reductions
  std::int32_t step_ = 0;
  std::vector<Timing> timings_;

  std::unique_ptr<EventTable> table_;
  std::unique_ptr<Transport> inline_transport_;
  std::vector<std::unique_ptr<CommThread>> threads_;  // by stream; destroyed before the table
};

}  // namespace dovetail::exec::cpu

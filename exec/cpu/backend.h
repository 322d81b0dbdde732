// The cpu backend: one rank on processor cores and a real network.
//
// The calling thread is the compute stream. Each communication stream is a thread (CommThread) with
// one transport per process group that it serves. A collective on stream 0 runs on the calling
// thread, through transports of its own. What ops compute is an OpRunner's business; ops that are
// collectives themselves run on whichever stream they stand. A command of a communication stream
// gives two Timings: on stream 0 while it is enqueued, on its own stream while it runs.
//
// What is reduced must be f32, what is gathered or stays on the rank f32 or bf16; anything else is an InputError.
//
// A CpuBackend is used by one thread. It throws what a communication thread met at the next wait or
// finish.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/backend.h"
#include "exec/communicator_plan.h"
#include "exec/cpu/comm_thread.h"
#include "exec/cpu/device.h"
#include "exec/cpu/transport.h"
#include "exec/device/bucket_moves.h"
#include "exec/device/memory.h"
#include "exec/device/message.h"
#include "exec/ops/op_runner.h"
#include "schedule/id_table.h"
#include "schedule/scheduled_program.h"

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dovetail::exec::cpu {

// What a rank is plugged into. open_transport is called once per stream and process group that the
// plan uses anywhere (communicator_plan.h), with the ranks of this rank's instance of the group
// (itself alone where it is in none); every rank does so in the same order.
struct Ports {
  Rank rank;
  std::function<void()> barrier;
  std::function<std::unique_ptr<Transport>(StreamId, std::span<const Rank>)> open_transport;
  std::function<void()> prepare_comm_thread;  // pin it, set its priority; may be empty
  std::shared_ptr<Workspace> workspace;       // shared by backends that run in turn; may be empty
  MakeOps make_ops;                           // empty: SyntheticOps
  // All: tensors lie in memory of their own, and parameters and optimizer states live from step to step.
  Scope tensors = Scope::Communicated;
};

class CpuBackend final : public Backend {
 public:
  // REQUIRES: plan outlives the backend and passed verify.
  CpuBackend(const schedule::ScheduledProgram& plan, Ports ports);
  ~CpuBackend() override;

  void barrier() override { ports_.barrier(); }
  void begin_step(std::int32_t step) override;
  void run_op(const schedule::Command& command, const schedule::RunOp& action) override;
  void communicate(const schedule::Command& command, const schedule::Communicate& action) override;
  void copy(const schedule::Command& command, const schedule::Copy& action) override;
  void scale(const schedule::Command& command, const schedule::Scale& action) override;
  void release(const schedule::Command& command, const schedule::Release& action) override;
  void record(const schedule::Command& command, const schedule::RecordEvent& action) override;
  void wait(const schedule::Command& command, const schedule::WaitEvent& action) override;
  std::vector<Timing> finish() override;
  CheckResult check_values() override;

 private:
  using Transports = std::vector<std::unique_ptr<Transport>>;

  void plan_commands();
  void open_streams();
  Transports open_transports(StreamId stream);
  [[nodiscard]] CommThread* comm_thread(const schedule::Command& command);
  // Position of the command's communicator among those of its stream.
  [[nodiscard]] std::size_t transport_of(const schedule::Command& command) const;
  // Runs its collective on the command's stream: enqueued, or at once on the compute stream.
  void execute(const schedule::Command& command);
  void plan_collective(const schedule::Command& command, const Message& message);
  void release_all();
  void note(const schedule::Command& command, std::int64_t start_ns, std::int64_t end_ns);

  const schedule::ScheduledProgram& plan_;
  Ports ports_;
  CpuDevice device_;
  DeviceMemory memory_;
  std::unique_ptr<OpRunner> ops_;
  schedule::IdTable<OpId, const schedule::Op*> op_of_{nullptr};
  schedule::IdTable<CommandId, CollectiveCall> calls_;
  std::map<CommandId, Packing> packings_;
  std::map<BucketId, Freeing> freeings_;
  std::map<EventId, std::size_t> events_;       // numbered for the table
  std::map<CommandId, std::string> labels_;     // "all-reduce of bucket 3", for errors
  std::vector<CommunicatorKey> communicators_;  // of all roles
  std::int32_t step_ = 0;
  std::vector<Timing> timings_;

  std::unique_ptr<EventTable> table_;
  Transports inline_transports_;
  std::vector<std::unique_ptr<CommThread>> threads_;  // by stream; destroyed before the table
};

}  // namespace dovetail::exec::cpu

// The NCCL communicators of one rank, and the enqueueing of transfers on them.
//
// One per key of communicator_plan.h, created in that order on all ranks. Calls block (blocking=1)
// and creation runs under the watch on a thread of its own: with blocking=0 NCCL starts a host
// thread for every collective, which would distort eager timings. Every other call of this thread
// that talks to peers stands under Watch::call. A hang on the device is found by whoever waits for
// it (watch.h), who then calls abort(). The block that holds all buckets is registered with every
// communicator: over a network its buffers are then used in place; within a node NCCL 2.28 ignores
// the registration of memory from cudaMalloc (transport/p2p.cc ipcRegisterBuffer wants memory of
// ncclMemAlloc), so what is measured then is NCCL without NVLS or IPC zero-copy, as most trainers
// run. With Buffers::Registered the block is of ncclMemAlloc.
//
// As a stand-in (one rank) each transfer's larger side travels through grouped ncclSend and
// ncclRecv to this rank itself, into memory of its own: NCCL's real kernel, on as many channels as
// the communicator may have; minCTAs = maxCTAs fixes that number.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/communicator_plan.h"
#include "exec/cuda/check.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/kept_communicators.h"
#include "exec/cuda/module.h"
#include "exec/cuda/side_threads.h"
#include "exec/cuda/watch.h"
#include "exec/device/memory.h"
#include "exec/device/message.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::exec::cuda {

class Communicators {
 public:
  struct Options {
    std::int32_t device = 0;
    Exchange exchange;
    StandIn stand_in = StandIn::None;
    std::int32_t cluster_size = 0;                      // 0: NCCL decides
    std::shared_ptr<KeptCommunicators> kept = nullptr;  // may be empty
  };
  // Meets the other ranks. REQUIRES: plan, memory and watch outlive this.
  Communicators(const schedule::ScheduledProgram& plan, const DeviceMemory& memory, Watch& watch,
                const Options& options);
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;
  ~Communicators();

  [[nodiscard]] std::size_t index_of(const schedule::Command& command) const;
  // Makes what a transfer needs: room for the stand-in's copy, the reduction that multiplies.
  // Before the first enqueue.
  void reserve(const Message& message, std::size_t index);
  void enqueue(const Message& message, std::size_t index, cudaStream_t stream);

  // What NCCL reports asynchronously; "" if nothing.
  [[nodiscard]] std::string error() const;
  // Ends every operation in flight on the device. From then on nothing can be enqueued. Called from
  // this thread, or from another one while this one hangs in a call (call_guard.h). Returns after a
  // second at the latest: NCCL's own clean-up may have to wait for a graph that the caller still
  // has to destroy (side_threads.h); the destructor gives it a second more.
  void abort();

 private:
  struct One {
    ncclComm_t communicator = nullptr;  // of groups without this rank: none
    void* registration = nullptr;
    DeviceBuffer twin;                                              // where a stand-in receives
    std::map<std::pair<Element, double>, ncclRedOp_t> multiplying;  // by element type and factor
  };
  void connect(const Exchange& exchange);
  [[nodiscard]] KeptKey kept_key(const CommunicatorKey& key) const;
  // Those of kept ones that are there; returns the positions of all others.
  std::vector<std::size_t> take_kept();
  void create(const Exchange& exchange, const std::vector<std::size_t>& missing);
  void register_block(std::size_t index);
  void destroy(std::size_t index);
  void issue(const Message& message, const One& one, cudaStream_t stream);
  void send_to_self(const Message& message, const One& one, cudaStream_t stream);
  static ncclRedOp_t operation(const Message& message, const One& one);
  void reduce(const Message& message, const One& one, cudaStream_t stream);
  void exchange_parts(const Message& message, const One& one, cudaStream_t stream);
  void pass_on(const Message& message, const One& one, cudaStream_t stream);

  const schedule::ScheduledProgram& plan_;
  const DeviceMemory& memory_;
  Watch& watch_;
  Options options_;
  StandIn stand_in_;
  std::vector<CommunicatorKey> keys_;
  std::vector<One> all_;
  std::atomic<bool> is_aborted_ = false;  // also asked by the thread of call_guard.h
  SideThreads aborts_;
  int exceptions_at_start_ = 0;
};

}  // namespace dovetail::exec::cuda

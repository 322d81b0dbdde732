// The emulated CUDA runtime, as its own files and the emulated NCCL and cuBLAS see it.
//
// What the real library reports is returned as its error code; what it lets pass, or waits on for
// ever, is a complaint (emulated.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/emulated/emulated.h"
#include "tests/emulated/machine.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace dovetail::emulated {

// Work of one kind never overlaps, in the order in which it was enqueued: one per communicator.
struct Serial {
  TaskRef last;  // under the machine's lock
};

struct Work {
  std::string name;
  std::function<Run()> begin{};  // called once per execution; empty: nothing to do
  std::vector<Access> accesses{};
  enum class Device {
    OfStream,
    Current
  } device = Device::OfStream;  // Current: must be the stream's
  std::shared_ptr<Serial> serial{};
  // What a graph keeps while it holds this work; may be empty.
  std::function<std::shared_ptr<void>()> retain{};
};
// Work that ends at once.
std::function<Run()> at_once(std::function<void()> action);

// Puts the work on the stream, or into the graph that captures it.
cudaError_t enqueue(cudaStream_t stream, Work work);
bool is_capturing(cudaStream_t stream);

std::int32_t current_device();
// Notes the error as this thread's last one, and returns it.
cudaError_t report(cudaError_t error);
// From now on every call that reaches the device fails.
void break_device(std::int32_t device);
cudaError_t state_of(std::int32_t device);

// Whether all of it lies in one allocation that this device may touch. The lock is held.
bool is_reachable(const void* data, std::size_t bytes, std::int32_t device);
// The same without the lock; `device` is the current one.
// Memory of ncclMemAlloc, which only ncclMemFree gives back.
bool is_mapped_by_nccl(const void* data);
void set_mapped_by_nccl(const void* data, bool is_mapped);
bool is_device_memory(const void* data, std::size_t bytes);

// Code is loaded when it first runs, unless it was before.
void load_code(const std::string& name);
void expect_loaded(const std::string& name);
// How many communicators have had operations, and were neither destroyed nor aborted (nccl.cc).
int communicators_in_use();

// ---- between the runtime's files; all under the machine's lock

// One graph under construction. It is shared by all streams that belong to it.
struct Capture;
struct EventState {
  std::int32_t device = 0;
  bool has_time = false;
  bool is_recorded = false;
  TaskRef last;
  Clock clock;
  std::shared_ptr<Capture> capture;  // of the latest record, if it was captured
  std::vector<std::size_t> nodes;    // of that capture: what had been captured on its stream
};
struct Node {
  Work work;
  std::vector<std::size_t> after;       // earlier nodes
  std::size_t stream = 0;               // by order of joining
  std::shared_ptr<EventState> records;  // an external record
  std::shared_ptr<void> retained;
};
struct GraphBody {
  GraphBody() = default;
  GraphBody(const GraphBody&) = delete;
  GraphBody& operator=(const GraphBody&) = delete;
  ~GraphBody();
  std::vector<Node> nodes;
  std::size_t streams = 0;
  std::vector<std::size_t> lanes;  // of an executable graph, by stream
  TaskRef last;                    // the end of its latest launch
};
struct Capture {
  std::shared_ptr<GraphBody> graph = std::make_shared<GraphBody>();
  cudaStream_t origin = nullptr;
  std::vector<cudaStream_t> members;
  std::uint64_t thread = 0;
  bool is_ended = false;
  cudaError_t invalidated = cudaSuccess;
};

// This thread as a number.
std::uint64_t this_thread();
// cudaSuccess, or why this thread may not make a call that waits, asks or allocates: it captures.
// Invalidates the capture.
cudaError_t unsafe_in_capture();
void begin_thread_capture(const std::shared_ptr<Capture>& capture);
// The stream itself, or the current device's default stream for nullptr.
cudaStream_t real_stream(cudaStream_t stream);
// Checks ranges and races, says what is wrong; false if the work must not run.
bool admit(const Work& work, std::int32_t device, std::size_t lane, const Clock& clock);
// A piece of the host's time with the machine's lock.
inline std::unique_lock<std::mutex> locked() { return std::unique_lock(Machine::instance().mutex); }

}  // namespace dovetail::emulated

struct CUstream_st {
  std::int32_t device = 0;
  std::size_t lane = 0;
  bool is_default = false;
  dovetail::emulated::Clock clock;
  dovetail::emulated::TaskRef last;
  std::shared_ptr<dovetail::emulated::Capture> capture;
  std::size_t member = 0;         // its number in the capture
  std::vector<std::size_t> tail;  // the latest captured nodes
};
struct CUevent_st {
  std::shared_ptr<dovetail::emulated::EventState> state;
};
struct CUgraph_st {
  std::shared_ptr<dovetail::emulated::GraphBody> body;
};
struct CUgraphExec_st {
  std::shared_ptr<dovetail::emulated::GraphBody> body;
};

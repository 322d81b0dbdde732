// The emulated runtime: streams, events, copies and launches.
//
// Source of rules: CUDA Runtime API reference 13.0 ("Runtime API"); CUDA C++ Programming Guide
// ("Guide").
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/launch.h"

#include "tests/emulated/control.h"
#include "tests/emulated/runtime.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace dovetail::emulated {
namespace {

std::map<std::int32_t, cudaStream_t>& default_streams() {
  static auto* const the = new std::map<std::int32_t, cudaStream_t>;
  return *the;
}

cudaStream_t make_stream(std::int32_t device) {
  auto* stream = new CUstream_st;  // a C handle: cudaStreamDestroy deletes it
  stream->device = device;
  stream->lane = Machine::instance().races.new_lane();
  return stream;
}

// The host has seen that everything up to this clock is done.
void host_saw(std::int32_t device, const Clock& clock) {
  merge(Machine::instance().host[device], clock);
}

// The stream's clock, one piece of work later. Whatever the host has waited for comes before it.
void advance(CUstream_st& stream) {
  Machine& machine = Machine::instance();
  merge(stream.clock, machine.host[stream.device]);
  machine.races.tick(stream.lane, stream.clock);
}

cudaError_t capture_work(CUstream_st& stream, Work work) {
  Capture& capture = *stream.capture;
  if (capture.invalidated != cudaSuccess) return report(cudaErrorStreamCaptureInvalidated);
  Node node;
  if (work.retain) node.retained = work.retain();
  node.work = std::move(work);
  node.after = stream.tail;
  node.stream = stream.member;
  capture.graph->nodes.push_back(std::move(node));
  stream.tail = {capture.graph->nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t run_work(CUstream_st& stream, Work& work) {
  advance(stream);
  if (!admit(work, stream.device, stream.lane, stream.clock)) {
    return report(cudaErrorIllegalAddress);
  }
  std::vector<TaskRef> after = {stream.last};
  if (work.serial != nullptr) after.push_back(work.serial->last);
  stream.last = Machine::instance().submit({.device = stream.device,
                                            .lane = stream.lane,
                                            .run = work.begin ? work.begin() : Run(),
                                            .after = std::move(after)});
  if (work.serial != nullptr) work.serial->last = stream.last;
  return cudaSuccess;
}

cudaError_t enqueue_locked(cudaStream_t given, Work work) {
  CUstream_st& stream = *real_stream(given);
  if (const cudaError_t broken = state_of(stream.device)) return report(broken);
  // Guide, Stream and Event Behavior: a launch fails on a stream of another device.
  if (work.device == Work::Device::Current && stream.device != current_device()) {
    return report(cudaErrorInvalidResourceHandle);
  }
  if (stream.capture != nullptr) return capture_work(stream, std::move(work));
  return run_work(stream, work);
}

Work copy_of(void* to, const void* from, std::size_t bytes) {
  Work work = {.name = "cudaMemcpy", .begin = at_once([=] { std::memmove(to, from, bytes); })};
  const auto lock = locked();
  const std::int32_t device = current_device();
  if (is_reachable(from, bytes, device)) work.accesses.push_back(reads(from, bytes));
  if (is_reachable(to, bytes, device)) work.accesses.push_back(writes(to, bytes));
  return work;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t stream) {
  if (kind != cudaMemcpyHostToDevice) return enqueue(stream, copy_of(to, from, bytes));
  // Runtime API, API synchronization behavior: from pageable memory the call may return once the
  // bytes are staged, before they are on the device.
  const auto staged = std::make_shared<std::string>(static_cast<const char*>(from), bytes);
  Work work = copy_of(to, to, bytes);
  std::erase_if(work.accesses, [](const Access& one) { return one.kind == AccessKind::Read; });
  work.begin = at_once([=] { std::memcpy(to, staged->data(), bytes); });
  return enqueue(stream, std::move(work));
}

}  // namespace

std::function<Run()> at_once(std::function<void()> action) {
  return [action = std::move(action)]() -> Run {
    return [action] {
      action();
      return Progress::Done;
    };
  };
}

cudaStream_t real_stream(cudaStream_t stream) {
  if (stream != nullptr) return stream;
  cudaStream_t& its = default_streams()[current_device()];
  if (its == nullptr) {
    its = make_stream(current_device());
    its->is_default = true;
  }
  return its;
}

bool admit(const Work& work, std::int32_t device, std::size_t lane, const Clock& clock) {
  for (const Access& access : work.accesses) {
    if (access.data == nullptr || access.bytes == 0) continue;
    if (is_reachable(access.data, access.bytes, device)) continue;
    std::ostringstream words;
    words << work.name << " touches " << access.bytes << " bytes at " << access.data
          << ", which are not in one allocation that device " << device << " may touch";
    complain(words.str());
    return false;
  }
  Races& races = Machine::instance().races;
  for (const std::string& race : races.touch(work.accesses, lane, clock, work.name)) complain(race);
  return true;
}

cudaError_t enqueue(cudaStream_t stream, Work work) {
  const auto lock = locked();
  return enqueue_locked(stream, std::move(work));
}

bool is_capturing(cudaStream_t stream) {
  const auto lock = locked();
  return real_stream(stream)->capture != nullptr;
}

namespace {

std::set<std::string>& loaded_code() {
  static auto* const the = new std::set<std::string>;
  return *the;
}

}  // namespace

void load_code(const std::string& name) {
  const auto lock = locked();
  loaded_code().insert(name);
}

// Guide, Lazy Loading, Concurrent Execution: loading code may wait for the device, so what runs
// beside kernels that wait for others must have been loaded before.
void expect_loaded(const std::string& name) {
  {
    const auto lock = locked();
    if (loaded_code().insert(name).second == false) return;
  }
  if (communicators_in_use() == 0) return;
  complain("the first launch of " + name + " loads its code after the first collective");
}

cudaError_t preload(const char* kernel) {
  load_code(kernel);
  return cudaSuccess;
}

// Guide, Features and Technical Specifications: at most 1024 threads a block, 65535 rows of blocks.
cudaError_t launch(const Launch& how, std::vector<Access> accesses, std::function<void()> thread) {
  const bool is_possible = how.grid.x > 0 && how.grid.y > 0 && how.grid.y <= 65535 &&
                           how.grid.z == 1 && how.block.x > 0 && how.block.x <= 1024 &&
                           how.block.y == 1 && how.block.z == 1;
  if (!is_possible) return report(cudaErrorInvalidConfiguration);
  expect_loaded(how.kernel);
  return enqueue(how.stream, {.name = how.kernel,
                              .begin = at_once([how, thread = std::move(thread)] {
                                run_grid(how.grid, how.block, thread);
                              }),
                              .accesses = std::move(accesses),
                              .device = Work::Device::Current});
}

}  // namespace dovetail::emulated

namespace emulated = dovetail::emulated;
using emulated::locked;
using emulated::Machine;
using emulated::report;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  const auto lock = locked();
  if (flags != cudaStreamNonBlocking) {
    emulated::complain("streams that wait for the default stream are not emulated");
  }
  *stream = emulated::make_stream(emulated::current_device());
  return cudaSuccess;
}
// Runtime API, Stream Management: returns at once, work in flight goes on.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const auto lock = locked();
  if (stream->capture != nullptr) emulated::complain("a stream is destroyed while it is captured");
  Machine::instance().races.end_lane(stream->lane);
  delete stream;
  return cudaSuccess;
}
// Guide, Graphs, Prohibited and Unhandled Operations: a captured stream cannot be asked or awaited.
cudaError_t cudaStreamQuery(cudaStream_t given) {
  const auto lock = locked();
  CUstream_st& stream = *emulated::real_stream(given);
  if (stream.capture != nullptr) {
    stream.capture->invalidated = cudaErrorStreamCaptureInvalidated;
    return report(cudaErrorStreamCaptureUnsupported);
  }
  if (const cudaError_t broken = emulated::state_of(stream.device)) return report(broken);
  if (!Machine::instance().is_done(stream.last)) return cudaErrorNotReady;
  emulated::host_saw(stream.device, stream.clock);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t given) {
  auto lock = locked();
  CUstream_st& stream = *emulated::real_stream(given);
  if (stream.capture != nullptr) {
    stream.capture->invalidated = cudaErrorStreamCaptureInvalidated;
    return report(cudaErrorStreamCaptureUnsupported);
  }
  const emulated::Clock clock = stream.clock;
  Machine::instance().await(lock, stream.last);
  emulated::host_saw(stream.device, clock);
  return report(emulated::state_of(stream.device));
}
cudaError_t cudaDeviceSynchronize() {
  auto lock = locked();
  if (const cudaError_t refused = emulated::unsafe_in_capture()) return report(refused);
  const std::int32_t device = emulated::current_device();
  Machine& machine = Machine::instance();
  machine.await_device(lock, device);
  // All lanes at their latest count: everything enqueued so far is done.
  emulated::host_saw(device, machine.races.now());
  return report(emulated::state_of(device));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  return emulated::enqueue(
      stream, {.name = "host function", .begin = emulated::at_once([=] { function(argument); })});
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  return emulated::enqueue(stream,
                           {.name = "cudaMemset",
                            .begin = emulated::at_once([=] { std::memset(data, value, bytes); }),
                            .accesses = {emulated::writes(data, bytes)}});
}
// Runtime API, API synchronization behavior: asynchronous to the host on device memory.
cudaError_t cudaMemset(void* data, int value, std::size_t bytes) {
  {
    const auto lock = locked();
    if (const cudaError_t refused = emulated::unsafe_in_capture()) return report(refused);
  }
  return cudaMemsetAsync(data, value, bytes, nullptr);
}
// To pageable memory the call returns when the copy has ended.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  const cudaError_t error = emulated::copy(to, from, bytes, kind, stream);
  if (error != cudaSuccess || kind != cudaMemcpyDeviceToHost) return error;
  return emulated::is_capturing(stream) ? cudaSuccess : cudaStreamSynchronize(stream);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  {
    const auto lock = locked();
    if (const cudaError_t refused = emulated::unsafe_in_capture()) return report(refused);
  }
  return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                cudaStream_t stream) {
  return emulated::enqueue(stream, {.name = "cudaMemcpyPeer", .begin = emulated::at_once([=] {
                                                                std::memcpy(to, from, bytes);
                                                              })});
}

}  // extern "C"

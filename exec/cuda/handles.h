// Owners of CUDA objects: move-only, released in the destructor, where errors are ignored (a broken
// device fails every call, and the first failure has been reported already).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/cuda/check.h"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <utility>

namespace dovetail::exec::cuda {

// A handle of type T that Release frees.
template <class T, auto Release>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, T{})) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (value_ != T{}) static_cast<void>(Release(value_));
  }

  [[nodiscard]] T get() const { return value_; }
  explicit operator bool() const { return value_ != T{}; }

 private:
  T value_{};
};

using Stream = Handle<cudaStream_t, cudaStreamDestroy>;
using Event = Handle<cudaEvent_t, cudaEventDestroy>;
using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExecHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

// Priority as CUDA counts it: the smaller the number, the earlier its blocks are placed.
enum class StreamPriority { Normal, Highest };
inline Stream make_stream(StreamPriority priority) {
  int least = 0;
  int greatest = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                     priority == StreamPriority::Highest ? greatest : least),
        "cudaStreamCreateWithPriority");
  return Stream(stream);
}

enum class EventKind { Dependency, Timing };  // Dependency: orders streams, cheaper, has no time
inline Event make_event(EventKind kind) {
  cudaEvent_t event = nullptr;
  const unsigned flags = kind == EventKind::Timing ? cudaEventDefault : cudaEventDisableTiming;
  check(cudaEventCreateWithFlags(&event, flags), "cudaEventCreateWithFlags");
  return Event(event);
}

// Where memory comes from, and who must free it: cudaMalloc, or ncclMemAlloc.
enum class Source { Runtime, Nccl };

// nullptr for nothing. Throws DeviceError with the bytes asked for, their purpose, and what is free.
void* allocate(Bytes size, const char* purpose, Source source = Source::Runtime);
void release(void* data, Source source);

// Memory of the device, or of the host that the device can reach; not initialised.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // `purpose` is what a person hears when there is not enough: "cuBLAS's workspace".
  explicit DeviceBuffer(Bytes size, const char* purpose = "a small table",
                        Source source = Source::Runtime)
      : data_(allocate(size, purpose, source)), size_(size), source_(source) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_), source_(other.source_) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(source_, other.source_);
    return *this;
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { release(data_, source_); }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] Bytes size() const { return size_; }
  [[nodiscard]] void* at(Bytes offset) const { return static_cast<char*>(data_) + offset.count(); }

 private:
  void* data_ = nullptr;
  Bytes size_;
  Source source_ = Source::Runtime;
};

class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(Bytes size) {
    void* data = nullptr;
    check(cudaMallocHost(&data, static_cast<std::size_t>(size.count())), "cudaMallocHost");
    data_ = Handle<void*, cudaFreeHost>(data);
  }
  [[nodiscard]] void* data() const { return data_.get(); }

 private:
  Handle<void*, cudaFreeHost> data_;
};

}  // namespace dovetail::exec::cuda

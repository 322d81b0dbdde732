// The emulated runtime: devices, errors and memory.
//
// Source of rules: CUDA Runtime API reference 13.0 ("Runtime API"), sections API synchronization
// behavior, Memory Management, Error Handling; CUDA C++ Programming Guide ("Guide").
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/control.h"
#include "tests/emulated/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <utility>

namespace dovetail::emulated {
namespace {

struct Allocation {
  std::size_t bytes = 0;
  std::int32_t device = 0;
  bool is_mapped = false;  // by NCCL
};
struct Memory {
  std::map<std::uintptr_t, Allocation> blocks;            // by first byte
  std::map<std::int32_t, std::size_t> used;               // by device
  std::set<std::pair<std::int32_t, std::int32_t>> peers;  // who may touch whose
  std::map<std::int32_t, cudaError_t> broken;
};
Memory& memory() {
  static auto* const the = new Memory;  // used by engines to the very end
  return *the;
}

thread_local std::int32_t t_device = 0;
thread_local cudaError_t t_last = cudaSuccess;

// What was not written shows: the bytes make a huge float and a NaN of half the size.
constexpr int kGarbage = 0x7f;
constexpr std::size_t kMostGarbage = std::size_t{1} << 20;
constexpr std::size_t kAlignment = 256;  // Guide, Device Memory Accesses: at least 256 bytes

const std::pair<const std::uintptr_t, Allocation>* find_block(const void* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  const auto next = memory().blocks.upper_bound(begin);
  if (next == memory().blocks.begin()) return nullptr;
  const auto& block = *std::prev(next);
  return begin + bytes <= block.first + block.second.bytes ? &block : nullptr;
}

cudaError_t refuse_device(int device) {
  return device < 0 || device >= devices() ? report(cudaErrorInvalidDevice) : cudaSuccess;
}

}  // namespace

std::int32_t current_device() { return t_device; }

cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) t_last = error;
  return error;
}

void break_device(std::int32_t device) {
  const auto lock = locked();
  memory().broken[device] = cudaErrorLaunchFailure;
}

cudaError_t state_of(std::int32_t device) {
  const auto found = memory().broken.find(device);
  return found == memory().broken.end() ? cudaSuccess : found->second;
}

void mend_devices() {
  const auto lock = locked();
  memory().broken.clear();
}

bool is_reachable(const void* data, std::size_t bytes, std::int32_t device) {
  const auto* block = find_block(data, bytes);
  if (block == nullptr) return false;
  // Guide, Peer-to-Peer Memory Access: only once cudaDeviceEnablePeerAccess has allowed it.
  return block->second.device == device || memory().peers.count({device, block->second.device}) > 0;
}

bool is_mapped_by_nccl(const void* data) {
  const auto lock = locked();
  const auto* block = find_block(data, 1);
  return block != nullptr && block->second.is_mapped;
}

void set_mapped_by_nccl(const void* data, bool is_mapped) {
  const auto lock = locked();
  const auto found = memory().blocks.find(reinterpret_cast<std::uintptr_t>(data));
  if (found != memory().blocks.end()) found->second.is_mapped = is_mapped;
}

bool is_device_memory(const void* data, std::size_t bytes) {
  const auto lock = locked();
  return is_reachable(data, bytes, t_device);
}

}  // namespace dovetail::emulated

namespace emulated = dovetail::emulated;
using emulated::locked;
using emulated::Machine;
using emulated::report;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = emulated::devices();
  return *count > 0 ? cudaSuccess : report(cudaErrorNoDevice);
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t refused = emulated::refuse_device(device)) return refused;
  emulated::t_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = emulated::t_device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (const cudaError_t refused = emulated::refuse_device(device)) return refused;
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "%s", emulated::kDeviceName);
  properties->major = 9;
  properties->multiProcessorCount = 132;
  properties->totalGlobalMem = emulated::memory_bytes();
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const cudaError_t refused = emulated::refuse_device(device)) return refused;
  switch (attribute) {
    case cudaDevAttrClockRate:
      *value = 1'000'000;  // kHz: device_cycles() of the twin counts nanoseconds
      return cudaSuccess;
    case cudaDevAttrComputeMode:
      *value = emulated::is_exclusive() ? cudaComputeModeExclusiveProcess : cudaComputeModeDefault;
      return cudaSuccess;
    default:
      emulated::complain("cudaDeviceGetAttribute: attribute " + std::to_string(attribute) +
                         " is not emulated");
      return report(cudaErrorInvalidValue);
  }
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (const cudaError_t refused = emulated::refuse_device(device)) return refused;
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device != peer ? 1 : 0;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  const auto lock = locked();
  const bool is_new = emulated::memory().peers.insert({emulated::t_device, peer}).second;
  return is_new ? cudaSuccess : report(cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int, int) {
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const auto lock = locked();
  *total = emulated::memory_bytes();
  *free = *total - std::min(*total, emulated::memory().used[emulated::t_device]);
  return cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorMemoryAllocation) return "out of memory";
  if (error == cudaErrorLaunchFailure) return "unspecified launch failure";
  thread_local char words[48];
  std::snprintf(words, sizeof words, "emulated error %d", static_cast<int>(error));
  return words;
}
// Runtime API, Error Handling: returns the last error of this thread and resets it. What a query
// answers while work is under way is not kept (measured: conformance.cc). An error that broke the context cannot be reset.
cudaError_t cudaGetLastError() {
  const auto lock = locked();
  const cudaError_t broken = emulated::state_of(emulated::t_device);
  return broken != cudaSuccess ? broken : std::exchange(emulated::t_last, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() { return emulated::t_last; }

cudaError_t cudaMalloc(void** data, std::size_t bytes) {
  const auto lock = locked();
  if (const cudaError_t refused = emulated::unsafe_in_capture()) return report(refused);
  const std::int32_t device = emulated::t_device;
  if (const cudaError_t broken = emulated::state_of(device)) return report(broken);
  *data = nullptr;
  if (bytes == 0) return cudaSuccess;
  std::size_t& used = emulated::memory().used[device];
  if (used + bytes > emulated::memory_bytes()) return report(cudaErrorMemoryAllocation);
  // Not rounded up, so that the address sanitizer sees the end.
  if (posix_memalign(data, emulated::kAlignment, bytes) != 0) {
    return report(cudaErrorMemoryAllocation);
  }
  std::memset(*data, emulated::kGarbage, std::min(bytes, emulated::kMostGarbage));
  used += bytes;
  emulated::memory().blocks[reinterpret_cast<std::uintptr_t>(*data)] = {bytes, device};
  return cudaSuccess;
}

// Waits for the device, as the real one does: whoever frees while a collective hangs, hangs.
cudaError_t cudaFree(void* data) {
  if (data == nullptr) return cudaSuccess;
  auto lock = locked();
  if (const cudaError_t refused = emulated::unsafe_in_capture()) return report(refused);
  auto& blocks = emulated::memory().blocks;
  const auto found = blocks.find(reinterpret_cast<std::uintptr_t>(data));
  // Driver API, Virtual Memory Management: mapped memory is unmapped and released, not freed.
  if (found == blocks.end() || found->second.is_mapped) return report(cudaErrorInvalidValue);
  Machine& machine = Machine::instance();
  machine.await_device(lock, found->second.device);
  machine.races.forget(data, found->second.bytes);
  emulated::memory().used[found->second.device] -= found->second.bytes;
  blocks.erase(reinterpret_cast<std::uintptr_t>(data));
  std::free(data);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** data, std::size_t bytes) {
  *data = std::malloc(bytes);
  return *data != nullptr ? cudaSuccess : report(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeHost(void* data) {
  std::free(data);
  return cudaSuccess;
}

}  // extern "C"

// Reads clocks, power limits and throttling from NVML, which is opened with dlopen; the few
// functions that are used are declared here, so that building needs no header of it.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/clocks.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

namespace dovetail::exec::cuda {
namespace {

using NvmlDevice = void*;
constexpr int kSuccess = 0;
constexpr int kSmClock = 1;
constexpr int kMemoryClock = 2;

// Closes what it opened.
class Library {
 public:
  Library() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {}
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (library_ != nullptr) dlclose(library_);
  }
  template <class Function>
  [[nodiscard]] Function entry(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library_, name));
  }

 private:
  void* library_;
};

}  // namespace

DeviceState device_state(std::int32_t device) {
  DeviceState state;
  char bus[32] = {};
  if (cudaDeviceGetPCIBusId(bus, sizeof bus, device) != cudaSuccess) return state;
  const Library library;
  const auto init = library.entry<int (*)()>("nvmlInit_v2");
  const auto shutdown = library.entry<int (*)()>("nvmlShutdown");
  const auto handle =
      library.entry<int (*)(const char*, NvmlDevice*)>("nvmlDeviceGetHandleByPciBusId_v2");
  const auto clock = library.entry<int (*)(NvmlDevice, int, unsigned*)>("nvmlDeviceGetClockInfo");
  const auto power = library.entry<int (*)(NvmlDevice, unsigned*)>("nvmlDeviceGetPowerUsage");
  const bool is_there = init != nullptr && shutdown != nullptr && handle != nullptr &&
                        clock != nullptr && power != nullptr;
  if (!is_there || init() != kSuccess) return state;
  NvmlDevice which = nullptr;
  if (handle(bus, &which) == kSuccess) {
    unsigned number = 0;
    if (clock(which, kSmClock, &number) == kSuccess) {
      state.sm_mhz = static_cast<std::int32_t>(number);
    }
    if (clock(which, kMemoryClock, &number) == kSuccess) {
      state.memory_mhz = static_cast<std::int32_t>(number);
    }
    if (power(which, &number) == kSuccess) state.power_watt = number / 1e3;
  }
  static_cast<void>(shutdown());
  return state;
}

}  // namespace dovetail::exec::cuda

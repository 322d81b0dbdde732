// Adds whole pages at the end of a stretch of address space and touches each of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/memory.h"

#include "base/error.h"
#include "base/units.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>

namespace dovetail::exec::cpu {
namespace {

std::size_t memory_of_machine() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

[[noreturn]] void refuse(std::size_t bytes) {
  std::ostringstream message;
  message << "out of memory: " << Bytes(static_cast<std::int64_t>(bytes))
          << " for the buffers of one rank";
  throw DeviceError(message.str());
}

}  // namespace

std::size_t memory_available() {
  std::ifstream facts("/proc/meminfo");
  for (std::string key; facts >> key;) {
    std::size_t kib = 0;
    if (key == "MemAvailable:" && facts >> kib) return 1024 * kib;
  }
  return memory_of_machine();
}

Floats::~Floats() {
  if (data_ != nullptr) munmap(data_, space_);
}

void Floats::reserve(std::size_t count) {
  if (count <= size_) return;
  constexpr std::size_t kPage = 4096;
  const std::size_t bytes = (count * sizeof(float) + kPage - 1) / kPage * kPage;
  if (data_ == nullptr) {
    space_ = memory_of_machine();
    void* const space = mmap(nullptr, space_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED) refuse(bytes);
    data_ = static_cast<float*>(space);
  }
  if (bytes > space_ || mprotect(data_, bytes, PROT_READ | PROT_WRITE) != 0) refuse(bytes);
  std::memset(data_ + size_, 0, bytes - size_ * sizeof(float));
  size_ = bytes / sizeof(float);
}

}  // namespace dovetail::exec::cpu

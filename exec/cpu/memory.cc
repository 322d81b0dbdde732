// Allocates floats in whole pages and touches each of them, so that no page fault falls into a
// measurement.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/memory.h"

#include "base/error.h"
#include "base/units.h"

#include <cstdint>
#include <cstring>
#include <sstream>

namespace dovetail::exec::cpu {

void Floats::reserve(std::size_t count) {
  if (count <= size_) return;
  constexpr std::size_t kPage = 4096;
  const std::size_t bytes = (count * sizeof(float) + kPage - 1) / kPage * kPage;
  data_.reset();
  data_.reset(static_cast<float*>(std::aligned_alloc(kPage, bytes)));
  if (data_ == nullptr) {
    std::ostringstream message;
    message << "out of memory: " << Bytes(static_cast<std::int64_t>(bytes))
            << " for the buffers of one rank";
    throw DeviceError(message.str());
  }
  std::memset(data_.get(), 0, bytes);
  size_ = bytes / sizeof(float);
}

}  // namespace dovetail::exec::cpu

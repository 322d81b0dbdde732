// The one block of device memory in which a Layout places the tensors and buckets of a rank, and
// copies between it and the host.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/check.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/layout.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace dovetail::exec::cuda {

class DeviceMemory {
 public:
  // Allocates the block and fills it with zeros.
  explicit DeviceMemory(Layout layout, Source source = Source::Runtime)
      : layout_(std::move(layout)),
        block_(Bytes(layout_.bytes()), "gradients, buckets and parameters", source) {
    if (layout_.bytes() == 0) return;
    check(cudaMemset(block_.data(), 0, static_cast<std::size_t>(layout_.bytes())), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // nothing else runs yet
  }

  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const DeviceBuffer& block() const { return block_; }
  [[nodiscard]] Array at(const Region& region) const {
    return {
        .data = block_.at(Bytes(region.offset)), .count = region.count, .element = region.element};
  }
  [[nodiscard]] Array tensor(TensorId id) const { return at(layout_.tensor(id)); }

 private:
  Layout layout_;
  DeviceBuffer block_;
};

// A copy of host values in device memory. REQUIRES: T is plain data.
template <class T>
DeviceBuffer upload(const std::vector<T>& values) {
  DeviceBuffer buffer(Bytes(static_cast<std::int64_t>(values.size() * sizeof(T))));
  if (values.empty()) return buffer;
  check(cudaMemcpy(buffer.data(), values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
        "cudaMemcpy to the device");
  // From pageable memory it may return before the last bytes arrive, and our streams do not wait
  // for the default stream.
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  return buffer;
}

}  // namespace dovetail::exec::cuda

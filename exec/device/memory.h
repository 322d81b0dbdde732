// The one block of device memory in which a Layout places the tensors and buckets of a rank.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/device/device.h"
#include "exec/device/layout.h"

#include <utility>

namespace dovetail::exec {

class DeviceMemory {
 public:
  // Filled with zeros. REQUIRES: the device outlives this.
  DeviceMemory(Device& device, Layout layout, Room room)
      : device_(device),
        layout_(std::move(layout)),
        block_(device.allocate(Bytes(layout_.bytes()), "gradients, buckets and parameters", room)) {
    if (layout_.bytes() == 0) return;
    device.zero({.data = block_.at(), .count = layout_.bytes() / 4}, nullptr);
    device.wait(nullptr);
  }

  [[nodiscard]] Device& device() const { return device_; }
  [[nodiscard]] const Layout& layout() const { return layout_; }
  [[nodiscard]] const Block& block() const { return block_; }
  [[nodiscard]] Array at(const Region& region) const {
    return {
        .data = block_.at(Bytes(region.offset)), .count = region.count, .element = region.element};
  }
  [[nodiscard]] Array tensor(TensorId id) const { return at(layout_.tensor(id)); }

 private:
  Device& device_;
  Layout layout_;
  Block block_;
};

}  // namespace dovetail::exec

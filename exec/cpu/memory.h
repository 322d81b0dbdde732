// The memory of one rank: page-aligned floats that only grow, and never move.
//
// Backends of one rank that run in turn share one Workspace, so comparing twenty schedules needs the
// memory of one, and every schedule meets the same pages. Who lies where: exec/device/layout.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace dovetail::exec::cpu {

// Address space is taken once, as much as the machine has memory; pages are added at its end. So what was handed out
// stays where it is. Fresh memory is zero and touched: no page fault falls into a measurement.
class Floats {
 public:
  Floats() = default;
  Floats(const Floats&) = delete;
  Floats& operator=(const Floats&) = delete;
  ~Floats();

  // Throws DeviceError where the machine has not so much.
  void reserve(std::size_t count);
  [[nodiscard]] float* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  float* data_ = nullptr;
  std::size_t size_ = 0;   // floats that may be used
  std::size_t space_ = 0;  // bytes of address space
};

// Bytes that programs of this machine could still have without swap, as the kernel estimates them; all of its memory
// where that is not said.
std::size_t memory_available();

struct Workspace {
  Floats inputs;           // of GEMMs; written once, bounded
  Floats outputs;          // of GEMMs
  Floats stream;           // of memory-bound work
  std::size_t cursor = 0;  // where the next memory-bound work goes on
  Floats tensors;          // buckets and tensors of the plan that runs
  Floats observed;         // what ops saw, kept for the check
};

}  // namespace dovetail::exec::cpu

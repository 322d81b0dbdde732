// The memory of one rank: page-aligned blocks that only grow.
//
// Backends of one rank that run in turn share one Workspace, so comparing twenty schedules needs the
// memory of one, and every schedule meets the same pages. Who lies where: tensor_memory.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace dovetail::exec::cpu {

inline constexpr std::size_t kLineFloats = 16;  // of a cache line of 64 bytes

// Page-aligned floats that only grow. Growing loses the content; fresh memory is zero and touched,
// so that no page fault falls into a measurement.
class Floats {
 public:
  void reserve(std::size_t count);
  [[nodiscard]] float* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::unique_ptr<float[], Free> data_;
  std::size_t size_ = 0;
};

struct Workspace {
  Floats inputs;           // of GEMMs; written once, bounded
  Floats outputs;          // of GEMMs
  Floats stream;           // of memory-bound work
  std::size_t cursor = 0;  // where the next memory-bound work goes on
  Floats tensors;          // buckets and tensors of the plan that runs
  Floats observed;         // what ops saw, kept for the check
};

}  // namespace dovetail::exec::cpu

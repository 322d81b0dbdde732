// Where the gradients of one rank lie: bucket buffers, windows in them, and memory of their own.
//
// In view mode a gradient is a window of its bucket; in copy mode it has memory of its own beside
// the window. `applied` is what the optimizer made of a gradient: its first consumer copies it
// there (a real streaming read and write), and the check compares it too, so a gradient that was
// read too early is found even if the bucket is right at the end of the step.
//
// A Workspace is the memory itself. Backends of one rank that run in turn share one, so comparing
// twenty schedules needs the memory of one, and every schedule meets the same pages.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "schedule/scheduled_program.h"

#include <cstddef>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace dovetail::exec::cpu {

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
  Floats gradients;        // buckets, shards and gradients of the plan that runs
  Floats applied;
  Floats observed;         // what ops saw, kept for the check
};

class GradientMemory {
 public:
  // Lays out every bucket and gradient. Throws InputError for a gradient that is not f32 and for a
  // bucket whose layout does not fit its members. REQUIRES: plan outlives this.
  GradientMemory(const schedule::ScheduledProgram& plan, std::shared_ptr<Workspace> workspace);

  // The whole buffer, with padding. REQUIRES: the id exists (here and below).
  [[nodiscard]] std::span<float> bucket(BucketId id) const;
  // This rank's part between a reduce-scatter and its all-gather. REQUIRES: plan splits the bucket.
  [[nodiscard]] std::span<float> shard(BucketId id) const;
  // Where producers write and the optimizer reads.
  [[nodiscard]] std::span<float> gradient(TensorId id) const;
  // Where the gradient lies in its bucket.
  [[nodiscard]] std::span<float> window(TensorId id) const;
  [[nodiscard]] std::span<float> applied(TensorId id) const;

  // Zeroes the padding of every bucket: another plan may have used the memory.
  void clear_padding() const;

 private:
  struct Range {  // in floats
    std::size_t offset = 0;
    std::size_t count = 0;
  };
  struct BucketPlace {
    Range buffer;
    std::optional<Range> shard;
    std::vector<Range> padding;
  };
  struct GradientPlace {
    Range own;
    std::optional<Range> window;
    Range applied;
  };
  void place_bucket(const schedule::BucketLayout& layout, const schedule::Program& program);
  Range take(std::size_t count);
  [[nodiscard]] std::span<float> at(Range range) const;

  std::shared_ptr<Workspace> workspace_;
  std::map<BucketId, BucketPlace> buckets_;
  std::map<TensorId, GradientPlace> gradients_;
  std::size_t used_ = 0;
};

}  // namespace dovetail::exec::cpu

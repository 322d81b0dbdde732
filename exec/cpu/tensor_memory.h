// Where the tensors and buckets of one rank lie: buffers, windows in them, memory of their own.
//
// In view mode a member is a window of its bucket; in copy mode it has memory of its own beside the
// window. A shard is the part of its bucket's buffer that this rank owns: reduce-scatter and
// all-gather work in place.
//
//   bucket 3   |  fc1.weight.grad 0..999  | fc1.bias.grad 0..63 | padding |
//   shards     |  rank 0                    |  rank 1                     |
//   shard_members(3) on rank 1:  fc1.weight.grad 532..999, fc1.bias.grad 0..63
//
// With TensorScope::All the memory is this object's own, and parameters and optimizer states live
// from step to step; otherwise it lies in the workspace, which other plans use in turn.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/cpu/memory.h"
#include "exec/shard_cut.h"
#include "schedule/scheduled_program.h"

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace dovetail::exec::cpu {

// Which tensors get memory. Communicated: gradients, merged gradients, members of buckets, and what
// ops that are collectives (or a global norm) read and write. All: every f32 tensor that an op of
// this rank reads or writes.
enum class TensorScope { Communicated, All };

// A range of a tensor's elements, and where it lies.
struct TensorRange {
  TensorId tensor;
  std::size_t first = 0;  // element of the tensor
  std::span<float> data;
};

class TensorMemory {
 public:
  struct Options {
    Rank rank;
    TensorScope scope = TensorScope::Communicated;
    std::shared_ptr<Workspace> workspace;
  };
  // Lays out what this rank's commands touch. Throws InputError for a gradient that is not f32 and
  // for a bucket whose layout does not fit its members.
  TensorMemory(const schedule::ScheduledProgram& plan, const Options& options);

  // Whether the tensor has memory here.
  [[nodiscard]] bool has(TensorId id) const { return tensors_.count(id) > 0; }
  // Where ops read and write it. REQUIRES: has(id).
  [[nodiscard]] std::span<float> tensor(TensorId id) const;

  // Of the buckets that this rank's commands use. REQUIRES: the bucket is one (here and below).
  [[nodiscard]] bool has(BucketId id) const { return buckets_.count(id) > 0; }
  // The whole buffer, with padding.
  [[nodiscard]] std::span<float> bucket(BucketId id) const;
  // Where the tensor, or a range of it, lies in the bucket. REQUIRES: it is a member.
  [[nodiscard]] TensorRange packed(BucketId id, TensorId tensor) const;
  // All members in the order of the layout.
  [[nodiscard]] std::vector<TensorRange> members(BucketId id) const;

  // Buckets that are scattered or gathered: how many parts, which one is this rank's, where it
  // lies, and each member's range within it: one entry per member, in the order of the layout,
  // empty where the member lies in other shards. An unscattered bucket is one shard.
  [[nodiscard]] std::size_t shards(BucketId id) const;
  [[nodiscard]] std::size_t shard_index(BucketId id) const;
  [[nodiscard]] std::span<float> shard(BucketId id) const;
  [[nodiscard]] std::vector<TensorRange> shard_members(BucketId id) const;

  // Of a bucket of which the rank keeps its shard only: spoils the rest, one element in a page, so that
  // whoever reads it before the next gather reads NaN. Nothing for other buckets.
  void release(BucketId id) const;

  // Memory of an op that is a collective, beside its tensors; empty where it needs none.
  [[nodiscard]] std::span<float> scratch(OpId id) const;

  // Zeroes the padding of every bucket: another plan may have used the memory.
  void clear_padding() const;

 private:
  struct Range {  // in floats
    std::size_t offset = 0;
    std::size_t count = 0;
  };
  struct Member {
    TensorId tensor;
    std::size_t first = 0;
    Range window;
  };
  struct BucketPlace {
    Range buffer;
    ShardCut cut;
    std::vector<Member> members;
    std::vector<Range> padding;
    bool is_released = false;  // between uses
    bool is_copied = false;    // members have memory of their own
  };
  void place_buckets(const schedule::ScheduledProgram& plan, Rank rank);
  void place_bucket(const schedule::BucketLayout& layout, const schedule::Program& program);
  static Range shard_range(const BucketPlace& place);
  void place_tensors(const schedule::ScheduledProgram& plan, const Options& options);
  void place_tensor(const schedule::Tensor& tensor);
  [[nodiscard]] const BucketPlace& place_of(BucketId id) const;
  Range take(std::size_t count);
  [[nodiscard]] std::span<float> at(Range range) const;

  std::shared_ptr<Workspace> workspace_;
  std::map<BucketId, BucketPlace> buckets_;
  std::map<TensorId, Range> windows_;  // of members in view mode
  std::map<TensorId, Range> tensors_;
  std::map<OpId, Range> scratch_;
  std::size_t used_ = 0;
};

}  // namespace dovetail::exec::cpu

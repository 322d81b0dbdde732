// Where the tensors and buckets of one rank lie in one block of device memory: offsets, no
// pointers.
//
// In view mode a member is a window of its bucket, in copy mode it has memory of its own beside the window. A shard
// is the part of its bucket's buffer that this rank owns: reduce-scatter and all-gather work in place. Ops that
// are collectives have scratch memory where no tensor fits their message (always f32).
//
//   bucket 3   |  fc1.weight.grad 0..999  | fc1.bias.grad 0..63 | padding |
//   shards     |  rank 0                    |  rank 1                     |
//   shard_members(3) on rank 1:  fc1.weight.grad 532..999, fc1.bias.grad 0..63
//
// Every block starts at a multiple of 256 bytes, as cudaMalloc and NCCL's registration like it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/array.h"
#include "exec/shard_cut.h"
#include "schedule/scheduled_program.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace dovetail::exec {

// Where regions of device memory begin: at multiples of so many bytes, as cudaMalloc aligns.
inline constexpr std::int64_t kAlignment = 256;

Element element_of(schedule::DType dtype);
schedule::DType dtype_of(Element element);

// Which tensors get memory. Communicated: gradients, merged gradients, members of buckets, and what
// ops that are collectives (or a global norm) read and write. All: every tensor that an op of this
// rank reads or writes.
enum class Scope { Communicated, All };

// `count` elements at `offset` bytes from the start of the block.
struct Region {
  std::int64_t offset = 0;
  std::int64_t count = 0;
  Element element = Element::F32;
  [[nodiscard]] std::int64_t bytes() const { return count * size_of(element); }
  friend bool operator==(const Region&, const Region&) = default;
};

// A range of a tensor's elements, and where it lies in a bucket.
struct MemberRegion {
  TensorId tensor;
  std::int64_t first = 0;  // element of the tensor
  Region region;
  friend bool operator==(const MemberRegion&, const MemberRegion&) = default;
};

class Layout {
 public:
  // Throws InputError for a bucket whose layout does not fit its members, or whose element type is
  // not theirs.
  Layout(const schedule::ScheduledProgram& plan, Rank rank, Scope scope);

  [[nodiscard]] bool has(TensorId id) const { return tensors_.count(id) > 0; }
  // Where ops read and write it. REQUIRES: has(id).
  [[nodiscard]] Region tensor(TensorId id) const;

  // Of the buckets that this rank's commands use. REQUIRES: the bucket is one (here and below).
  [[nodiscard]] bool has(BucketId id) const { return buckets_.count(id) > 0; }
  [[nodiscard]] Region bucket(BucketId id) const;  // with padding
  [[nodiscard]] std::vector<MemberRegion> members(BucketId id) const;
  // Where the same elements lie in the tensor's own memory: in view mode that is the member's region.
  [[nodiscard]] Region part_of(const MemberRegion& member) const;

  // Shards are equal; a bucket that is not cut is one shard. shard_members: one entry per member, empty where it
  // lies in other shards.
  [[nodiscard]] std::int64_t shards(BucketId id) const;
  [[nodiscard]] std::int64_t shard_index(BucketId id) const;
  [[nodiscard]] Region shard(BucketId id) const;
  [[nodiscard]] std::vector<MemberRegion> shard_members(BucketId id) const;

  // What a Release of the bucket frees: its members outside of this rank's shard, and in copy mode their
  // own memory too. Empty for a bucket that ranks keep whole.
  [[nodiscard]] std::vector<Region> released(BucketId id) const;

  // Of an op that is a collective; empty where it needs none.
  [[nodiscard]] Region scratch(OpId id) const;

  [[nodiscard]] std::vector<Region> padding() const;  // of all buckets
  [[nodiscard]] std::vector<BucketId> bucket_ids() const;
  [[nodiscard]] std::int64_t bytes() const { return used_; }  // of the whole block

 private:
  struct Place {
    Region buffer;
    ShardCut cut;
    std::vector<MemberRegion> members;
    bool is_released = false;  // between uses
    bool is_copied = false;    // members have memory of their own
  };
  void place_buckets(const schedule::ScheduledProgram& plan, Rank rank);
  void place_bucket(const schedule::BucketLayout& layout, const schedule::Program& program);
  void place_tensors(const schedule::ScheduledProgram& plan, Rank rank, Scope scope);
  void place_tensor(const schedule::Tensor& tensor);
  [[nodiscard]] const Place& place_of(BucketId id) const;
  Region take(std::int64_t count, Element element);

  std::map<BucketId, Place> buckets_;
  std::map<TensorId, Region> windows_;  // of members in view mode
  std::map<TensorId, Region> tensors_;
  std::map<OpId, Region> scratch_;
  std::int64_t used_ = 0;
};

}  // namespace dovetail::exec

// Checks the buffers of buckets one by one: every member inside its tensor and its buffer, no two
// on each other, whole elements of one type, equal shards, and no tensor in two memories.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/layout.h"

#include <algorithm>
#include <map>
#include <utility>

namespace dovetail::schedule::verification {
namespace {

class LayoutCheck {
 public:
  LayoutCheck(const Index& index, std::vector<Problem>& problems)
      : index_(index), problems_(problems) {
    for (const RankProgram& role : index.scheduled.roles) {
      for (const Command& command : role.commands) {
        const Communicate* run = bucket_collective(command);
        if (run == nullptr || run->kind == Collective::AllGather) continue;
        std::vector<GroupId>& groups = reduced_over_[*run->bucket];
        if (std::ranges::count(groups, run->group) == 0) groups.push_back(run->group);
      }
    }
  }

  void check(const BucketLayout& bucket) {
    at_ = bucket_name(bucket.bucket);
    if (!ids_.at(bucket.bucket)) {
      ids_[bucket.bucket] = 1;
    } else {
      add(ProblemKind::BadReference, ": its id is used twice");
    }
    check_shards(bucket);
    std::vector<std::pair<Bytes, Bytes>> windows;
    std::vector<std::pair<TensorId, std::int64_t>> ranges;
    for (const BucketMember& member : bucket.members) {
      const Tensor* tensor = index_.tensor(member.tensor);
      if (tensor == nullptr) {
        add(ProblemKind::BadReference,
            " holds the unknown tensor " + std::to_string(member.tensor.value));
        continue;
      }
      check_member(bucket, member, *tensor);
      const Bytes size = element_size(tensor->dtype) * member.elements(*tensor);
      windows.emplace_back(member.offset, member.offset + size);
      ranges.emplace_back(member.tensor, member.first);
    }
    std::ranges::sort(windows);
    for (std::size_t i = 1; i < windows.size(); ++i) {
      if (windows[i].first < windows[i - 1].second) bad(": two members overlap");
    }
    check_ranges(bucket, std::move(ranges));
  }

 private:
  void add(ProblemKind kind, const std::string& message) {
    problems_.push_back({kind, at_ + message});
  }
  void bad(const std::string& message) { add(ProblemKind::BadLayout, message); }

  void check_shards(const BucketLayout& bucket) {
    const std::int64_t element = element_size(bucket.dtype).count();
    if (bucket.shards < 1) {
      bad(" has " + std::to_string(bucket.shards) + " shards");
    } else if (bucket.size.count() % element != 0) {
      bad(": its " + std::to_string(bucket.size.count()) + " bytes are not whole elements of " +
          std::to_string(element) + " bytes");
    } else if (bucket.shards > 1 && bucket.size.count() % (bucket.shards * element) != 0) {
      bad(": its " + std::to_string(bucket.size.count()) + " bytes are not " +
          std::to_string(bucket.shards) + " equal shards of whole elements");
    } else if (bucket.shards > 1 && !is_cut_over_its_ranks(bucket)) {
      bad(" has " + std::to_string(bucket.shards) + " shards, but names no group of as many ranks");
    }
  }

  // Else nobody knows whose each shard is.
  [[nodiscard]] bool is_cut_over_its_ranks(const BucketLayout& bucket) const {
    const ProcessGroup* group = bucket.cut_over ? index_.group(*bucket.cut_over) : nullptr;
    return group != nullptr && group->size() == bucket.shards;
  }

  void check_member(const BucketLayout& bucket, const BucketMember& member, const Tensor& tensor) {
    const std::int64_t elements = member.elements(tensor);
    if (member.first < 0 || member.count < 0 || elements <= 0 ||
        member.first + elements > tensor.numel()) {
      bad(": elements " + std::to_string(member.first) + " to " +
          std::to_string(member.first + elements) + " do not lie inside " + tensor.name);
    }
    if (member.offset < Bytes(0) ||
        member.offset + element_size(tensor.dtype) * elements > bucket.size) {
      bad(": " + tensor.name + " lies outside the buffer");
    }
    if (member.offset.count() % element_size(bucket.dtype).count() != 0) {
      bad(": " + tensor.name + " begins within an element, at byte " +
          std::to_string(member.offset.count()));
    }
    if (tensor.dtype != bucket.dtype) bad(": " + tensor.name + " has another dtype");
    if (bucket.mode == BucketMode::View) {
      if (elements < tensor.numel()) {
        bad(": only a part of " + tensor.name + " lies in it, which needs copy mode");
      }
      if (window_of_.at(tensor.id) >= 0 && BucketId{window_of_.at(tensor.id)} != bucket.bucket) {
        const BucketId other{window_of_.at(tensor.id)};
        bad(": " + tensor.name + " is a window of " + bucket_name(other) + " already");
        check_reductions(bucket.bucket, other, tensor);
      }
      window_of_[tensor.id] = bucket.bucket.value;
    }
  }

  // A gradient in two windows is also reduced twice, if both buckets are reduced over one group.
  void check_reductions(BucketId mine, BucketId other, const Tensor& tensor) {
    for (const GroupId id : reduced_over_[mine]) {
      if (std::ranges::count(reduced_over_[other], id) == 0) continue;
      const ProcessGroup* group = index_.group(id);
      add(ProblemKind::ReducedTwice, " and " + bucket_name(other) + " are both reduced over " +
                                         (group == nullptr ? "its group" : group->name) +
                                         " and both hold " + tensor.name);
    }
  }

  // Two ranges of one tensor in one bucket must not share elements. REQUIRES: known tensors.
  void check_ranges(const BucketLayout& bucket,
                    std::vector<std::pair<TensorId, std::int64_t>> ranges) {
    std::ranges::sort(ranges);
    for (std::size_t i = 1; i < ranges.size(); ++i) {
      if (ranges[i].first != ranges[i - 1].first) continue;
      const auto before = std::ranges::find_if(bucket.members, [&](const BucketMember& member) {
        return member.tensor == ranges[i - 1].first && member.first == ranges[i - 1].second;
      });
      const Tensor& tensor = *index_.tensor(ranges[i].first);
      if (before->first + before->elements(tensor) > ranges[i].second) {
        bad(": two ranges of " + tensor.name + " overlap");
      }
    }
  }

  const Index& index_;
  std::vector<Problem>& problems_;
  std::string at_;
  IdTable<BucketId, char> ids_{0};
  IdTable<TensorId, std::int32_t> window_of_{-1};
  std::map<BucketId, std::vector<GroupId>> reduced_over_;
};

}  // namespace

void check_layouts(const Index& index, std::vector<Problem>& problems) {
  LayoutCheck check(index, problems);
  for (const BucketLayout& bucket : index.scheduled.buckets) check.check(bucket);
}

}  // namespace dovetail::schedule::verification

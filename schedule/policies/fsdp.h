// ZeRO-3: when each block's parameters are gathered (Gathers of decisions.h), and when they are let go.
//
// A block is a sharded bucket, or parameters that nothing updates (a frozen block): those are sharded and gathered
// all the same, and never reduced. It is gathered before its forward and again before its backward where that reads
// it, as many blocks ahead as `forward` and `backward` say, later where the limits demand it; with reshard=no once for
// both. Behind its last reader it is released. By layer, all blocks of one layer (of several dtypes, trained and
// frozen) are wanted from the first reader of any of them on, as a layer is PyTorch's unit; each is a collective of its
// own, where FSDP2 has one.
//
//   blocks a b c, forward=1     gather a b   F a   gather c   F b   F c ...
//
// Each role of a pipeline places its own: Forward and Backward are gathered for every micro-batch, what stays
// from forward to backward once for all of them (as PyTorch does when FSDP runs within a pipeline).
//
// Refused, with the reason: parameters that nobody is known to read, limits that a block alone exceeds, frozen parameters
// beside gradients of several process groups.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/id_table.h"
#include "schedule/policies/grouping.h"
#include "schedule/policies/policies.h"

namespace dovetail::schedule {

// Whether reshard= is given a number of ranks, and why that is refused.
inline bool is_some_ranks(std::string_view value) {
  return !value.empty() && value.find_first_not_of("0123456789") == std::string_view::npos;
}
inline constexpr std::string_view kReshardOverSome =
    "expected yes or no: that N ranks keep a block among them until backward (FSDP2's "
    "reshard_after_forward=N) is not planned. Such a "
    "step takes no longer than with yes and no less than with no; a rank keeps 1/N of each block "
    "between";

// The parameter that is updated with each gradient: the i-th that the update writes; -1: none.
IdTable<TensorId, TensorId> parameters_of(const Program& program);

// The parameters that forward or backward reads and no op writes, each as the gradient over this group that it does not
// have: of its size, ready where it is read last.
std::vector<OwedGradient> frozen_parameters(const Program& program, GroupId group);

// A frozen block per group, with ids behind those of the buckets.
void append_frozen(Schedule& schedule, const Groups& frozen, BucketMode mode);

// Who reads a block's parameters: positions of ops.
struct BlockReaders {
  std::size_t first = SIZE_MAX;
  std::size_t last = 0;
  [[nodiscard]] bool any() const { return first != SIZE_MAX; }
  void join(const BlockReaders& other) {
    first = std::min(first, other.first);
    last = std::max(last, other.last);
  }
};
struct BlockUse {
  Bytes bytes;           // when gathered, with padding
  std::size_t unit = 0;  // blocks of one unit are wanted together
  BlockReaders forward = {};
  BlockReaders backward = {};
};

// One gather of a block: from place `launch` on (0 is the start of the step, p + 1 behind the op at position p) until behind
// its last reader.
struct BlockStay {
  std::size_t block = 0;
  GatherFor readers = GatherFor::Forward;
  BlockReaders used = {};
  std::size_t use = 0;  // its first one, position in the list of uses
  std::size_t launch = 0;
};
struct BlockStays {
  std::vector<BlockStay> all;  // in the order of first use
  Bytes most;                  // that is gathered at a time
  // Which cannot be within the limits, and what is gathered then.
  std::optional<std::size_t> failed = std::nullopt;
  GatherLimit too_much = {};
};
enum class MicroBatches {
  InTurn,
  Interleaved
};  // where they are, in a pipeline, none stays by itself
// Of the blocks of one role. REQUIRES: how far ahead is a number.
BlockStays stays_of(std::span<const BlockUse> blocks, const Gathers& gathers, MicroBatches order);

// Fills Schedule::gathers and the lines of the report, or gives the reason why not. REQUIRES: the buckets are `groups`,
// reduce-scattered, and the frozen blocks are `frozen`; policy.decisions.gathers has a value.
std::optional<std::string> place_gathers(const Program& program, const Policy& policy,
                                         const Groups& groups, const Groups& frozen,
                                         PolicyResult& result);

// How many blocks ahead of its first reader a Schedule gathers at most, on any stage.
struct Prefetch {
  std::int32_t forward = 0;
  std::int32_t backward = 0;
};
// REQUIRES: problems(program) is empty, every gather is of a bucket or a frozen block of the Schedule.
Prefetch prefetch_of(const Program& program, const Schedule& schedule);

}  // namespace dovetail::schedule

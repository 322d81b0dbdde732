// The all-gathers that complete the parameters of sharded buckets (rules A24, AS11).
//
// A bucket of parameters has the layout of its gradients' bucket, element by element (bf16 parameters lie
// at half the offsets of f32 gradients), and its mode: the sharded update writes this rank's part of it, the
// all-gather the rest; in copy mode an unpack moves it into the parameters, in view mode they lie in it.
//
//   AfterUpdate  launched right after the bucket's update, waited for at the end of the step (or by
//                an earlier reader)
//   NextForward  launched at the start of the step, for the update of the step before, in the order
//                in which forward needs the buckets; waited for before the first op that reads one
//                of their parameters. Steps repeat, so this is the same computation, rotated
//   EachUse      launched as Schedule::gathers says, for the readers that each of them names, waited for
//                before the first of these and released behind the last; a bucket is in view mode if
//                that of its gradients is. A gather is never launched before the one listed above it
//                nor before its bucket is released, and not behind its first reader. Frozen blocks lie in
//                buffers of their own and have no update
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "schedule/lower/draft.h"
#include "schedule/lower/rewrite/shard.h"

namespace dovetail::schedule {

// A gather before the ops of one micro-step that read its parameters. Its places count from 0, the start of the step; place
// p + 1 is behind the op at position p.
struct WantedGather {
  Travel travel = {};
  std::size_t gather = 0;              // which of the gathers, once in each micro-step
  bool stays = false;                  // for forward and backward
  std::size_t asked = 0;               // where it is to be launched
  bool behind_waits = false;           // of the op there
  std::size_t first = kEnd, last = 0;  // readers

  void serve(std::size_t from, std::size_t to) {
    first = first < from ? first : from;
    last = last > to ? last : to;
  }
};

// Of a pipeline: one that stays is for all micro-batches, which other ones may come between; in the order of need.
void join_micro_batches(std::vector<WantedGather>& wanted);

// Puts them behind `travels`: none before the one in front of it, none before its parameters are released, none behind its
// first reader. `free`: memory, for each Travel::what.
void place_in_turn(std::span<const WantedGather> wanted, std::vector<std::size_t>& free,
                   std::vector<Travel>& travels);

}  // namespace dovetail::schedule

namespace dovetail::schedule::internal {

// Fills Draft::gathers and adds the buckets of parameters to out.buckets. REQUIRES: lay_out ran. Throws InputError
// for frozen blocks that cannot be.
void lay_out_parameters(Draft& draft, const std::vector<ShardedBucket>& sharded);

// Adds the gathers to RoleDraft::travels. Throws InputError for gathers that cannot be: of unknown buckets, for
// readers that there are not, or launched at points that parameters do not have.
void place_gathers(const Draft& draft, RoleDraft& role);

// "4 buckets of parameters after their update"; empty without any.
std::string gather_report(const Draft& draft);

}  // namespace dovetail::schedule::internal

// Members sorted by the stage of their producers.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/pipeline/buckets.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "schedule/id_table.h"

namespace dovetail::schedule {
namespace {

struct Piece {
  std::int32_t stage = 0;
  std::vector<Slice> members;
};

}  // namespace

Schedule split_buckets_by_stage(const Program& program, Schedule schedule) {
  IdTable<TensorId, std::int32_t> stage_of(0);
  for (const Op& op : program.ops) {
    if (op.phase == Phase::Optimizer) continue;
    for (const TensorId id : op.writes) stage_of[id] = op.stage;
  }
  std::int32_t next_id = 0;
  for (const Bucket& bucket : schedule.buckets) next_id = std::max(next_id, bucket.id.value + 1);
  std::vector<Bucket> split;
  for (Bucket& bucket : schedule.buckets) {
    std::vector<Piece> pieces;
    for (const Slice& member : bucket.gradients) {
      const std::int32_t stage = stage_of.at(member.tensor);
      auto piece = std::ranges::find(pieces, stage, &Piece::stage);
      if (piece == pieces.end()) piece = pieces.insert(piece, Piece{stage, {}});
      piece->members.push_back(member);
    }
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      Bucket part = bucket;
      part.gradients = std::move(pieces[i].members);
      if (i > 0) {
        if (next_id > kLargestId) {
          throw InputError("schedule " + schedule.policy + ": no ids are left behind bucket " +
                           std::to_string(next_id - 1) + " for its parts of other stages");
        }
        part.id = BucketId{next_id++};
      }
      if (i + 1 < pieces.size()) part.closed_by = "stage";
      split.push_back(std::move(part));
    }
  }
  schedule.buckets = std::move(split);
  return schedule;
}

}  // namespace dovetail::schedule

// Parameters of which a rank keeps its shard only, and that are gathered before each use: they must be
// there when they are read, and gone in between.
//
// A stay lasts from an all-gather to the release behind it. Two stays can overlap in some execution
// unless the release of one happens before the gather of the other. At each gather the stays begun
// before it that may still last are added up; where all gathers run on one stream this is the most
// that any execution holds, else it may be more than that.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/interpreter.h"

#include <algorithm>

namespace dovetail::schedule::verification {
namespace {

// The bucket that the command gathers, if that is what it does.
const Communicate* gather_of(const Command& command) {
  const Communicate* run = bucket_collective(command);
  return run != nullptr && run->kind == Collective::AllGather ? run : nullptr;
}

}  // namespace

void Interpreter::begin_gather(const BucketLayout& bucket) {
  const auto last = std::ranges::find_if(
      stays_, [&](const Stay& stay) { return stay.bucket == bucket.bucket && !stay.release; });
  if (last != stays_.end()) {
    add(ProblemKind::GatheredTwice,
        label() + " gathers what " + index_.label(command(last->gather)) + " has gathered already");
    last->release = now_;  // told once
  }
  check_gather_limit(bucket);
  stays_.push_back({.bucket = bucket.bucket, .gather = now_, .bytes = bucket.size});
}

void Interpreter::check_gather_limit(const BucketLayout& bucket) {
  const GatherLimit& limit = index_.scheduled.gather_limit;
  if (limit == GatherLimit{}) return;
  Bytes bytes = bucket.size;
  std::int32_t buckets = 1;
  for (const Stay& stay : stays_) {
    if (stay.release && order_.before(*stay.release, now_)) continue;
    bytes += stay.bytes;
    ++buckets;
  }
  const std::string holds = label() + " makes " + std::to_string(buckets) + " gathered buckets, " +
                            dovetail::to_string(bytes) + ", at a time";
  if (limit.bytes > Bytes(0) && bytes > limit.bytes) {
    add(ProblemKind::GatherLimitExceeded,
        holds + ", above the limit of " + dovetail::to_string(limit.bytes));
  }
  if (limit.buckets > 0 && buckets > limit.buckets) {
    add(ProblemKind::GatherLimitExceeded,
        holds + ", above the limit of " + std::to_string(limit.buckets));
  }
}

void Interpreter::walk_release(const Release& release) {
  const auto stay = std::ranges::find_if(
      stays_, [&](const Stay& each) { return each.bucket == release.bucket && !each.release; });
  if (stay == stays_.end()) {
    add(ProblemKind::NotReleased, label() + " frees what is not gathered");
  } else {
    stay->release = now_;
  }
  for (const Place& place : memory_.places(release.bucket)) {
    touch(place.packed, Access::Write);
    if (place.own.first != place.packed.first) touch(place.own, Access::Write);
  }
  leave_shard(release.bucket);
}

void Interpreter::check_released() {
  for (const Stay& stay : stays_) {
    if (stay.release) continue;
    add(ProblemKind::NotReleased,
        "what " + index_.label(command(stay.gather)) + " gathers is never released");
  }
}

std::optional<Interpreter::Fault> Interpreter::gather_fault(const Command& mine,
                                                            const Command& earlier,
                                                            std::int32_t cell) const {
  const std::string of = index_.name(memory_.tensor_of(cell));
  const auto comes_and_goes = [&](BucketId id) {
    return index_.bucket(id)->residence == Residence::Shard;
  };
  const auto frees = [](const Command& command) {
    return std::holds_alternative<Release>(command.action);
  };
  if (frees(mine) || frees(earlier)) {
    return Fault{ProblemKind::ReleasedInUse, " is not ordered after " + index_.label(earlier) +
                                                 ", which " +
                                                 (frees(earlier) ? "frees " : "uses ") + of};
  }
  const Communicate* gather = gather_of(earlier);
  if (gather != nullptr && comes_and_goes(*gather->bucket)) {
    return Fault{ProblemKind::ReadBeforeGathered,
                 " uses " + of + " without waiting for " + index_.label(earlier)};
  }
  return std::nullopt;
}

// Why a reader does not find the whole parameter.
std::string Interpreter::not_gathered(TensorId parameter) const {
  for (auto stay = stays_.rbegin(); stay != stays_.rend(); ++stay) {
    if (!stay->release) continue;
    for (const Place& place : memory_.places(stay->bucket)) {
      if (place.tensor != parameter) continue;
      return " after " + index_.label(command(*stay->release)) + " freed it";
    }
  }
  return " before its updated shards are gathered";
}

}  // namespace dovetail::schedule::verification

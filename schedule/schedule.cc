// Words and sizes of Schedules and ScheduledPrograms.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/scheduled_program.h"

namespace dovetail::schedule {

std::string_view to_string(Collective collective) {
  switch (collective) {
    case Collective::AllReduce:
      return "all-reduce";
    case Collective::ReduceScatter:
      return "reduce-scatter";
    case Collective::AllGather:
      return "all-gather";
  }
  return "?";
}

std::string_view to_string(BucketMode mode) { return mode == BucketMode::View ? "view" : "copy"; }

std::string_view to_string(WaitPoint wait) {
  return wait == WaitPoint::FirstUse ? "first-use" : "end-of-backward";
}

std::string_view to_string(WaitScope scope) {
  return scope == WaitScope::Event ? "event" : "whole-stream";
}

Bytes payload(const Program& program, const Bucket& bucket) {
  Bytes sum;
  for (const TensorId id : bucket.gradients) sum += program.tensor(id).bytes();
  return sum;
}

const BucketLayout& ScheduledProgram::bucket(BucketId id) const {
  const auto found = std::ranges::find(buckets, id, &BucketLayout::bucket);
  DOVETAIL_CHECK(found != buckets.end()) << "no bucket " << id;
  return *found;
}

}  // namespace dovetail::schedule

// Sizes of buckets, and look-ups in a ScheduledProgram.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule.h"

#include <algorithm>

#include "base/error.h"
#include "schedule/scheduled_program.h"

namespace dovetail::schedule {

Bytes payload(const Program& program, const Bucket& bucket) {
  Bytes sum;
  for (const Slice& slice : bucket.gradients) {
    const Tensor& tensor = program.tensor(slice.tensor);
    sum += element_size(tensor.dtype) * slice.elements(tensor);
  }
  return sum;
}

const BucketLayout& ScheduledProgram::bucket(BucketId id) const {
  const auto found = std::ranges::find(buckets, id, &BucketLayout::bucket);
  DOVETAIL_CHECK(found != buckets.end()) << "no bucket " << id;
  return *found;
}

const Transfer& ScheduledProgram::transfer(const Command& command) const {
  DOVETAIL_CHECK(command.transfer.has_value())
      << "command " << command.id << " has no transfer: link_transfers was not called";
  return transfers[static_cast<std::size_t>(command.transfer->value)];
}

}  // namespace dovetail::schedule

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
  const auto at = static_cast<std::size_t>(id.value);
  if (at < buckets.size() && buckets[at].bucket == id) return buckets[at];  // as lower makes them
  const auto found = std::ranges::find(buckets, id, &BucketLayout::bucket);
  DOVETAIL_CHECK(found != buckets.end()) << "no bucket " << id;
  return *found;
}

std::optional<OpId> op_run_by(const Command& command) {
  if (const auto* run = std::get_if<RunOp>(&command.action)) return run->op;
  const auto* communicate = std::get_if<Communicate>(&command.action);
  return communicate == nullptr ? std::nullopt : communicate->op;
}

const Communicate* bucket_collective(const Command& command) {
  const auto* communicate = std::get_if<Communicate>(&command.action);
  return communicate != nullptr && communicate->bucket ? communicate : nullptr;
}

Action action_of(const Op& op, std::int32_t max_ctas) {
  const auto* work = std::get_if<CollectiveWork>(&op.work);
  if (work == nullptr) return RunOp{op.id};
  return Communicate{.kind = work->kind,
                     .reduce = work->op,
                     .group = work->group,
                     .max_ctas = max_ctas,
                     .op = op.id,
                     .root = work->root};
}

const Transfer& ScheduledProgram::transfer(const Command& command) const {
  DOVETAIL_CHECK(command.transfer.has_value())
      << "command " << command.id << " has no transfer: link_transfers was not called";
  return transfers[static_cast<std::size_t>(command.transfer->value)];
}

}  // namespace dovetail::schedule

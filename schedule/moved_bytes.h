// How many bytes each command on a bucket moves: one definition for costs, traces and reports.
//
//   all-reduce of the whole bucket, reduce-scatter, all-gather    the bucket's size
//   all-reduce of a shard (over the replicas)                     size / shards
//   pack, unpack                                                  the ranges of its tensors that lie
//                                                                 in this bucket
//   scale                                                         size, or size / shards
//
// Sizes include padding, as the wire does; copies do not.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "schedule/scheduled_program.h"

namespace dovetail::schedule {

Bytes part_size(const BucketLayout& layout, Part part);
Bytes moved_bytes(const BucketLayout& layout, const Communicate& collective);
Bytes moved_bytes(const BucketLayout& layout, const Scale& scale);
// A tensor of the copy that is no member of the bucket counts as a whole.
Bytes moved_bytes(const Program& program, const BucketLayout& layout, const Copy& copy);

}  // namespace dovetail::schedule

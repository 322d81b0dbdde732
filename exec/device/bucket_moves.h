// Lists in device memory of what a bucket's copies move and what its release frees: made once per plan, so that
// each is one launch.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/device/memory.h"
#include "schedule/scheduled_program.h"

namespace dovetail::exec {

// Members that are windows of the bucket are not moved.
struct Packing {
  Block list;
  Moves moves;
};
Packing packing_of(const DeviceMemory& memory, const schedule::Copy& copy);

// Nothing where ranks keep the bucket whole.
struct Freeing {
  Block list;
  Freed freed;
};
Freeing freeing_of(const DeviceMemory& memory, BucketId bucket);

}  // namespace dovetail::exec

// What one step of a trace tells of PyTorch's DistributedDataParallel: its buckets, the gradients in
// each, and when each gradient was ready.
//
//   for (const TracedBucket& bucket : ddp_buckets(trace, line, step)) bucket.gradients.size()
//
// A bucket is an all-reduce issued from backward: inside the hook of an AccumulateGrad, or on its thread
// after one. Its gradients are the AccumulateGrads since the bucket before, of the same backward pass.
//
// Ready time of a gradient:
//   copied into the bucket    end of the GPU work launched inside reducer::mul_out
//   a view of the bucket      end of the last compute work that its thread launched before
//                             AccumulateGrad ended
// Size, in this order: the copy back (copy_bucket_to_grad moves one gradient: its bytes), the shapes of
// mul_out or AccumulateGrad (record_shapes=True); otherwise unknown, and the bucket's elements are
// shared out evenly.
//
// Of a trace without GPU work (Gloo on a CPU) ready times are those of the host.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/timeline/rank_timeline.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace dovetail::imports {

struct TracedGradient {
  std::int64_t elements = 0;
  bool size_is_known = false;
  Instant ready;
  Instant host_ready;         // end of its AccumulateGrad (or of the copy's call) on the host
  std::int32_t work = kNone;  // GPU work whose end is `ready`
};

struct TracedBucket {
  std::int32_t collective = kNone;  // in RankTimeline::collectives; none: not on a GPU
  std::int32_t call = kNone;        // event of the operator that launched it
  std::int64_t elements = 0;        // 0: unknown
  Bytes element_size{4};
  Bytes bytes;
  bool copied = false;                    // gradients are copied in and out, not views
  std::vector<TracedGradient> gradients;  // in gradient-ready order
};

struct TracedBuckets {
  std::vector<TracedBucket> buckets;      // in order of launch
  std::int64_t gradients_after_last = 0;  // AccumulateGrads that no bucket owns
  bool sizes_known = true;                // of every gradient
  std::vector<std::int32_t> copies_back;  // GPU work that copies gradients out of their buckets
};

TracedBuckets ddp_buckets(const Recording& trace, const RankTimeline& line, const TracedStep& step);
// Of all steps, in time that grows with the trace.
std::vector<TracedBuckets> ddp_buckets(const Recording& trace, const RankTimeline& line);

}  // namespace dovetail::imports

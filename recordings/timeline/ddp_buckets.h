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
// A bucket's sizes are those of its gradients, which DDP's caps count. What is sent may have another type: a communication hook
// (bf16_compress_hook) casts the bucket first. Gradients' types are those of mul_out or AccumulateGrad; without shapes a cast
// before an all-reduce of 16 bits tells that they had 32.
//
// With batched_grad_copy=True (PyTorch 2.15) one _foreach_copy_ and one div_ fill a bucket, behind its last AccumulateGrad.
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
  Bytes element_size{4};            // of the gradients
  Bytes sent_element{4};            // of what is all-reduced
  Bytes bytes;
  bool copied = false;                    // gradients are copied in and out, not views
  std::vector<std::int32_t> copies_in;    // GPU work that fills it
  std::vector<TracedGradient> gradients;  // in gradient-ready order
};

// What copying gradients takes: on a GPU its launches and their work, on a CPU its operators.
struct GradientCopies {
  std::int64_t launches = 0;
  Duration time{};
};

struct TracedBuckets {
  std::vector<TracedBucket> buckets;      // in order of launch
  std::int64_t gradients_after_last = 0;  // AccumulateGrads that no bucket owns
  bool sizes_known = true;                // of every gradient
  std::vector<std::int32_t> copies_back;  // GPU work that copies gradients out of their buckets
  GradientCopies into, out;
  bool is_batched = false;  // one copy of all gradients fills a bucket
  bool is_compiled_whole =
      false;  // every gradient comes behind the last graph that torch.compile made of backward
  bool is_compressed = false;  // a hook sends fewer elements than its bucket's gradients have
};

TracedBuckets ddp_buckets(const Recording& trace, const RankTimeline& line, const TracedStep& step);
// Of all steps, in time that grows with the trace.
std::vector<TracedBuckets> ddp_buckets(const Recording& trace, const RankTimeline& line);

}  // namespace dovetail::imports

// The policies there are, in the order in which they are listed. A new one is a line here, beside its own
// file, which defines NAME_policy() (definition.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define DOVETAIL_POLICIES(POLICY)                   \
  POLICY(Naive, naive)                              \
  POLICY(NoOverlap, no_overlap)                     \
  POLICY(NoOverlapPerTensor, no_overlap_per_tensor) \
  POLICY(PerTensor, per_tensor)                     \
  POLICY(OneBucket, one_bucket)                     \
  POLICY(Threshold, threshold)                      \
  POLICY(TorchDdp, torch_ddp)                       \
  POLICY(Exact, exact)                              \
  POLICY(SourceFirstFit, source_first_fit)          \
  POLICY(SourceImproved, source_improved)           \
  POLICY(GradientMerge, gradient_merge)             \
  POLICY(Sharded, sharded)                          \
  POLICY(Fsdp, fsdp)                                \
  POLICY(Pipeline, pipeline)

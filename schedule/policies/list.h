// The policies there are, in the order in which they are listed. A new one is a line here, beside its own
// file, which defines NAME_policy() (definition.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#define DOVETAIL_POLICIES(POLICY) \
  POLICY(naive)                   \
  POLICY(no_overlap)              \
  POLICY(no_overlap_per_tensor)   \
  POLICY(per_tensor)              \
  POLICY(one_bucket)              \
  POLICY(threshold)               \
  POLICY(torch_ddp)               \
  POLICY(mg_wfbp)                 \
  POLICY(asc_wfbp)                \
  POLICY(exact)                   \
  POLICY(source_first_fit)        \
  POLICY(source_improved)         \
  POLICY(gradient_merge)          \
  POLICY(sharded)                 \
  POLICY(dear)                    \
  POLICY(fsdp)                    \
  POLICY(pipeline)

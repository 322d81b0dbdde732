// Megatron's own buckets, for plans of several pipeline stages or process groups: one size for all, in elements.
//
// Each stage has a buffer for each process group and dtype. Only the first chunk of the first stage is cut into
// buckets, each closed once it holds --ddp-bucket-size elements; what is reduced on other stages is one bucket for
// each buffer (core/distributed/distributed_data_parallel.py, training/models/dist_utils.py: pp_rank > 0, or a later
// chunk), since their flush hides it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "frameworks/framework.h"
#include "frameworks/restriction.h"

namespace dovetail::frameworks {

// Gives up what Megatron does otherwise; the size is the one with the shortest predicted step of those of the plan's
// buckets. Without a step to predict it is the smallest of them.
void restrict_to_megatron_buckets(Restriction& left);

// The arguments that say it. REQUIRES: restrict_to_megatron_buckets.
Export write_megatron_buckets(const Restriction& left, const Writing& writing);

}  // namespace dovetail::frameworks

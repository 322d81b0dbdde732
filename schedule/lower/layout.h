// The first passes after the rewrites: debts, streams, buffers.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "schedule/lower/draft.h"

namespace dovetail::schedule::internal {

// The stream that this choice means in every ScheduledProgram.
StreamId stream_of(const StreamChoice& choice);

// Fills Draft::debts from the Program's reductions. REQUIRES: Draft::travels is filled.
void collect_debts(Draft& draft);

// The compute stream, and as many communication streams as the buckets and gathers name.
void name_streams(Draft& draft);

// Fills Draft::buckets but for the scales, and out.buckets: the members one after another, each at a
// multiple of align_to and of an element, the end padded to pad_to and, for a reduce-scatter, to whole
// elements of equal shards. A bucket with the
// same members as an earlier one, over another group that they also owe, continues it: its
// collective runs on that one's buffer. Leaves a line in the report.
void lay_out(Draft& draft);

// The debt over this group; the tensor's first one if it has none there (verify will say so).
// REQUIRES: the tensor owes something.
const Debt& debt_over(const Draft& draft, TensorId tensor, GroupId group);

}  // namespace dovetail::schedule::internal

// Whether the buckets' buffers can be as they are described.
//
// Reported as BadLayout: members outside their tensor or the buffer, or on each other; another dtype
// than the bucket's; a buffer or a member that is not whole elements; shards that do not divide the buffer into equal parts of whole elements (AI6);
// and tensors that would need two memories: a range of a tensor cannot be a window of a view
// bucket while the rest lies elsewhere, nor can one tensor be the window of two buckets. If both
// are reduced over one group, that is a ReducedTwice as well (PI7).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/verify/index.h"
#include "schedule/verify/verify.h"

#include <vector>

namespace dovetail::schedule::verification {

// Appends to `problems`.
void check_layouts(const Index& index, std::vector<Problem>& problems);

}  // namespace dovetail::schedule::verification

// Combined all-reduces as XLA for GPUs lays them out: operands copied into one array, reduced, and cut apart again.
//
//   %all = f32[4609] concatenate(%loss, %bias.1, %bias.2)        the copies
//   %sum = f32[4609] all-reduce-start(%all) ... all-reduce-done
//   %b1  = f32[2048] slice(%sum), slice={[1:2049]}               one for each operand
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/hlo/flow.h"
#include "recordings/hlo/module.h"

#include <cstddef>

namespace dovetail::imports {

// Makes each such all-reduce one of its parts: it reads what was copied together and writes the slices; the copies,
// also those within fusions of nothing else, are no steps any more. Where the slices are not exactly the operands, or something
// else reads the array, all stays as it is; in a loop, where no plan groups them, too. Returns how many all-reduces were taken apart.
std::size_t take_apart_flattened(const HloModule& module, HloFlow& flow);

}  // namespace dovetail::imports

// What an HLO instruction costs: its matrix products, and else the bytes that it moves.
//
//   dot f32[16,128] x f32[128,256]    one product of m 16, n 256, k 128
//   fusion                            the products in it; without any, its operands and results once, and one
//                                     operation for each element that arithmetic gives
//   convolution                       the product it implies: n output features, k input features x window
//
// Of operands that are only sliced within a fusion the slices count, and of an update in place the update.
// Left out: what a fusion adds to a product (its epilogue), how sort, fft and solvers go about it (their operands and
// results count once).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/hlo/module.h"
#include "schedule/program.h"

#include <vector>

namespace dovetail::imports {

// Shapes of an instruction's operands; an operand that the computation lacks is left out.
std::vector<const HloShape*> operand_shapes(const HloComputation& within,
                                            const HloInstruction& instruction);

// Of an instruction that computes (no collective, no loop). Throws InputError where the shapes of a product do not fit.
std::vector<schedule::Kernel> hlo_kernels(const Source& file, const HloModule& module,
                                          const HloComputation& within,
                                          const HloInstruction& instruction);

// Whether it is a call of a library of which only the traffic is known.
bool is_unknown_call(const HloInstruction& instruction);

// Whether each element of the results depends on one element of each operand only (broadcast scalars aside).
bool is_elementwise(const HloModule& module, const HloInstruction& instruction);

}  // namespace dovetail::imports

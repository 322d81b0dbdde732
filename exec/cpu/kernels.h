// The computing itself: real matrix products and streaming passes on the calling thread.
//
// Products run with their true shapes on bounded operands in preallocated memory that all ops share;
// inputs are never written, so values cannot grow from op to op. Memory-bound work is
// y = (x + y) / 2 over a ring of 16 MiB, larger than a core's private caches: 12 bytes per element,
// reads plus writes, as schedule/program.h counts them. Leaves out: reduced precision (every product
// is computed in f32) and the FLOPs of memory-bound work.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cpu/memory.h"
#include "schedule/program.h"

namespace dovetail::exec::cpu {

// The product that measures a machine's speed when a plan holds recorded times instead of shapes.
inline constexpr schedule::GemmWork kUnitGemm = {.m = 192, .n = 192, .k = 192, .count = 1};

// Makes room for this op. Throws InputError for timed work: only the simulator can play it.
void reserve(const schedule::Op& op, Workspace& workspace);

// REQUIRES (both): reserve() saw this work.
void run_gemm(const schedule::GemmWork& work, Workspace& workspace);
void run_memory(Bytes bytes, Workspace& workspace);

}  // namespace dovetail::exec::cpu

// The computing itself: real matrix products and streaming passes on the calling thread.
//
// Products run with their true shapes on bounded operands in preallocated memory that all ops
// share; inputs are never written, so values cannot grow from op to op. Memory-bound work is y = (x
// + y) / 2, 12 bytes per element, reads plus writes, as schedule/program.h counts them. It walks a
// ring as large as all memory-bound work of one step, at most 64 MiB: so what a step touches once
// is as cold as in a real one, and a small model stays in the caches. Leaves out: reduced precision
// (every product is computed in f32) and the FLOPs of memory-bound work.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cpu/memory.h"
#include "schedule/program.h"

#include <span>

namespace dovetail::exec::cpu {

// The product that measures a machine's speed when a plan holds recorded times instead of shapes.
inline constexpr schedule::GemmWork kUnitGemm = {.m = 192, .n = 192, .k = 192, .count = 1};

// Makes room for the ops of one step. REQUIRES: none is timed work.
void reserve(std::span<const schedule::Op* const> ops, Workspace& workspace);

// REQUIRES (both): reserve() saw this work.
void run_gemm(const schedule::GemmWork& work, Workspace& workspace);
void run_memory(Bytes bytes, Workspace& workspace);

}  // namespace dovetail::exec::cpu

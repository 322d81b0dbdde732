// Nsight Systems' SQLite export (nsys export --type sqlite): kernels, launches and NVTX ranges of one rank.
//
// Source of the schema: NVIDIA's "SQLite Export Schema Reference" (docs.nvidia.com/nsight-systems); tables
// and columns used: StringIds(id, value); CUPTI_ACTIVITY_KIND_KERNEL(start, end, correlationId, shortName);
// CUPTI_ACTIVITY_KIND_RUNTIME(start, correlationId); NVTX_EVENTS(start, end, text, textId). Times are
// nanoseconds; globalPid of kernels and globalTid of launches and ranges, divided by 2^24, are the process (and
// modulo 2^24 its pid). Tables are made only where there is something to put in, and columns differ between versions; a
// table with something behind its name ("NVTX_EVENTS_V2") is taken where the one of that name is missing.
//
// Correlation ids are unique within a process only, and an export may hold several (torchrun in one report): one of
// them is read, `pid` or the one with most kernels, and the others are named.
//
// What becomes of it: a step is an NVTX range of the name that `step` gives; a kernel belongs to the step in
// which it was launched. Each NCCL all-reduce (kernel name with "nccl" and "AllReduce") is one gradient,
// ready when the last kernel that was launched before it has ended; medians over the steps. The
// export does not hold what the collectives reduced: `bytes` gives the sizes, in the order of one step (DDP's
// log, or dovetail import flight-recorder, tell them). Computation before the first gradient stands in
// forward, what follows the last one's reduction in the optimizer.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/profile_file.h"
#include "recordings/text.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {

struct NsysOptions {
  std::string step;          // name of the NVTX range around a step
  std::vector<Bytes> bytes;  // of each all-reduce of a step, in launch order
  std::int64_t ranks = 1;
  std::optional<std::int64_t> pid{};  // of the process to read; absent: the one with most kernels
  // How long SQLite may work on a query before the file is refused, in 100,000 instructions of its machine;
  // ten million kernels take about 5000.
  std::int64_t effort = 20'000;
};

// A file, packed with gzip or not: a packed one is unpacked into memory, up to 1 GiB. Throws InputError where the file is no such export, no range has that name (with the names there are), no process
// that pid (likewise), or the number of all-reduces differs from step to step or from the number of sizes.
ImportedStep read_nsys(const std::string& path, const NsysOptions& options);
// The bytes of such a file.
ImportedStep read_nsys(const Source& file, const NsysOptions& options);

}  // namespace dovetail::imports

// Reads Nsight Systems' SQLite export (nsys export --type=sqlite): a recording of each process that ran kernels, and of each of its
// devices.
//
//   std::vector<Recording> ranks = read_nsys("report.sqlite", {});
//
// Source of the schema: NVIDIA's "SQLite Export Schema Reference" (docs.nvidia.com/nsight-systems) and public exports of versions 2026.1 and 2026.2. Tables and
// columns used: StringIds(id, value); CUPTI_ACTIVITY_KIND_KERNEL, _MEMCPY, _MEMSET (start, end, deviceId, streamId, correlationId, globalPid,
// shortName | copyKind, srcKind, bytes); CUPTI_ACTIVITY_KIND_RUNTIME(start, end, globalTid, correlationId, nameId);
// CUPTI_ACTIVITY_KIND_SYNCHRONIZATION(start, end, streamId, correlationId, syncType); NVTX_EVENTS(start, end, eventType, text | textId,
// globalTid, binaryData); NVTX_PAYLOAD_SCHEMA_ENTRIES; TARGET_INFO_GPU; TARGET_INFO_SESSION_START_TIME. Tables are made only where there is
// something to put in, and columns differ between versions; a table with something behind its name ("NVTX_EVENTS_V2") is taken where the
// one of that name is missing. Times are nanoseconds; globalPid and globalTid, divided by 2^24, are the process.
//
// What becomes of it: NVTX ranges of torch.autograd.profiler.emit_nvtx are PyTorch's operators ("aten::add, seq = 3, op_id = 7" is aten::add),
// other ranges annotations. NCCL's own ranges (ncclAllReduce; between ncclGroupStart and ncclGroupEnd the latter stands for all) say which
// collective a launch inside them is, and where the export has their payload (nsys export --include-blobs=true) its size, its
// communicator, and the rank of the process.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/recording.h"
#include "recordings/text.h"

#include <cstdint>
#include <string>
#include <vector>

namespace dovetail::imports {

struct NsysOptions {
  // How long SQLite may work on the file before it is refused, in 100,000 instructions of its machine (database.h).
  std::int64_t effort = 200'000;
};

// In order of device, then process. Throws InputError where the file is no such export, or has no kernels.
std::vector<Recording> read_nsys(const std::string& path, const NsysOptions& options);
// The bytes of such a file.
std::vector<Recording> read_nsys(const Source& file, const NsysOptions& options);

}  // namespace dovetail::imports

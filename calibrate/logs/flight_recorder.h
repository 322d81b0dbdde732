// Dumps of PyTorch's flight recorder in JSON, one file per rank: the last collectives of a job.
//
//   {"version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
//    "entries": [{"record_id": 7, "process_group": ["0", "default_pg"], "collective_seq_id": 8,
//                 "op_id": 8, "profiling_name": "nccl:all_reduce", "input_sizes": [[262144]],
//                 "input_dtypes": ["Float"], "output_sizes": [[262144]], "output_dtypes": ["Float"],
//                 "time_created_ns": 1763772000000000000, "duration_ms": 0.071, "state": "completed",
//                 "is_p2p": false, ...}, ...]}
//
// Source of the format: github.com/pytorch/pytorch : torch/csrc/distributed/c10d/FlightRecorderDetail.hpp
// at 1189309e (dump_json; version 2.10) and FlightRecorder.hpp at 00f0e2f6 (version 2.4).
//
// duration_ms stands there only for NCCL and only with TORCH_NCCL_ENABLE_TIMING=1; without it the file
// still tells sizes and order of the buckets. The usual dump (TORCH_NCCL_DEBUG_INFO_TEMP_FILE) is a
// Python pickle, which is refused with the line that makes JSON of it: reading a pickle can run any code.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/logs/collective_log.h"
#include "recordings/text.h"

#include <span>

namespace dovetail::imports {

// All files of a job together: the same collective is found in them by its group and its number, and
// its shortest time is taken (rank_views.h). A group is its members (pg_config's ranks), then its name: groups of a
// mesh that never meet have one name on all ranks. Where no entry has a time the log has no samples, only
// what was read. Throws InputError where a file is no dump in JSON or holds no collective.
CollectiveLog read_flight_recorder(std::span<const Source> files);

}  // namespace dovetail::imports

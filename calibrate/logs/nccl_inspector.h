// Logs of NCCL's inspector plugin: JSON lines, one object per collective, rank and communicator.
//
//   {"header": {"id": "0x7f8c496ae9f661", "rank": 2, "n_ranks": 8, "nnodes": 1},
//    "metadata": {"inspector_output_format_version": "v4.0", "hostname": "...", "pid": 1639453, ...},
//    "coll_perf": {"coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 17179869184,
//                  "coll_exec_time_us": 61974, "coll_timing_source": "kernel_gpu", ...}}
//
// Source of the format: github.com/NVIDIA/nccl at 5067397c (2.30.7): plugins/profiler/inspector/README.md,
// inspector_json.cc (v4.0), and inspector.cc for what the size is: the message of one rank, which for an
// all-gather and a reduce-scatter is one rank's share. From v4.1 on a communicator's dump begins with a record of
// counts, "dump_stats"; there and later are records of network proxies and calls, which are left out. From v4.3 on
// header and metadata stand in "dump_stats" alone and hold for the records behind it (README of those versions).
// Bandwidths of a time of 0 us are printed as inf.
//
// A collective's time on one rank includes the wait for the last rank to arrive. The same collective
// (communicator and serial number) is therefore looked up on all ranks: its shortest time is that of
// moving the data. Sizes that no collective shows on all its ranks take the shortest time there is, an
// upper bound, and `left_out` says so. Times are whole microseconds, taken within the job: other work ran
// beside them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/logs/collective_log.h"
#include "recordings/text.h"

#include <span>

namespace dovetail::imports {

// All files of a job together. Throws InputError with file and line where an object is not what the
// plugin writes, or where nothing usable is left.
CollectiveLog read_nccl_inspector(std::span<const Source> files);

}  // namespace dovetail::imports

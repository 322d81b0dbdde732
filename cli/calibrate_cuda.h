// dovetail calibrate --backend cuda: measures GPUs into a cluster file that explore and plan read.
//
// One file is one way of executing: eager or as a replayed graph, with one number of thread blocks
// per collective. With --stand-in send-to-self one GPU plays a plan of --world ranks: everything is
// real but the link, and the file says so.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>

#include "cli/calibrate.h"
#include "cli/cuda_job.h"

namespace dovetail::cli {

struct CalibrateCudaOptions : CalibrateOptions {
  BackendChoice backend;              // its backend is "cuda"
  std::optional<std::int64_t> world;  // ranks of the plans that a stand-in plays; absent: 2
  std::int32_t max_ctas = 0;          // 0: the library's choice
};

// Throws InputError for options of this backend, where the other one is chosen.
void refuse_cuda_only(const CalibrateCudaOptions& options);

// Throws DeviceError where module, driver or device are missing.
// In the notes; one file is one way of executing.
void note_execution(models::Cluster& cluster, const CalibrateCudaOptions& options);

void calibrate_cuda(const CalibrateCudaOptions& options, std::ostream& out);

}  // namespace dovetail::cli

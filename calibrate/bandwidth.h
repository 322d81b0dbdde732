// The bus bandwidth of this job's all-reduces, beside what was published for such a system.
//
//   cuda  all-reduce 256 MiB, 8 ranks  pass  2031.1 us, busbw 231.3 GB/s; a100x8: 235.2
//
// Bus bandwidth as nccl-tests defines it: 2 (n - 1) / n * bytes / time over n ranks. The shipped tables are of
// other machines of the same kind: half of what they say is a fault of the link, the topology or the
// settings, a tenth less is not.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "exec/selftest/row.h"
#include "models/clusters/cluster.h"

namespace dovetail::calibrate {

struct GpuSystem {
  std::string gpu;  // as the driver names it: "NVIDIA A100-SXM4-80GB"
  std::int64_t ranks = 1;
  std::int64_t hosts = 1;
};

// The shipped clusters of so many of this GPU on so many hosts.
std::vector<models::Cluster> shipped_like(const GpuSystem& system, const std::string& data_dir);

double bus_bandwidth(Bytes bytes, Duration time, std::int64_t ranks);  // GB/s

// One row per size. Failed where the bandwidth is below half of every shipped one.
std::vector<exec::selftest::Row> bandwidth_rows(std::span<const models::CollectivePoint> times,
                                                const GpuSystem& system,
                                                std::span<const models::Cluster> shipped);

}  // namespace dovetail::calibrate

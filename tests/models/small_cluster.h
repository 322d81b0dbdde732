// The small cluster that tests of clusters and of costs build on, and where the shipped ones lie.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "models/clusters/cluster.h"

namespace dovetail::models {

inline const std::string kClusters = DOVETAIL_SOURCE_DIR "/models/clusters";

// Two ranks; 10 us at 1000 bytes, 20 us at 2000.
inline CollectiveSeries series_of(schedule::Collective collective) {
  return {.collective = collective,
          .ranks = 2,
          .nodes = 1,
          .times =
              std::vector{CollectivePoint{Bytes(1000), std::chrono::microseconds(10), {}, {}, {}},
                          CollectivePoint{Bytes(2000), std::chrono::microseconds(20), {}, {}, {}}}};
}

// 1 TFLOP/s of f32 at half efficiency, 10 GB/s of memory, 1 us per kernel.
inline Roofline slow_roofline() {
  Roofline roofline;
  roofline.gemm_peak[schedule::DType::F32] = FlopPerSecond(1e12);
  roofline.efficiency = 0.5;
  roofline.memory = BytesPerSecond(1e10);
  roofline.kernel_overhead = std::chrono::microseconds(1);
  return roofline;
}

inline Cluster small_cluster() {
  Cluster cluster;
  cluster.name = "two";
  cluster.ranks = 2;
  cluster.collectives = {series_of(schedule::Collective::AllReduce)};
  cluster.compute = slow_roofline();
  return cluster;
}

}  // namespace dovetail::models

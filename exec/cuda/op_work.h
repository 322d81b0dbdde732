// The work of ops on the device, whatever values they carry: matrix products of their shapes, and
// memory-bound passes of their bytes.
//
// Memory-bound work is y = (x + y) / 2, 12 bytes per f32 element, over a ring as large as all
// memory-bound work of one step, at most 256 MiB: so what a step touches once is as cold in the L2
// cache as in a real one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/gemm.h"
#include "schedule/program.h"

#include <cstdint>
#include <vector>

namespace dovetail::exec::cuda {

// Device memory that OpWork takes for these ops.
Bytes room_for_work(const std::vector<const schedule::Op*>& ops);

class OpWork {
 public:
  // Makes room for these ops. REQUIRES: none is timed work.
  OpWork(const std::vector<const schedule::Op*>& ops, F32Math math);

  void run_product(const schedule::GemmWork& work, Element element, cudaStream_t stream) {
    gemm_.run(work, element, stream);
  }
  void run_pass(Bytes bytes, cudaStream_t stream);

 private:
  Gemm gemm_;
  DeviceBuffer x_, y_;     // the ring's two arrays
  std::int64_t ring_ = 0;  // floats in each
  std::int64_t cursor_ = 0;
};

}  // namespace dovetail::exec::cuda

// Matrix products of a model's shapes by cuBLAS, on data like real data.
//
// Operands are uniform in -0.5 .. 0.5 and never written, so values cannot grow from op to op. All
// ops of one element type share operands, as large as the largest op needs (gemm_plan.h); row-major
// like schedule::GemmWork. The workspace is given, so that calls can be captured in a graph.
//
//   Gemm gemm(F32Math::Full);
//   gemm.reserve(work, Element::BF16);    for every op, then
//   gemm.allocate();
//   gemm.run(work, Element::BF16, stream);
//
// Accumulation is in f32 (f64 for f64). F32Math::TF32 lets f32 products use tensor cores.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/array.h"
#include "exec/cuda/check.h"
#include "exec/cuda/gemm_plan.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/module.h"

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace dovetail::exec::cuda {

using CublasHandle = Handle<cublasHandle_t, cublasDestroy>;

class Gemm {
 public:
  explicit Gemm(F32Math math);

  // Throws InputError for a shape that cuBLAS cannot take.
  void reserve(const schedule::GemmWork& work, Element element);
  // Runs each reserved shape once; before the first collective.
  void allocate();
  // REQUIRES: the work was reserved.
  void run(const schedule::GemmWork& work, Element element, cudaStream_t stream);

 private:
  struct Operands {
    GemmRoom room;
    DeviceBuffer a, b, c;
  };
  struct Call {
    const schedule::GemmWork& work;
    Element element;
    std::int64_t batch;
  };
  void run_batch(const Call& call, const Operands& operands);

  F32Math math_;
  CublasHandle handle_;
  DeviceBuffer workspace_;
  std::map<Element, Operands> operands_;
  std::vector<std::pair<schedule::GemmWork, Element>> shapes_;  // to be run once by allocate()
};

}  // namespace dovetail::exec::cuda

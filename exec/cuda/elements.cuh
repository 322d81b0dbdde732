// Loading and storing one element of any type on the device, as double.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/array.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace dovetail::exec::cuda {

__device__ inline double load(const void* data, Element element, std::int64_t i) {
  switch (element) {
    case Element::F32:
      return static_cast<const float*>(data)[i];
    case Element::F16:
      return __half2float(static_cast<const __half*>(data)[i]);
    case Element::BF16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    case Element::F64:
      return static_cast<const double*>(data)[i];
  }
  return 0;
}

__device__ inline void store(const Array& to, std::int64_t i, double value) {
  switch (to.element) {
    case Element::F32:
      static_cast<float*>(to.data)[i] = static_cast<float>(value);
      break;
    case Element::F16:
      static_cast<__half*>(to.data)[i] = __float2half(static_cast<float>(value));
      break;
    case Element::BF16:
      static_cast<__nv_bfloat16*>(to.data)[i] = __float2bfloat16(static_cast<float>(value));
      break;
    case Element::F64:
      static_cast<double*>(to.data)[i] = value;
      break;
  }
}

}  // namespace dovetail::exec::cuda

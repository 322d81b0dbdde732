// Cuts the products of one op into strided batches that fit the memory set aside for operands.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/gemm_plan.h"

#include <algorithm>

namespace dovetail::exec::cuda {

GemmBatches batches_of(const schedule::GemmWork& work, Element element) {
  const std::int64_t each =
      (work.m * work.k + work.k * work.n + work.m * work.n) * size_of(element);
  const std::int64_t fitting =
      std::max<std::int64_t>(1, kBatchBytes / std::max<std::int64_t>(1, each));
  const std::int64_t batch = std::min(work.count, fitting);
  if (batch <= 0) return {.batch = 0, .calls = 0, .rest = 0};
  return {.batch = batch, .calls = work.count / batch, .rest = work.count % batch};
}

GemmRoom room_of(const schedule::GemmWork& work, Element element) {
  const GemmBatches batches = batches_of(work, element);
  return {.a = batches.batch * work.m * work.k,
          .b = batches.batch * work.k * work.n,
          .c = batches.batch * work.m * work.n};
}

}  // namespace dovetail::exec::cuda

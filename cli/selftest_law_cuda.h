// A legal schedule changes time, never results, on the GPUs of this job: a small training job, with real
// forward, backward and optimizer, under the naive schedule and under others; the weights must agree.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "exec/cuda/module.h"
#include "exec/selftest/row.h"

namespace dovetail::cli {

// `on_gpu`: of this rank, with the exchange of the job, whose ranks all call this. Each judges its own
// weights; rows are equal on all ranks.
std::vector<exec::selftest::Row> cuda_law_rows(const exec::cuda::Module& module,
                                               const exec::cuda::BackendOptions& on_gpu);

}  // namespace dovetail::cli

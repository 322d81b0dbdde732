// The cuda part of the self-test: everything that may be missing, one after the other.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/selftest.h"
#include "exec/cuda/module.h"

namespace dovetail::cli {

// Rows about the module as built; needs no GPU.
std::vector<exec::selftest::Row> cuda_build_rows(const SelftestOptions& options);
// Devices, links, collectives and timing. Without module, driver or device: skipped rows.
std::vector<exec::selftest::Row> cuda_rows(const SelftestOptions& options);
// As one rank of an NCCL check; rank 0 prints the rows.
int cuda_selftest_as_rank(const SelftestOptions& options, std::ostream& out);

// "" where several processes may use the first GPU at once, else why not.
std::string why_not_shared(const exec::cuda::Facts& facts);

// The variables with which several NCCL ranks can share one GPU, for correctness only: each looks
// like a host of its own, and talks TCP over loopback.
exec::launch::Variables one_gpu_variables(std::int32_t rank);

}  // namespace dovetail::cli

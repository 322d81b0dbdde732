// Launching a kernel that was compiled for the host.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/emulated/races.h"

#include <cuda_runtime_api.h>

#include <functional>
#include <vector>

namespace dovetail::emulated {

struct Launch {
  const char* kernel = "";
  dim3 grid, block;
  cudaStream_t stream = nullptr;
};
// `thread` is what each thread of the grid does; `accesses` what all of them read and write.
cudaError_t launch(const Launch& how, std::vector<Access> accesses, std::function<void()> thread);

cudaError_t preload(const char* kernel);

// The place of the thread that runs.
struct Place {
  uint3 thread{}, block{}, grid_size{}, block_size{};
};
extern constinit thread_local Place t_place;

// All threads, one after the other; those of a block from the highest number down, so that thread 0
// finds what the others have added (block_sum).
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);
// The running sum of this call over the threads of the block so far.
double add_to_block(double value);

}  // namespace dovetail::emulated

// Runs the grid of a kernel that was compiled for the host: block by block, thread by thread, on
// the emulated stream's own thread.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/launch.h"

#include <cstddef>

namespace dovetail::emulated {

constinit thread_local Place t_place{};

namespace {

// Of one block: the sum of each call of block_sum, in the order in which a thread makes them.
struct BlockSums {
  std::vector<double> sums;
  std::size_t call = 0;  // of the thread that runs
};
thread_local BlockSums t_sums;

}  // namespace

void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread) {
  Place& place = t_place;
  place.grid_size = {grid.x, grid.y, grid.z};
  place.block_size = {block.x, block.y, block.z};
  for (unsigned y = 0; y < grid.y; ++y) {
    for (unsigned x = 0; x < grid.x; ++x) {
      place.block = {x, y, 0};
      t_sums.sums.clear();
      for (unsigned number = block.x; number-- > 0;) {
        place.thread = {number, 0, 0};
        t_sums.call = 0;
        thread();
      }
    }
  }
}

double add_to_block(double value) {
  BlockSums& all = t_sums;
  if (all.sums.size() <= all.call) all.sums.resize(all.call + 1, 0);
  return all.sums[all.call++] += value;
}

}  // namespace dovetail::emulated

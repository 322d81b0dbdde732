// Replacing timed work by repetitions of a unit kernel.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/stand_in.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace dovetail::models {

StandIn stand_in(const schedule::Program& program, const Cluster& cluster) {
  StandIn result{.program = program};
  for (schedule::Op& op : result.program.ops) {
    const auto* timed = std::get_if<schedule::TimedWork>(&op.work);
    if (timed == nullptr) continue;
    if (!cluster.unit_kernel) {
      throw InputError("op " + op.name + " is known only by its time, and cluster " + cluster.name +
                       " has no unit_kernel to stand in for it; run `dovetail calibrate` here");
    }
    const UnitKernel& unit = *cluster.unit_kernel;
    const Duration sum = std::accumulate(timed->by_rank.begin(), timed->by_rank.end(), Duration{});
    const double mean =
        static_cast<double>(sum.count()) / static_cast<double>(timed->by_rank.size());
    const double unit_ns = static_cast<double>(std::max<std::int64_t>(1, unit.time.count()));
    schedule::GemmWork work = unit.gemm;
    work.count *= std::max<std::int64_t>(1, std::llround(mean / unit_ns));
    op.work = work;
    op.dtype = unit.dtype;
    ++result.replaced;
  }
  return result;
}

}  // namespace dovetail::models

// Replaces work that is only known by its duration with repetitions of a unit kernel, so that a
// real machine can execute a Program whose kernels nobody has.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/clusters/stand_in.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace dovetail::models {
namespace {

constexpr double kMostTraffic = 0x1p60;  // bytes; more would not be counted

// What fills the mean over ranks, at least one.
double repetitions_of(const UnitKernel& unit, const schedule::TimedWork& timed) {
  double sum_ns = 0;
  for (const Duration time : timed.by_rank) sum_ns += static_cast<double>(time.count());
  const double unit_ns = static_cast<double>(std::max<std::int64_t>(1, unit.time.count()));
  return std::max(1.0, std::round(sum_ns / static_cast<double>(timed.by_rank.size()) / unit_ns));
}

}  // namespace

StandIn stand_in(const schedule::Program& program, const Cluster& cluster) {
  StandIn result{.program = program};
  result.program.bucket_call.reset();
  for (schedule::Op& op : result.program.ops) {
    const auto* timed = std::get_if<schedule::TimedWork>(&op.work);
    if (timed == nullptr) continue;
    if (!cluster.unit_kernel) {
      throw InputError("op " + op.name + " is known only by its time, and cluster " + cluster.name +
                       " has no unit_kernel to stand in for it; run `dovetail calibrate` here");
    }
    const UnitKernel& unit = *cluster.unit_kernel;
    const double repetitions = repetitions_of(unit, *timed);
    schedule::GemmWork work = unit.gemm;
    op.work = work;
    op.dtype = unit.dtype;
    if (repetitions > kMostTraffic / static_cast<double>(op.bytes().count())) {
      throw InputError("op " + op.name +
                       " stands for more repetitions of the unit_kernel of cluster " +
                       cluster.name + " than can be run");
    }
    work.count *= std::llround(repetitions);
    op.work = work;
    op.issue.reset();
    ++result.replaced;
  }
  return result;
}

}  // namespace dovetail::models

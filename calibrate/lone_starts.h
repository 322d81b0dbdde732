// How a collective fares that starts alone beside ops: how long it waits for its thread blocks beside a product, and how much
// slower it then moves, by the class of the ops.
//
// A queue (contention.h) keeps the multiprocessors that it has; a bucket of a training step mostly comes alone. So here the
// workload's forward and backward run with one collective at a time, each launched behind an op, with pauses of a few of its
// own lengths between them. Those of one class are judged that had ops of that class beside them alone:
//
//   small   almost nothing travels. What it takes longer than alone is the wait
//   large   some sixtieth of the step: what it takes longer than alone, less the wait, is the slow-down
//
//   alone     |##|                    4 us
//   small     |......##|              the wait: 120 us
//   large     |......##########|      (300 - 120) us against 80 us alone: x2.25
//
// A collective counts on the rank that came last to it, which waits for nobody. Medians over all that started; a wait is never
// below 0, a slow-down never below 1, and a wait within the spread of what the small one takes alone is none. On processors only
// the wait is measured.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "calibrate/lab.h"
#include "models/costs/costs.h"
#include "schedule/program.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>

namespace dovetail::calibrate {

// An op of one rank.
struct ClassedOp {
  std::int64_t start_ns = 0, end_ns = 0;
  models::KernelClass kernel = models::KernelClass::Other;
};
// The class of the ops beside a collective, if nine tenths of it had such beside them. REQUIRES: ops by time.
std::optional<models::KernelClass> class_beside(std::span<const ClassedOp> ops,
                                                const exec::Timing& collective);

struct LoneStarts {
  Duration start_delay{};                                      // beside products
  std::optional<double> beside_gemm = {}, beside_memory = {};  // slow-downs of a large collective
};
// `mine`: of each op of the workload that computes, how long it takes alone on this rank. `large`: bytes of which a queue is
// made; the same on all ranks.
LoneStarts measure_lone_starts(const Lab& lab, const schedule::Program& workload,
                               const std::map<OpId, double>& mine, Bytes large);

}  // namespace dovetail::calibrate

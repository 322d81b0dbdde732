// How much computing and communicating slow each other down.
//
// The workload's forward and backward run beside a queue of collectives that outlasts them, step after step; before
// and after that the same steps run alone, so that a drift of the machine shows up as little as may be. Compared are,
// op by op, the times beside the queue with the medians alone; and the collectives' times beside the ops with their
// time in a queue. Only ops that ran wholly beside the queue count, and only collectives between the first and the last
// of them. Of products and of ops that stream through memory a device's slow-down is taken apart, too, where enough of them ran so.
//
// A queue keeps the multiprocessors that it has; what one meets that starts alone is measured apart (lone_starts.h).
//
// With large messages this is contention as rates. Where the host computes itself, tiny ones (4 KiB) tell besides how
// much processor time one collective takes, whatever its size: the extra compute time per collective. The processor
// time of the thread that communicates explains only part of it: interrupts, timers and the receive path are charged
// to the compute thread.
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
#include <vector>

namespace dovetail::calibrate {

// A step's ops and collectives, as one rank saw them.
struct Overlap {
  std::vector<exec::Timing> ops;
  std::vector<exec::Timing> collectives;
};

// Sums over the steps of one rank, of what ran beside the other kind.
struct Beside {
  double op_ns = 0, op_alone_ns = 0, collective_ns = 0;
  std::int64_t ops = 0, collectives = 0;
  struct OfClass {
    double op_ns = 0, alone_ns = 0;
    std::int64_t ops = 0;
    // Never below 1; nothing where too few ran.
    [[nodiscard]] std::optional<double> slowdown() const;
  };
  OfClass gemm = {}, memory = {};
  // `kernels`: of commands whose class is known.
  void add(const Overlap& step, const std::map<CommandId, double>& alone_ns,
           const std::map<CommandId, models::KernelClass>& kernels = {});
  // `lone`: of a collective, in a queue. Factors may be below 1: noise. Without any that ran side by side, nothing
  // slowed down.
  [[nodiscard]] models::Contention contention(Duration lone) const;
};

struct MeasuredContention {
  models::Contention contention;  // the mean over the ranks; none below 1 or 0
  std::int64_t ops = 0;           // that ran beside collectives, of all ranks
  std::int64_t collectives = 0;   // that ran beside ops
  double transfer_cpu_share =
      0;  // processor time of the thread that communicates / time of its queue, at most
};
// REQUIRES: the workload has ops before the optimizer's.
MeasuredContention measure_contention(const Lab& lab, const schedule::Program& workload);

}  // namespace dovetail::calibrate

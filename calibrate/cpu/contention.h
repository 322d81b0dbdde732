// How much computing and communicating slow each other down.
//
// The plan's own backward ops run step after step while the communication thread works through a
// queue of collectives that lasts longer. Compared are, op by op, the medians with and without that
// queue (steps without it: a second of them before and after, four to ten each time), and the
// collectives' times with and without the computing. With large messages this is the
// contention as rates; with tiny ones (4 KiB) the extra compute time per collective is the
// processor time that one collective takes, whatever its size.
//
// The processor time of the communication thread alone explains only part of it: interrupts, timers
// and the receive path are charged to the compute thread.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "calibrate/cpu/rig.h"
#include "exec/backend.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::calibrate {

struct ContentionOptions {
  Bytes bytes = mib(4);                                     // of each collective
  Duration compute_time = std::chrono::milliseconds(1500);  // to compute beside the queue, about
};

struct RankContention {
  double compute_slowdown = 1;     // below 1 means noise
  double collective_slowdown = 1;  // of collectives that ran wholly beside computing
  Duration cpu_per_collective{};   // extra compute time / collectives
  double comm_thread_share = 0;    // processor time of the thread / time of its queue
  std::int64_t collectives = 0;    // that ran wholly beside computing
};

// One rank's timings: its ops alone and beside the queue, the queue, and one collective alone.
struct Beside {
  std::span<const exec::Timing> alone;
  std::span<const exec::Timing> ops;
  std::span<const exec::Timing> queue;
  Duration lone_collective{};
};
// All but comm_thread_share. Only ops that ran wholly beside the queue count, and only collectives
// between the first and the last of them; without any, nothing slowed down.
RankContention compare(const Beside& timings);

// By rank. REQUIRES: the plan has backward ops.
std::vector<RankContention> measure_contention(Rig& rig, const schedule::ScheduledProgram& plan,
                                               const ContentionOptions& options = {});

}  // namespace dovetail::calibrate

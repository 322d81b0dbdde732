// The plans that a calibration executes.
//
// All of them begin with an op that keeps the device busy while the host enqueues `count` transfers, at up
// to 20 us each, on one communication stream. Gradients travel in buckets; whatever else travels is an op of the Program
// that works on memory of its own.
//
//   transfer_plan   s0 begin  s1 all-reduce x count                       s0 end
//   halves_plan     s0 begin  s1 reduce-scatter x count, all-gather x count  s0 end
//   messages_plan   s0 begin  s1 send-recv (or all-to-all, broadcast) x count
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <span>

namespace dovetail::calibrate {

// Groups of `ranks` that meet side by side, each rank in one of them: ranks in a row (0 1, 2 3), or
// those that are equally far apart (0 2, 1 3).
enum class Spacing { InARow, Apart };
struct ProbeGroup {
  std::int64_t ranks = 0;  // 0: one group of all
  Spacing spacing = Spacing::InARow;
};

struct TransferProbe {
  std::int64_t ranks = 1;
  Bytes bytes;
  std::int64_t count = 1;
  std::int32_t max_ctas = 0;
  schedule::BucketMode mode = schedule::BucketMode::View;
  schedule::ScaleAt scale = schedule::ScaleAt::Collective;
  ProbeGroup group = {};
  Bytes head_start = mib(1024);
};
// REQUIRES (of all): the group's ranks divide those of the plan; of pairs one rank may be left over.
schedule::ScheduledProgram transfer_plan(const TransferProbe& probe);
// Of a size that is rounded up to whole shards: first all reduce-scatters, then all all-gathers.
schedule::ScheduledProgram halves_plan(const TransferProbe& probe);
// Rounded up to whole parts. A send-recv is one of the first rank of each pair to the second.
// Of buckets' collectives only an all-gather.
schedule::ScheduledProgram messages_plan(schedule::Collective kind, const TransferProbe& probe);

// The groups of a probe as a process group of a Program.
schedule::ProcessGroup process_group(GroupId id, std::int64_t world, const ProbeGroup& group);

// `count` ops of this work, one after the other, and nothing else.
schedule::ScheduledProgram chain_plan(std::int64_t ranks, std::int64_t count,
                                      const schedule::Work& work);
inline schedule::MemoryWork moving(Bytes bytes) { return {.bytes = bytes, .flop = Flop(0)}; }

// The same transfers, launched before the first op of the workload's forward and backward.
schedule::ScheduledProgram contention_plan(const schedule::Program& workload,
                                           const TransferProbe& probe);

// The same, each launched behind one of the workload's ops. REQUIRES: `behind` are such ops in order, as many as transfers.
schedule::ScheduledProgram lone_plan(const schedule::Program& workload, const TransferProbe& probe,
                                     std::span<const OpId> behind);

}  // namespace dovetail::calibrate

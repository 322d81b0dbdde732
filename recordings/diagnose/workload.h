// A traced job as a workload: gradients with ready times, the work of forward, backward and optimizer, what the host
// does, and what its all-reduces cost. The file is a measured profile (models/workloads/profile.h); every command that takes
// --workload reads it, and what a diagnosis says about changes is computed on it (what_if.h): one answer to one trace.
//
//   TracedWorkload workload = workload_of(job, 0, replay_rank(job.ranks[0]), {});
//   workload.profile, workload.notes
//   workload_json(workload)
//
// How. The recorded graph is played with buckets that take no time, neither on the network nor on the host nor in
// copies, and each step is cut into parts: forward, backward up to each gradient, the rest of backward, the updates. A part is to the rest of the step what an op is to the simulator: with the device
// free at S and the host at the part's start at H it ends at
//
//     E = max(S + G, H + T)        G: the longest chain of work inside it; T: the longest from a launch inside it
//
// (a chain of maxima and sums, so two numbers say all). As an op it takes G and may begin T - G after H. Medians over
// the steps of when parts end and may begin. A host that waits for the GPU somewhere
// (.item(), a blocking copy) can be taken in two ways, see HostTaken.
//
// Backward begins where forward's work ends on the GPU. What lies between steps belongs to the updates. Of a gradient that DDP copies into its bucket the ready time is the
// start of that copy. The table of all-reduces holds, for each size in the trace, its shortest time over steps and
// ranks, and never more than a larger one's: all are upper bounds. Other sizes are estimates with a range
// (models/rates/collective_estimate.h).
//
// Leaves out: contention (in the recorded durations already); collectives other than DDP's keep their recorded place and
// time, inside the parts that wait for them; what a stream beside compute does while nothing waits for it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "models/workloads/profile.h"
#include "recordings/diagnose/recorded_graph.h"
#include "recordings/diagnose/replay.h"
#include "recordings/diagnose/traced.h"

#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace dovetail::diagnose {

// One rank's steps, replayed as they were.
struct RankReplay {
  RecordedGraph recorded;
  step::Timeline timeline;
  ReplayError error;
  std::vector<TracedBuckets> buckets;  // by step
};
RankReplay replay_rank(const RankTrace& rank);

// Whether the workload may be made of a step: of micro-steps that all reduce, those that update as well.
bool stands_for_all(const RankTimeline& line, std::size_t step);
// What such a step takes: the median.
Duration usual_step(const RankTimeline& line);

// The shortest time of an all-reduce over all ranks of the job, for each size seen, rising and never falling.
std::vector<std::pair<Bytes, Duration>> all_reduce_times(const JobTrace& job);

// How long collectives that are no bucket's take: as recorded, with waiting for late ranks; without that; that waiting only.
enum class OtherCollectives { AsRecorded, OwnTime, WaitingOnly };

// RunsAhead: the host issues each part when it did in the quiet step, its waits being part of its time, and what the
// device is late for is made up while the GPU would wait for the host anyway. Follows: nothing is made up, the time that
// the GPU waits for the host counts as compute. The first is right for a host that never waits for the GPU; one that does
// lies between them.
enum class HostTaken { RunsAhead, Follows };

struct TracedWorkload {
  models::Profile profile;        // with what was recorded
  std::vector<std::size_t> ends;  // of the recorded buckets, exclusive, in gradient-ready order
  imports::Recorder recorder = imports::Recorder::Kineto;
  bool sizes_known = true;         // of every gradient
  bool host_waits = false;         // for the GPU, somewhere in the trace
  std::size_t steps = 0;           // of whose times the medians are
  std::vector<std::string> notes;  // what was assumed or could not be known
};

struct WorkloadOptions {
  std::string name = "step";
  OtherCollectives others = OtherCollectives::AsRecorded;
  HostTaken host = HostTaken::RunsAhead;
};

// Whether a trace is of PyTorch's FSDP (1 or 2), by its own annotations.
bool is_sharded(const Recording& trace);

// The workload of one rank of the job, or in one sentence why none can be made: FSDP's groups, no DDP bucket, no backward on the GPU, a
// replay that is not that of the trace.
using Extracted = std::variant<TracedWorkload, std::string>;
Extracted workload_of(const JobTrace& job, std::size_t rank, const RankReplay& replay,
                      const WorkloadOptions& options);

// The file.
std::string workload_json(const TracedWorkload& workload);

}  // namespace dovetail::diagnose

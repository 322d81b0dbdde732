// What a job's step takes at least, and about, in microseconds of processor time: for choosing which of many jobs to play.
//
//   JobSketcher sketcher(job, cluster);               // jobs that differ from it in layout, batch, sharding, recomputation
//   JobSketch one = sketcher.sketch(job);
//   one.least;     // no play of the job is shorter
//   one.about;     // what stands here may be off by what collectives and compute cost each other
//
// Times of blocks (the embedding, a layer of each kind, the head) come from the ops that a Program has of them, each priced once as a play
// prices it; a step is put together from their sums:
//
//   least   for each role of the pipeline, from the first op of role 0 to its last one:
//             the forwards before the role's first, all that the role computes and waits for in line, the backwards behind its last
//           (where the order divides backward, its last may be weights, which nobody waits for: the third part is nothing);
//           and never less than all gathers, or all reductions, of one rank in a row (Zero 3)
//   about   the order of the pipeline played with a node for each pass of a micro-batch through a virtual stage, and behind it what
//           reductions and gathers take that finds no compute to run beside
//
// Left out of both: what collectives and compute slow each other down; left out of `least`: sends' latencies, copies, gaps between
// launches, the host.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/units.h"
#include "models/clusters/cluster.h"
#include "models/networks/job.h"
#include "models/networks/memory.h"

namespace dovetail::predict {

struct JobSketch {
  Duration least{}, about{};
};

class JobSketcher {
 public:
  JobSketcher(const jobs::Job& like, const models::Cluster& cluster);
  ~JobSketcher();
  JobSketcher(const JobSketcher&) = delete;
  JobSketcher& operator=(const JobSketcher&) = delete;

  // From any thread. Throws InputError where an op or a collective has no time. REQUIRES: complete(job); it differs from `like` in
  // Layout, Batch, Job::recompute and behind it, Zero and behind it, async_tp, and Job::as alone.
  [[nodiscard]] JobSketch sketch(const jobs::Job& job);
  // jobs::memory_of(job, rules), likewise.
  [[nodiscard]] std::vector<jobs::StageMemory> memory_of(const jobs::Job& job,
                                                         const jobs::MemoryRules& rules);

 private:
  struct Blocks;
  struct Order;
  using Key = std::array<std::int64_t, 16>;
  [[nodiscard]] std::shared_ptr<const Blocks> blocks_of(const jobs::Job& job, jobs::Recompute again);
  [[nodiscard]] std::shared_ptr<const jobs::BlockWeights> weights_of(const jobs::Job& job);
  [[nodiscard]] std::shared_ptr<const Order> order_of(const jobs::Job& job);

  const models::Cluster& cluster_;
  std::vector<std::int32_t> kind_of_layer_;  // index into Blocks::layers
  std::vector<std::int64_t> first_of_kind_;  // the first layer of each kind
  std::mutex looking_;
  std::map<Key, std::shared_ptr<const Blocks>> blocks_;
  std::map<std::array<std::int64_t, 3>, std::shared_ptr<const jobs::BlockWeights>> weights_;
  std::map<std::array<std::int64_t, 4>, std::shared_ptr<const Order>> orders_;
};

}  // namespace dovetail::predict

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
//           and never less than all gathers, or all reductions, of one rank in a row (Zero 3), or than its host issues ops
//   about   the order of the pipeline played with a node for each pass of a micro-batch through a virtual stage, and behind it what
//           reductions and gathers take that finds no compute to run beside
//
// Compute beside a collective loses what that holds of multiprocessors, in both. Left out of both: memory and links that several want;
// left out of `least`: sends, gaps between launches, updates, reductions of whole buckets.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
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
  // Keeps a reference to the cluster.
  JobSketcher(const jobs::Job& like, const models::Cluster& cluster);
  ~JobSketcher();
  JobSketcher(const JobSketcher&) = delete;
  JobSketcher& operator=(const JobSketcher&) = delete;

  // From any thread. Throws InputError where an op or a collective has no time. REQUIRES, here and below: complete(job); it differs from
  // `like` in Layout (but for its world), Batch, Job::recompute and recompute_layers, zero, reshard, prefetch, overlaps, bucket_bytes,
  // async_tp and as alone.
  [[nodiscard]] JobSketch sketch(const jobs::Job& job);
  // sketch(job).least, in a part of its time.
  [[nodiscard]] Duration least(const jobs::Job& job);
  // Least of all jobs that differ from this one in pipeline order, chunks, layers of stages, recomputation and async_tp alone: what a
  // role in the mean computes.
  [[nodiscard]] Duration least_of_any_order(const jobs::Job& job);
  // jobs::memory_of(job).
  [[nodiscard]] std::vector<jobs::StageMemory> memory_of(const jobs::Job& job);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace dovetail::predict

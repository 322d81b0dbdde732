// The jobs that the same ranks could run in place of one: a grid of degrees, sharding, micro-batches, pipeline orders and recomputation.
//
//   JobGrid grid = JobGrid::beside(job);          // with the degrees of the job
//   JobGrid grid = JobGrid::over(job, 64, 8);     // of the model over 64 ranks, 8 on a node
//   for (const GridPoint& point : grid.points())
//     if (const auto job = grid.job_at(point))
//       for (const GridWay& way : grid.ways(*job)) grid.with(*job, way);
//
//   points   tp: powers of two up to a node; cp, pp: powers of two; what is left as replicas (zero=0, 1, 2), as shards, or as
//            shards of every power of two with replicas of them; ep: powers of two that divide experts and ranks, with etp 1 or tp;
//            mbs: powers of two up to 128 and three times them. Beside a job: its degrees, but for ep and etp
//   ways     1f1b, interleaved with as many chunks as divide layers, zero-bubble, zbv; layers evenly, or fewer on the last stage;
//            async_tp; recompute: nothing, by op, layers whole
//
// What the job says beside these is kept. Each point and way has what the job itself has there, too.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/networks/job.h"

namespace dovetail::jobs {

// What of a job's layout, sharding and batch a point has; in few bytes, there are many.
struct GridPoint {
  std::int32_t tp = 1, cp = 1, pp = 1, dp = 1, dp_shard = 1, ep = 1, etp = 1, micro = 1;
  std::int32_t prefetch = 1;
  Zero zero = Zero::Nothing;
  bool reshard = true, overlap_gradients = true, overlap_parameters = true;
  std::int8_t changes = 0;  // parts in which it differs from the job
};

struct GridWay {
  schedule::PipelineKind order = schedule::PipelineKind::OneFOneB;
  std::int16_t vp = 1;
  enum class Layers : std::uint8_t {
    Even,
    Fewer,
    Own
  } layers = Layers::Even;  // Fewer: on the last stage
  bool async_tp = false;
  Recompute recompute = Recompute::None;
  std::int16_t recompute_layers = 0;
  std::int8_t changes = 0;
};

class JobGrid {
 public:
  // REQUIRES, here and below: complete(job).
  static JobGrid beside(const Job& job);
  static JobGrid over(const Job& job, std::int64_t world, std::int64_t node);

  [[nodiscard]] const Job& job() const { return job_; }
  // Whether the job is one of them.
  [[nodiscard]] bool has_layout() const { return has_layout_; }
  [[nodiscard]] const std::vector<GridPoint>& points() const { return points_; }
  // With the plainest of the ways: 1f1b, nothing computed again. Nothing where the job would not hold together.
  [[nodiscard]] std::optional<Job> job_at(const GridPoint& point) const;
  // Those with which it holds together, each once.
  [[nodiscard]] std::vector<GridWay> ways(const Job& at_point) const;
  [[nodiscard]] Job with(Job at_point, const GridWay& way) const;

 private:
  explicit JobGrid(const Job& job);
  // Sharding, experts and micro-batches of these degrees; `divides`: with Zero::Parameters, else without.
  void add_points(GridPoint degrees, bool divides);

  Job job_;
  double head_in_layers_ = 0;  // its FLOP, in those of a layer
  bool has_layout_ = false;
  std::vector<GridPoint> points_;
};

}  // namespace dovetail::jobs

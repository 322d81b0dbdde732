// Changes to a replay: the same step with another network, another host, other buckets.
//
//   ReplayModel other = with_buckets(rank, model, buckets, ends, cost);
//   Duration gain = total(step_times(model)) - total(step_times(other));
//
// Everything that is not changed stays as recorded: pauses of the host, durations of kernels, unexplained
// delays. So these are answers for this job on this machine, near what was recorded.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "diagnose/replay.h"
#include "diagnose/traced.h"
#include "frameworks/framework.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace dovetail::diagnose {

using frameworks::InFlight;

// By step, as ReplayedStep::step.
std::vector<Duration> step_times(const ReplayModel& model);

// Collectives take no time.
ReplayModel without_communication(ReplayModel model);
// Collectives take their own time only: nobody is late.
ReplayModel without_waiting(const RankTrace& rank, ReplayModel model);
// Calls take no time and the host never pauses; it still waits where it waited for the GPU.
ReplayModel without_host(ReplayModel model);

// What an all-reduce takes, from the few sizes that a trace has seen. Between them: straight lines over
// the smallest non-decreasing curve; above: in proportion to the largest. Below the smallest nothing is
// known: `Pessimist` holds its time, `Optimist` goes down in proportion to the bytes, to 20 us.
class AllReduceCost {
 public:
  enum class Below { Pessimist, Optimist };
  // REQUIRES: at least one point, sizes rising.
  AllReduceCost(const std::vector<std::pair<Bytes, Duration>>& points, Below below);
  [[nodiscard]] Duration time(Bytes bytes) const;

 private:
  std::vector<std::pair<Bytes, Duration>> points_;
  Below below_;
};

// Which of the host's calls that launched a bucket in the trace stands for one: the lower quartile of
// their times, the median or the upper quartile.
enum class BucketCall : std::uint8_t { Quick, Usual, Slow };

struct RegroupOptions {
  InFlight in_flight = InFlight::Any;
  BucketCall bucket_call = BucketCall::Usual;
};

// DDP's gradients in other buckets: consecutive ones with exclusive ends, of every step that has as many
// gradients as the last end says; other steps keep theirs. Each bucket costs the host what one cost in
// the trace, starts behind its last gradient, and is waited for where those of its gradients were.
// `buckets` by step.
ReplayModel with_buckets(const RankTrace& rank, const ReplayModel& model,
                         const std::vector<TracedBuckets>& buckets,
                         const std::vector<std::size_t>& ends, const AllReduceCost& cost,
                         RegroupOptions options = {});

// The grouping whose last collective ends first, for ready times and costs as given, each bucket costing
// `per_bucket` more (the host's call): O(n^2).
std::vector<std::size_t> best_bucket_ends(const std::vector<Duration>& ready,
                                          const std::vector<Bytes>& gradients,
                                          const AllReduceCost& cost, Duration per_bucket = {});

}  // namespace dovetail::diagnose

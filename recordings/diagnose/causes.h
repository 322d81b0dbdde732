// Why communication stood exposed: each moment of it gets one cause.
//
// A moment is exposed when some collective runs on the rank and nothing else does. What happens next
// decides, read off the replay (what started each piece of GPU work):
//   host            the next piece of other work started late because its launch came late: the GPU would
//                   have stood still without the collective too. Where the host itself stood in a call that waited for
//                   a collective, it is late from the beginning of that call on because of the collective. That holds
//                   for a collective that ends its step, too: what follows it is work of the next step, or nothing
//   straggler       it waits for a collective that is itself waiting for a slower rank: the first part of
//                   the collective's duration, all but what it takes by itself (rank_set.h)
//   bubble          the same, of the messages of a pipeline: it waits for another stage
//   launch order    the collective in flight is not the one that is waited for: that one queues behind it
//   serialised      backward, or the host before it, waits for the reduction of a bucket that nothing reads before the
//                   update (serial_waits.h)
//   no prefetch     compute waits for a gather that was started when the compute before it was done: what one layer
//                   earlier would have sent before
//   closed late     the data moves, but part of it was ready earlier and had to wait for the last gradient
//                   of its bucket: what one-gradient buckets, at no extra cost, would have sent before
//   link            the data moves as early as it could: only a faster link or fewer bytes would help
// Where a trace has one rank, "straggler" and "link" are told apart by the shortest duration over the
// steps, an upper bound of link.
//
// Contention is no exposed time. It is compute that a collective beside it slowed down: kernels at the
// same place of the step, with the same name and grid, in steps where they ran alone.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/diagnose/recorded_graph.h"
#include "recordings/diagnose/traced.h"

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

namespace dovetail::diagnose {

enum class Cause : std::uint8_t {
  Host,
  Straggler,
  Bubble,
  LaunchOrder,
  ClosedLate,
  Serialised,
  NoPrefetch,
  Link
};
inline constexpr std::size_t kCauses = 8;
std::string_view to_string(Cause cause);

// By Cause.
using ByCause = std::array<Duration, kCauses>;

// One collective's share of the exposed time of its step.
struct ExposedCollective {
  std::int32_t collective = kNone;  // in RankTimeline::collectives
  std::int32_t bucket = kNone;      // of its step, where it is one of DDP's
  Duration exposed{};
  ByCause by{};
};

struct StepCauses {
  Duration exposed{};
  ByCause by{};
  // Idle time of the GPU that ends with work whose launch came late, up to the first work of the next step; of a step that
  // none follows with what it takes beyond its own work.
  Duration gpu_waits_for_host{};
  std::vector<ExposedCollective> collectives;  // by start; those with exposed time
};

// `timeline` is of the unchanged graph; `buckets` by step.
std::vector<StepCauses> causes_of(const RankTrace& rank, const RecordedGraph& recorded,
                                  const step::Timeline& timeline,
                                  const std::vector<TracedBuckets>& buckets);

// What compute lost beside collectives.
struct Contention {
  std::size_t kernels = 0;     // that could be compared
  Duration beside{}, alone{};  // sums of their durations
  Duration lost{};             // estimate a step: all compute beside collectives, at that ratio
  // Time-weighted; 1 where nothing could be compared.
  [[nodiscard]] double factor() const;
};
Contention contention_of(const RankTrace& rank);

}  // namespace dovetail::diagnose

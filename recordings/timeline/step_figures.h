// The figures of one step of one rank, as interval arithmetic over its GPU work.
//
// GPU work = kernels, copies, memsets. Communication = collectives. Of the work that belongs to a step:
//   (work that is aside, side_work.h, is in no figure but the number of works)
//   span     first start to last end
//   comp     length of the union of all other work over all streams; comm: of the collectives
//   overlap  length of the intersection; exposed = comm - overlap; idle = span - union of both
//
// Other tools count differently: HTA leaves copies and memsets out of comp, and the last step out of
// its sum. Exposed time is not lost time: the host may have been the reason that nothing computed
// (causes.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/timeline/rank_timeline.h"
#include "traces/intervals.h"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace dovetail::imports {

struct StepFigures {
  Duration cpu_step{};  // of the annotation on the host
  Duration span{}, comp{}, comm{}, overlap{}, exposed{}, idle{};
  std::size_t gpu_works = 0;
  friend bool operator==(const StepFigures&, const StepFigures&) = default;
};

// What a step's time is taken from.
//
// A step is a period: from its first GPU work on the compute stream to that of the next one. So work that outlives its
// step (asynchronous copies, a GPU behind its host, what ROCm records too long) neither lengthens it nor shortens the
// next. Of the last step, and of one before a gap, the next one's begin is not known: it takes what it took on
// the host (which may have waited for older steps), at most from the end of the step before to its own on the compute
// stream, and at least its own span there. A whole trace that counts as one step takes from its first GPU work to the end
// of its last. No time is below zero.
struct StepBounds {
  Instant begin, end;  // on the host
  std::optional<Instant> first,
      last;  // first start and last end on the compute stream; of all work, where that has none
  bool is_before_gap = false;
};
std::vector<Duration> periods(std::span<const StepBounds> steps);

// When a piece of work ran, in another order of things than the recorded one (replay.h).
struct WorkTime {
  Instant start, end;
  bool communicates = false;
  bool is_aside = false;
};

StepFigures figures_of(std::span<const WorkTime> works);
StepFigures figures_of(const RankTimeline& line, const TracedStep& step);

// The moments in which some collective ran and nothing else did.
std::vector<traces::Interval> exposed_intervals(std::span<const WorkTime> works);

// The work of a step, as recorded.
std::vector<WorkTime> work_times(const RankTimeline& line, const TracedStep& step);

}  // namespace dovetail::imports

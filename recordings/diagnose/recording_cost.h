// What the profiler itself costs the host, as a range, and what steps would take without it.
//
//   RecordingCost cost = recording_cost(rank, busy);   1479 operators a step at 1.4 to 4.2 us, 368 calls at 1 to 4 us
//   cost.a_step().low, .high                         2.4 to 7.7 ms of the host's time
//   steps_without_recording(rank, replay, cost.low)  the recorded steps, replayed without them
//
// A trace does not hold it, but the leanest pairs of it do nearly: where an operator does nothing but call another one (aten::t calls
// aten::transpose), its own time is the record of that and little else. With own = the tenth of those times that is shortest,
//   an operator or annotation   own to 3 own
//   a call of the runtime       1 to 4 us
// Source of the first: scripts/campaigns/recording_cost.py, PyTorch 2.11 on a CPU (loops of small operators, training steps, a
// transformer's layer, convolutions; with and without shapes): a record cost 1.5 to 2.7 times own; the range begins at once, as on a
// slower host own holds more of the operator's. Of the second, which only a GPU shows: 4 us are what pytorch/pytorch#82793 names for an operator with
// its CUDA activity; it is not measured here. Where times are whole microseconds, or pairs are few, an operator counts 0.3 to 4 us.
// Range: PyTorch's profiler with CPU activity. Leaves out: stacks of Python (with_stack), which slow down what no operator runs.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "recordings/diagnose/traced.h"

#include <vector>

namespace dovetail::diagnose {

struct RankReplay;

struct RecordingCost {
  struct Range {
    Duration low{}, high{};
  };
  double operators = 0, calls = 0;  // recorded a step, by threads that launch work
  Range of_operator, of_call;       // each
  Duration most{};                  // a step: what the host does but wait

  [[nodiscard]] Range a_step() const;
};

// `most`: what the host does a step but wait (host_time.h).
RecordingCost recording_cost(const RankTrace& rank, Duration most);

// The steps of the recorded graph, had each record taken so much less of the host's pauses and calls: of a pause no more than it is.
struct RecordTimes {
  Duration of_operator{}, of_call{};
};
std::vector<Duration> steps_without_recording(const RankTrace& rank, const RankReplay& replay,
                                              RecordTimes each);

}  // namespace dovetail::diagnose

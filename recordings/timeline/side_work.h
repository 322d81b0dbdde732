// Which work of other streams goes on beside the step and is nobody's: copies of weights to the host for a checkpoint, a loader's
// augmentations. A collective is not hidden by it: had it ended earlier, the step would have gone on earlier all the same.
//
// Work of another stream than the compute stream is the step's where something of the step stood still for it:
//   stall   a piece of work of the step began within 15 us of its end, and its stream had been empty and its launch long done
//   host    the compute stream stood still or had run dry, and a thread that launches the step's work stood in a call that waited
//           for it
//   order   the next piece of work on its stream is the step's and began right behind it
// All else on other streams is aside, whatever it is: kernels, copies, memsets.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/recording.h"
#include "recordings/timeline/rank_timeline.h"

namespace dovetail::imports {

// Sets is_aside of works, and of the calls of threads that launch nothing else. REQUIRES: compute_stream is known; works and calls by
// start. Nothing is aside where nothing computes, nothing is sent, or on a
// CPU.
void find_side_work(const Recording& trace, RankTimeline& line);

// "beside the step: 15.9 ms of Memcpy DtoH (Device -> Pinned) on stream 33 ...", one line for each stream with more than a
// hundredth of the steps' time. REQUIRES: steps are numbered.
std::vector<std::string> side_work_in_words(const Recording& trace, const RankTimeline& line);

}  // namespace dovetail::imports

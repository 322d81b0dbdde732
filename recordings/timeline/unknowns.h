// What a timeline does not know of its rank, in words, and the signs by which an absence is told from a gap.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "recordings/recording.h"
#include "recordings/timeline/rank_timeline.h"

#include <string>

namespace dovetail::imports {

// What a recording without GPU work has of it all the same, into line.unrecognised.
void find_signs_of_a_device(const Recording& trace, RankTimeline& line);
// How such a recording comes to hold the sizes of collectives, behind "the size of ...": ": record with record_shapes=True".
std::string way_to_sizes(const Recording& trace);
// Into line.notes, line.unknowns and line.unrecognised. REQUIRES: all else of the line is there.
void say_what_is_unknown(const Recording& trace, RankTimeline& line);

}  // namespace dovetail::imports

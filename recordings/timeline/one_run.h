// Whether traces that say they are of one job are of one run of it: ranks of two runs have no step in common, and what one waited
// for is not what the other did.
//
// Refused, with what differs:
//   clocks   traces begin more than an hour apart, both by the time of day (others count from when a machine started)
//   steps    all number their steps, and two ranks have none in common
//   sizes    of a group that both are in: most of what one rank reduces, gathers or scatters in a step has other sizes on the other
//            (all ranks of a group send the same, but for all-to-alls and messages)
//   ends     with the clocks put together, the ends of the same collectives of a GPU's ranks lie apart by half a step, in the middle
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace dovetail::imports {

struct JobTrace;

// Throws InputError. REQUIRES: ranks are joined; steps are those of each file.
void require_one_run(const JobTrace& job);

// The last of the four. REQUIRES: collectives are matched.
void require_one_time(const JobTrace& job);

}  // namespace dovetail::imports

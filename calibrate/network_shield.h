// How long the network goes on without a rank: what it has handed over to the system is still sent while
// its core is away.
//
// In the middle of a long all-reduce rank 0 takes its own core away from the thread that communicates for
// 60 ms, at real-time priority. What the all-reduce does not lose of that is the shield. It depends on what
// was just handed over (20 to 28 ms on one link, by the moment), so it is the mean over moments. Attempts in
// which any core was away besides are made again: preemptions that follow each other find buffers that are not
// full yet. Where too few are left, all count, and what the reference load saw is accounted for.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "calibrate/lab.h"

#include <span>

namespace dovetail::calibrate {

// 0 where no message lasts long enough, or where the system refuses real-time priority. REQUIRES: the lab has a load.
Duration measure_shield(const Lab& lab);

// The shield with which preemptions so long delay a collective by `extra`: the sum of what each exceeds it by.
// At most the longest preemption; 0 where they cannot explain that much.
Duration shield_explaining(Duration extra, std::span<const Duration> away);

}  // namespace dovetail::calibrate

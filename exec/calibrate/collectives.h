// How long collectives take by size, alone and in a busy queue.
//
// Isolated: all ranks meet, pause (so that a shaped link has its credit back and every thread
// sleeps), and issue one. Back to back: several of one size are queued before the first starts.
// One collective lasts from its last arrival to its last completion over the ranks, on their shared
// clock; a queue likewise, divided by its length. Sizes grow until the time budget is used up.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/calibrate/rig.h"
#include "exec/clock.h"
#include "schedule/schedule.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace dovetail::exec::calibrate {

struct CollectiveOptions {
  schedule::Collective kind = schedule::Collective::AllReduce;
  Bytes smallest = Bytes(4);
  Bytes largest = mib(64);
  std::int64_t growth = 2;  // from one size to the next
  Duration budget = std::chrono::seconds(20);
  Duration pause = std::chrono::milliseconds(5);
  std::function<std::int64_t()> now = now_ns;  // the clock of the budget
};

struct CollectiveTimes {
  Bytes bytes;  // of the whole buffer; for scatter and gather rounded up to whole shards
  Spread isolated;
  Duration back_to_back{};
};

std::vector<CollectiveTimes> measure_collectives(Rig& rig, const CollectiveOptions& options = {});

// The time of one of `count` queued collectives of this size; median over `repetitions`.
Duration measure_queue(Rig& rig, schedule::Collective kind, Bytes bytes, std::int64_t count,
                       std::int64_t repetitions);

}  // namespace dovetail::exec::calibrate

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
#include "calibrate/cpu/rig.h"
#include "exec/clock.h"
#include "schedule/schedule.h"
#include "traces/disturbances.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace dovetail::calibrate {

struct CollectiveOptions {
  schedule::Collective kind = schedule::Collective::AllReduce;
  Bytes smallest = Bytes(4);
  Bytes largest = mib(64);
  std::int64_t growth = 2;  // from one size to the next
  Duration budget = std::chrono::seconds(20);
  Duration pause = std::chrono::milliseconds(5);
  std::function<std::int64_t()> now = exec::now_ns;  // the clock of the budget
};

struct CollectiveTimes {
  Bytes bytes;  // of the whole buffer; for scatter and gather rounded up to whole shards
  Spread isolated;
  Duration back_to_back{};
};

// One kind of transfer over groups of one size.
struct SeriesTimes {
  schedule::Collective kind = schedule::Collective::AllReduce;
  std::int64_t ranks = 1;
  std::int64_t nodes = 1;
  std::vector<CollectiveTimes> times;
};

// One repetition of a queue on all ranks: the last arrival, and the completion of each call on the last rank.
struct Repetition {
  std::int64_t arrived_ns = std::numeric_limits<std::int64_t>::min();
  std::vector<std::int64_t> done_ns;  // not empty
};

// When cores were away meanwhile (traces/disturbances.h): what stopped collectives, by rank, and when they
// ran unlike on a machine that is all there.
struct Preemptions {
  std::int64_t begin_ns = 0;  // of the records
  traces::Disturbances silences;
  traces::CoreRecord restless;
};

// What each call of a repetition met: at best nothing, or preemptions that the network bridged, or silence.
enum class Met { Nothing, Preemptions, Silences };

// How long the queue takes on a machine that is all there: the calls that met no preemption stand for the others.
// Where all of them did, what stopped them is taken off.
struct Sample {
  std::int64_t ns = 0;
  Met met = Met::Nothing;
};
Sample sample_of(const Repetition& repetition, const Preemptions& preemptions);

// The samples that tell how long it takes on a machine that is all there: those that met nothing, where they
// are a third. Else the quickest fifth of those that met no silence, where these are a fifth: a preemption that
// the network bridges still delays what begins or ends in it. Else all of them.
std::vector<std::int64_t> undisturbed(std::span<const Sample> samples);

std::vector<CollectiveTimes> measure_collectives(Rig& rig, const CollectiveOptions& options = {});

// The time of one of `count` queued collectives of this size; median over `repetitions`.
Duration measure_queue(Rig& rig, schedule::Collective kind, Bytes bytes, std::int64_t count,
                       std::int64_t repetitions);

}  // namespace dovetail::calibrate

// How long collectives take on a machine that is all there, from times of one whose cores were away now and then.
//
// A repetition is a queue of collectives on all ranks. Without preemptions it lasts from the last arrival to the last
// completion.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "calibrate/lab.h"
#include "traces/disturbances.h"

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace dovetail::calibrate {

// One repetition of a queue on all ranks: the last arrival, and the completion of each call on the last rank.
struct Repetition {
  std::int64_t arrived_ns = std::numeric_limits<std::int64_t>::min();
  std::vector<std::int64_t> done_ns;  // not empty
};

// When cores were away meanwhile (traces/disturbances.h): what stopped collectives, by rank, and when they
// ran unlike on a machine that is all there.
struct Preemptions {
  std::int64_t begin_ns = 0;  // of the records
  traces::Disturbances all = {};
  traces::Disturbances silences = {};
  traces::CoreRecord restless = {};
};
// Since `begin_ns`, when all ranks met; none where nobody watches the cores. Collective: call it on every rank.
Preemptions preemptions_since(const Lab& lab, std::int64_t begin_ns);

// What of the time from `start_ns` to `end_ns` lies in the record.
Duration within(const traces::CoreRecord& record, std::int64_t begin_ns, std::int64_t start_ns,
                std::int64_t end_ns);

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

}  // namespace dovetail::calibrate

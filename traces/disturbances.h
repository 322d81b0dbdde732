// Disturbances: when the core of a rank was not there, because the host or another program had it.
//
// calibrate/noise/reference_load.h measures them beside every run, models keep them, sim plays them. Times count from
// the beginning of the record, which all ranks of a job begin together.
//
//   rank 0, core 0   ....####......####.......   watched 24, taken twice for 4: share 33 %, burst 4
//
// `slowdown` is what the core lost while it was there: known work took 1 + slowdown times as long as at
// its quickest (a sibling thread of the core, a lower clock). `unseen` is the estimated share of time that
// absences took which were too short to be met: they stay in the times of the ops that they hit.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::traces {

// The core was away from `start` on.
struct Taken {
  Duration start{};
  Duration length{};
  friend bool operator==(const Taken&, const Taken&) = default;
};

struct CoreRecord {
  std::int32_t core = 0;
  Duration watched{};
  std::vector<Taken> taken;  // by start, apart from each other, within `watched`
  double slowdown = 0;
  Duration quickest{};  // of the known work; 0: not known
  double unseen = 0;    // share of the time watched, beside `taken`
  friend bool operator==(const CoreRecord&, const CoreRecord&) = default;
};

// One record per rank, equally long.
using Disturbances = std::vector<CoreRecord>;

// Taken time as a share of the time watched, with what is unseen; 0 where nothing was watched.
double share_taken(const CoreRecord& record);
// The length in which the median nanosecond of the taken time was taken; 0 where nothing was.
Duration typical_burst(const CoreRecord& record);
// What the core was away of the time from `start` to `end`.
Duration taken_within(const CoreRecord& record, Duration start, Duration end);
// What an absence leaves of a collective once buffers are used up: each absence without its first `shield`.
CoreRecord silences(const CoreRecord& record, Duration shield);
// When collectives ran unlike on a machine that is all there: during the absences of any rank, and while what
// had piled up was worked off, as long again but at most 30 ms, in one record. A margin of 0.5 ms, by which the
// ends of an absence may be wrong, lies on both sides.
CoreRecord restless(const Disturbances& all);
// The part of a record from `start` to `end`, which becomes a record of its own.
CoreRecord window_of(const CoreRecord& record, Duration start, Duration end);

}  // namespace dovetail::traces

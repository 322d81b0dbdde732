// Whether devices have room for what a rank holds, and the sentence where they do not, or may not.
//
//   schedule::Room room = room_of(jobs::memory_of(job), capacity);       // of the fullest stage
//   room.fits(); room.low; room.high
//   if (const auto shortage = shortage_of(capacity, program, summary, schedule)) to_string(*shortage)
//
// A job's memory has an interval: public peaks lay between 0.81 and 1.26 times what is predicted of them (5th and 95th
// percentile, 1.01 in the middle), each yardstick with the same weight; `validate public` prints that, and how many rows of each
// yardstick lie in what the others say. What a plan keeps all step long is counted and has none: activations come on top.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "models/networks/memory.h"
#include "schedule/holding.h"
#include "schedule/plan_json.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

namespace dovetail::predict {

// Measured / predicted of peaks of memory.
struct MemoryError {
  double p5 = 1, p50 = 1, p95 = 1;
};
inline constexpr MemoryError kPublicMemory{.p5 = 0.81, .p50 = 1.02, .p95 = 1.26};

// Of all that a rank of a job holds at its worst moment.
schedule::Room room_of(const schedule::Holding& peak, std::optional<Bytes> capacity);
// Of the stage that needs most. REQUIRES: stages is not empty.
schedule::Room room_of(const std::vector<jobs::StageMemory>& stages, std::optional<Bytes> capacity);
// Of what a plan keeps.
schedule::Room room_of_kept(const schedule::Holding& kept, std::optional<Bytes> capacity);

// The most that can be predicted of a peak that fits for certain.
Bytes surely_fits(Bytes capacity);

// What has no room, or may have none. REQUIRES: room.fits() is not Yes.
struct Shortage {
  enum class Of { Job, Plan, PlanWithAdam };
  Of of = Of::Job;
  schedule::Room room;
  bool in_pipeline = false;
  Bytes moments = {};  // what Adam would keep besides, with PlanWithAdam
};
// "this job does not fit: a rank of stage 1 needs 96 GiB (79 to 121 by public peaks): activations ...; a device has 79 GiB".
std::string to_string(const Shortage& shortage);
// "this job does not fit", without the reason.
std::string verdict_of(const Shortage& shortage);

// Of a plan: by what its job holds where it is of one, else by what it keeps. Nothing where there is room.
std::optional<Shortage> shortage_of(std::optional<Bytes> capacity, const schedule::Program& program,
                                    const schedule::PlanSummary& summary,
                                    const schedule::Schedule& schedule);

}  // namespace dovetail::predict

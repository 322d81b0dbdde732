// Holds the errors of public peaks, and puts what is held beside what there is.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/room.h"

#include <cmath>

#include "schedule/resident.h"

namespace dovetail::predict {
namespace {

using schedule::Fits;
using schedule::Holding;
using schedule::Room;

Bytes times(Bytes bytes, double factor) {
  return Bytes(std::llround(static_cast<double>(bytes.count()) * factor));
}

std::string range_of(const Room& room) {
  return room.low == room.high ? ""
                               : " (" + dovetail::to_string(room.low) + " to " +
                                     dovetail::to_string(room.high) + " by public peaks)";
}

}  // namespace

Room room_of(const Holding& peak, std::optional<Bytes> capacity) {
  const Bytes total = peak.total();
  return {.held = peak,
          .low = times(total, kPublicMemory.p5),
          .high = times(total, kPublicMemory.p95),
          .capacity = capacity};
}

Room room_of(const std::vector<jobs::StageMemory>& stages, std::optional<Bytes> capacity) {
  return room_of(stages[jobs::fullest(stages)], capacity);
}

Room room_of_kept(const Holding& kept, std::optional<Bytes> capacity) {
  return {.held = kept, .low = kept.total(), .high = kept.total(), .capacity = capacity};
}

Bytes surely_fits(Bytes capacity) { return times(capacity, 1 / kPublicMemory.p95); }

std::string verdict_of(const Shortage& shortage) {
  const std::string may = shortage.room.fits() == Fits::May ? " may not fit" : " does not fit";
  switch (shortage.of) {
    case Shortage::Of::Job:
      return "this job" + may;
    case Shortage::Of::Plan:
      return "this plan" + may;
    case Shortage::Of::PlanWithAdam:
      return "with Adam this" + may;
  }
  return "";
}

std::string to_string(const Shortage& shortage) {
  const Room& room = shortage.room;
  const std::string rank =
      "a rank" + (shortage.in_pipeline ? " of stage " + std::to_string(room.held.stage) : "");
  const std::string total = dovetail::to_string(room.held.total());
  const std::string device = "a device has " + dovetail::to_string(*room.capacity);
  const std::string begin = verdict_of(shortage) + ": " + rank;
  switch (shortage.of) {
    case Shortage::Of::Job:
      return begin + " needs " + total + range_of(room) + ": " + describe(room.held) + "; " +
             device;
    case Shortage::Of::Plan:
      return begin + " keeps " + total + " (" + describe(room.held) + "), " + device +
             "; activations come on top";
    case Shortage::Of::PlanWithAdam:
      return begin + " keeps " + dovetail::to_string(room.held.total() - shortage.moments) +
             ", its moments in f32 take " + dovetail::to_string(shortage.moments) + ", " + device;
  }
  return "";
}

std::optional<Shortage> shortage_of(std::optional<Bytes> capacity, const schedule::Program& program,
                                    const schedule::PlanSummary& summary,
                                    const schedule::Schedule& schedule) {
  if (!capacity) return std::nullopt;
  const auto if_short = [&](Shortage::Of of, Room room, Bytes moments) {
    Shortage shortage{
        .of = of, .room = room, .in_pipeline = program.stages > 1, .moments = moments};
    return shortage.room.fits() == Fits::Yes ? std::nullopt : std::optional(shortage);
  };
  if (summary.memory) return if_short(Shortage::Of::Job, room_of(*summary.memory, capacity), {});
  const schedule::Resident kept = schedule::resident(program, schedule);
  if (auto plan = if_short(Shortage::Of::Plan, room_of_kept(kept, capacity), {})) return plan;
  if (kept.optimizer > Bytes(0)) return std::nullopt;
  Holding with_adam = static_cast<const Holding&>(kept);
  with_adam.optimizer = kept.moments;
  return if_short(Shortage::Of::PlanWithAdam, room_of_kept(with_adam, capacity), kept.moments);
}

}  // namespace dovetail::predict

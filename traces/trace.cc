// The words of a Trace's enumerations, and the look-up of a command by its id.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/trace.h"

#include "base/error.h"

#include <algorithm>

namespace dovetail::traces {

std::string_view to_string(Origin origin) {
  return origin == Origin::Simulated ? "simulated" : "measured";
}

std::string_view to_string(SpanKind kind) {
  switch (kind) {
    case SpanKind::Compute:
      return "compute";
    case SpanKind::Copy:
      return "copy";
    case SpanKind::Collective:
      return "collective";
    case SpanKind::Wait:
      return "wait";
    case SpanKind::Enqueue:
      return "enqueue";
    case SpanKind::Kernel:
      return "kernel";
  }
  DOVETAIL_CHECK(false) << "span kind " << static_cast<int>(kind);
}

std::string_view to_string(SpanPhase phase) {
  switch (phase) {
    case SpanPhase::Forward:
      return "forward";
    case SpanPhase::Backward:
      return "backward";
    case SpanPhase::Optimizer:
      return "optimizer";
    case SpanPhase::Communication:
      return "communication";
  }
  DOVETAIL_CHECK(false) << "span phase " << static_cast<int>(phase);
}

const CommandInfo& Trace::command(CommandId id) const {
  // Lower numbers its commands from 0, so the id is nearly always the position.
  const auto guess = static_cast<std::size_t>(id.value);
  if (guess < commands.size() && commands[guess].id == id) return commands[guess];
  const auto found = std::ranges::lower_bound(commands, id, {}, &CommandInfo::id);
  DOVETAIL_CHECK(found != commands.end() && found->id == id) << "no command with id " << id;
  return *found;
}

}  // namespace dovetail::traces

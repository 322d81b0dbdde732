// The words of a Trace's enumerations, and the look-up of a command by its id.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/trace.h"

#include "base/error.h"

#include <algorithm>

namespace dovetail::traces {

const CommandInfo& Trace::command(CommandId id) const {
  // Lower numbers its commands from 0, so the id is nearly always the position.
  const auto guess = static_cast<std::size_t>(id.value);
  if (guess < commands.size() && commands[guess].id == id) return commands[guess];
  const auto found = std::ranges::lower_bound(commands, id, {}, &CommandInfo::id);
  DOVETAIL_CHECK(found != commands.end() && found->id == id) << "no command with id " << id;
  return *found;
}

}  // namespace dovetail::traces

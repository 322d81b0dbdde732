// Vector clocks over the streams of one role.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/happens_before.h"

#include <algorithm>
#include <unordered_map>

namespace dovetail::schedule {

HappensBefore::HappensBefore(const ScheduledProgram& program, const RankProgram& role,
                             std::size_t steps)
    : streams_(std::max<std::size_t>(1, program.streams.size())) {
  const std::size_t count = role.commands.size() * steps;
  clock_.assign(count * streams_, 0);
  std::vector<std::int32_t> now(streams_ * streams_, 0);  // the clock of each stream's last command
  std::unordered_map<EventId, std::size_t> recorded;
  for (std::size_t i = 0; i < count; ++i) {
    const Command& command = role.commands[i % role.commands.size()];
    const auto asked = static_cast<std::size_t>(command.stream.value);
    const std::size_t stream = asked < streams_ ? asked : 0;
    std::int32_t* const clock = &now[stream * streams_];
    if (const auto* wait = std::get_if<WaitEvent>(&command.action)) {
      if (const auto found = recorded.find(wait->event); found != recorded.end()) {
        const std::int32_t* const theirs = &clock_[found->second * streams_];
        for (std::size_t s = 0; s < streams_; ++s) clock[s] = std::max(clock[s], theirs[s]);
      } else {
        unrecorded_.push_back({i, wait->event});
      }
    }
    stream_.push_back(stream);
    position_.push_back(++clock[stream]);
    std::copy_n(clock, streams_, &clock_[i * streams_]);
    if (const auto* record = std::get_if<RecordEvent>(&command.action)) recorded[record->event] = i;
  }
}

bool HappensBefore::before(std::size_t a, std::size_t b) const {
  return clock_[b * streams_ + stream_[a]] >= position_[a];
}

}  // namespace dovetail::schedule

// What is known of each event that a role records, by its id: ids of one role are consecutive where lower gave them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <variant>
#include <vector>

#include "base/error.h"
#include "schedule/scheduled_program.h"

namespace dovetail::sim {

template <class T>
class EventTable {
 public:
  EventTable() = default;
  explicit EventTable(const schedule::RankProgram& role) {
    std::int32_t last = -1;
    first_ = std::numeric_limits<std::int32_t>::max();
    for (const schedule::Command& command : role.commands) {
      const auto* record = std::get_if<schedule::RecordEvent>(&command.action);
      if (record == nullptr) continue;
      first_ = std::min(first_, record->event.value);
      last = std::max(last, record->event.value);
    }
    if (last >= first_) values_.resize(static_cast<std::size_t>(last - first_) + 1);
  }

  // REQUIRES: the role records it.
  T& operator[](EventId event) {
    const auto at = static_cast<std::size_t>(std::int64_t{event.value} - first_);
    DOVETAIL_CHECK(at < values_.size()) << "event " << event << " is never recorded";
    return values_[at];
  }

 private:
  std::int32_t first_ = 0;
  std::vector<T> values_;
};

}  // namespace dovetail::sim

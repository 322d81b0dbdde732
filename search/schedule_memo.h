// What is known of Schedules that were simulated before, found by value: all that decides the time, which
// is everything but who made a Schedule and why its buckets were closed.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <unordered_map>
#include <utility>

#include "schedule/schedule.h"
#include "sim/simulate.h"

namespace dovetail::search {

// Whether both decide the same, whoever made them.
bool is_same(const schedule::Schedule& a, const schedule::Schedule& b);

class ScheduleMemo {
 public:
  // Null: not known. Valid until the next `keep`.
  [[nodiscard]] const sim::StepSummary* find(const schedule::Schedule& schedule) const;
  void keep(const schedule::Schedule& schedule, const sim::StepSummary& summary);

 private:
  struct Known {
    schedule::Schedule schedule;  // anonymous
    sim::StepSummary summary;
  };
  std::unordered_multimap<std::size_t, Known> known_;  // by hash
};

}  // namespace dovetail::search

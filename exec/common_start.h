// The ranks of a job begin a step at one moment.
//
// A barrier over TCP lets go of the ranks one after another, and what each then prepares takes its own
// time: 50 to 100 us that would count as part of the step. Instead, once a rank is ready, rank 0 names a
// moment a little ahead and every rank waits for it by its own clock:
//
//   rank 0   ready ... says "at 12.0005 s" ......|begin
//   rank 1   ready ........ hears it ............|begin     by rank 0's clock (clock_offset.h)
//
// A rank that is not ready in time begins late: lateness() says by how much. Clocks of several hosts
// drift, so their distance is estimated anew every few seconds.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/clock_offset.h"
#include "exec/exchange.h"

#include <chrono>
#include <cstdint>
#include <utility>

namespace dovetail::exec {

class CommonStart {
 public:
  explicit CommonStart(Exchange exchange, Duration lead = std::chrono::microseconds(500))
      : exchange_(std::move(exchange)), lead_(lead) {}

  // Collective: all ranks call it. Returns at the moment, or at once where that is past.
  void await();
  // Of the last await(): how long after the moment this rank went on.
  [[nodiscard]] Duration lateness() const { return lateness_; }
  // How well this rank knows rank 0's clock; at most.
  [[nodiscard]] Duration clock_error() const { return Duration(offset_.error_ns); }

 private:
  [[nodiscard]] std::int64_t read_clock() const;
  void estimate();

  Exchange exchange_;
  Duration lead_;
  ClockOffset offset_;
  bool is_estimated_ = false;
  bool clocks_differ_ = false;  // of any two ranks
  Duration lateness_{};
};

}  // namespace dovetail::exec

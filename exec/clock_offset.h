// One clock for ranks on several hosts.
//
// Timings are readings of each rank's own CLOCK_MONOTONIC, which ranks of one host share and ranks of
// different hosts do not: it counts from each host's boot. A rank whose clock is not rank 0's
// estimates the distance by round trips over the session, as NTP and Cristian's algorithm do:
//
//   rank r   t0 ------\                /-----> t1        rank 0 reads T between the two, so
//   rank 0             `----> T ------'                  T - t1 <= distance <= T - t0
//
// The narrowest of many round trips counts; its middle is wrong by half its width at most, which is
// reported. It is taken before and after what is measured, and interpolated, for clocks drift.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/exchange.h"

#include <cstdint>
#include <string>

namespace dovetail::exec {

// What rank 0's clock reads when this rank's reads `at_ns`, less that.
struct ClockOffset {
  std::int64_t at_ns = 0;
  std::int64_t offset_ns = 0;
  std::int64_t error_ns = 0;  // at most
};

// Collective: all ranks call it. 0 without an error where this rank reads the clock of rank 0.
ClockOffset clock_offset(const Exchange& exchange);

// InterleavedProbes two estimates, and beyond them, along a line.
std::int64_t offset_at(const ClockOffset& before, const ClockOffset& after, std::int64_t at_ns);

// Which clock this process reads: equal for all that share it. The host's boot, and the time
// namespace within it.
std::string this_clock();

}  // namespace dovetail::exec

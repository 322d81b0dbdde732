// How the ranks of a job tell each other things outside of the timed collectives.
//
// Three functions that a launch session or a test provides. All ranks call them in the same order.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace dovetail::exec {

struct Exchange {
  Rank rank;
  std::int64_t world_size = 1;
  std::function<void()> barrier;
  // On rank 0 the bytes of every rank, in rank order; elsewhere empty.
  std::function<std::vector<std::string>(const std::string&)> gather;
  // The bytes of rank 0, on every rank.
  std::function<std::string(const std::string&)> broadcast;
  // Which clock this rank's timings are readings of, equal on ranks that share one; and the clock,
  // now_ns() where it is empty (clock_offset.h).
  std::string clock_id{};
  std::function<std::int64_t()> clock{};
};

// A job of one rank, which has nobody to talk to.
Exchange alone();

// Every rank's numbers on every rank. What is computed from them is the same everywhere, as
// anything derived from a measurement must be (a locally chosen count of collectives is a hang).
std::vector<std::vector<std::int64_t>> share(const Exchange& exchange,
                                             std::span<const std::int64_t> mine);
// Rank 0's number on every rank.
std::int64_t rank_0_says(const Exchange& exchange, std::int64_t mine);

}  // namespace dovetail::exec

// Known values for collectives: small whole numbers whose sums are exact in every dtype and order.
//
// Element i of rank r is (i mod 7 + 1) * (r + 1). Over n ranks it sums up to (i mod 7 + 1) * n (n +
// 1) / 2 and averages to (i mod 7 + 1) (n + 1) / 2. bf16 holds whole numbers up to 256 and half
// ones up to 128 exactly; so for n <= kMostKnownRanks all of it is exact: 7 * 7 * 8 / 2 = 196.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/collective_traits.h"
#include "schedule/program.h"

#include <cstdint>

namespace dovetail::exec::selftest {

inline constexpr std::int64_t kMostKnownRanks = 7;

inline double known_value(std::int64_t rank, std::int64_t index) {
  return static_cast<double>(index % 7 + 1) * static_cast<double>(rank + 1);
}

inline double known_reduced(std::int64_t ranks, std::int64_t index, schedule::ReduceOp op) {
  const auto n = static_cast<double>(ranks);
  const double average = static_cast<double>(index % 7 + 1) * (n + 1) / 2;
  return op == schedule::ReduceOp::Average ? average : average * n;
}

// What element i of rank r's result must be. `share`: elements that one rank brings to an
// all-gather, gets from a reduce-scatter, or exchanges with one other rank in an all-to-all; the
// whole holds ranks * share. Only rank 0 of a send-recv sends, and only rank 1 receives.
struct Expected {
  schedule::Collective kind = schedule::Collective::AllReduce;
  schedule::ReduceOp op = schedule::ReduceOp::Sum;
  std::int64_t ranks = 1;
  std::int64_t share = 0;
  std::int64_t root = 0;
};
inline double known_result(const Expected& of, std::int64_t rank, std::int64_t index) {
  const schedule::CollectiveTraits& traits = schedule::traits_of(of.kind);
  const std::int64_t first = rank * of.share;  // of the rank's part
  if (traits.makes == schedule::Made::Joined) {
    const bool is_taken_apart = traits.sends == schedule::Extent::Whole;
    return known_value(index / of.share, (is_taken_apart ? first : 0) + index % of.share);
  }
  const std::int64_t at = (traits.holds == schedule::Extent::Part ? first : 0) + index;
  if (traits.reduces()) return known_reduced(of.ranks, at, of.op);
  return known_value(traits.pair ? 0 : of.root, at);
}

}  // namespace dovetail::exec::selftest

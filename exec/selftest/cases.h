// The collectives, reductions and sizes that the self-test of every transport goes through.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/collective_traits.h"
#include "schedule/program.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

namespace dovetail::exec::selftest {

struct CollectiveCase {
  schedule::Collective kind = schedule::Collective::AllReduce;
  schedule::ReduceOp op = schedule::ReduceOp::Sum;  // of those that reduce
};

// Each kind once, those that reduce with each operation.
inline constexpr auto kCollectiveCases = [] {
  using schedule::kCollectiveTraits;
  constexpr auto kReducing =
      std::ranges::count_if(kCollectiveTraits, &schedule::CollectiveTraits::reduces);
  std::array<CollectiveCase, kCollectiveTraits.size() + kReducing> cases{};
  std::size_t next = 0;
  for (const schedule::CollectiveTraits& traits : kCollectiveTraits) {
    cases[next++] = {traits.kind, schedule::ReduceOp::Sum};
    if (traits.reduces()) cases[next++] = {traits.kind, schedule::ReduceOp::Average};
  }
  return cases;
}();

// "all-reduce, sum", "broadcast".
inline std::string name_of(const CollectiveCase& of) {
  const std::string kind(to_string(of.kind));
  return schedule::traits_of(of.kind).reduces() ? kind + ", " + std::string(to_string(of.op))
                                                : kind;
}

}  // namespace dovetail::exec::selftest

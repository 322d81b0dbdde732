// What the tests of both transports share: data whose sums are exact, and the calls to check them.
//
// Element i of rank r is (i mod 7 + 1) * (r + 1). Over n ranks it sums up to (i mod 7 + 1) *
// n(n+1)/2 and averages to (i mod 7 + 1) * (n+1)/2: whole and half numbers, exact in float in any
// order.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cpu/transport.h"
#include "exec/launch/local_ranks.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace dovetail::exec::testing {

inline float pattern(std::size_t index) { return static_cast<float>(index % 7 + 1); }

inline std::vector<float> data_of(Rank rank, std::size_t count) {
  std::vector<float> data(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = pattern(i) * static_cast<float>(rank.value + 1);
  }
  return data;
}

inline float reduced(std::size_t index, std::int64_t ranks, schedule::ReduceOp op) {
  const auto n = static_cast<float>(ranks);
  const float average = pattern(index) * (n + 1) / 2;
  return op == schedule::ReduceOp::Average ? average : average * n;
}

// Elements that are not the reduced value; element 0 of `found` is element `first` of the whole.
inline std::size_t count_wrong(std::span<const float> found, std::size_t first, std::int64_t ranks,
                               schedule::ReduceOp op) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    wrong += found[i] == reduced(first + i, ranks, op) ? 0 : 1;
  }
  return wrong;
}

using OpenTransport = std::function<std::unique_ptr<cpu::Transport>(launch::Session&)>;

// Runs body(session, transport) on every rank.
inline void on_ranks(
    std::int32_t ranks, const OpenTransport& open,
    const std::function<void(launch::Session& session, cpu::Transport& transport)>& body) {
  launch::run_local_ranks({.ranks = ranks}, [&](launch::Session& session) {
    const std::unique_ptr<cpu::Transport> transport = open(session);
    body(session, *transport);
    session.barrier("the end of the test");  // nobody leaves while others still read
  });
}

}  // namespace dovetail::exec::testing

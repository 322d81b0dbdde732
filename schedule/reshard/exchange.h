// An exchange: who sends which elements to whom, when a tensor moves from any layout to any other,
// on the same ranks, on others, or on some of both (rules R5, R6).
//
// Every target rank keeps what it already holds and receives the rest, each element once: what
// travels is the intersection of the sender's part with the receiver's part, never more (RI4, RL1).
// Where several ranks hold a part, they take turns (RL2).
//
//   replicated on ranks 0,1 -> S(0) on ranks 2..5, 64 elements
//     0 -> 2 [0,16)   1 -> 3 [16,32)   0 -> 4 [32,48)   1 -> 5 [48,64)      64 elements in all
//     whole_part_exchange: 0 -> 2, 1 -> 3, 0 -> 4, 0 -> 5, all of [0,64)   256 elements
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "schedule/reshard/layout.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace dovetail::schedule::reshard {

// Elements of the whole tensor that go from one rank to another, or stay (from == to).
struct Message {
  Rank from;
  Rank to;
  Box part;
  friend bool operator==(const Message&, const Message&) = default;
};

// In one order that all ranks follow, so that blocking sends and receives cannot wait in a circle:
// each rank walks the list and does its part of each message. REQUIRES: both layouts are possible
// for this shape and have no partial axis.
std::vector<Message> exchange(const Shape& shape, const Layout& from, const Layout& to);

// The same, one after another: there may be as many as source ranks times target ranks.
void for_each_message(const Shape& shape, const Layout& from, const Layout& to,
                      const std::function<void(const Message&)>& visit);

// The baseline (RL1, RL2): each target rank receives the whole part of one holder for every part
// that it needs something of. A holder is taken that no earlier target of that part has used; once
// all have been used, it is always the first.
std::vector<Message> whole_part_exchange(const Shape& shape, const Layout& from, const Layout& to);

// Elements that leave a rank.
std::int64_t elements_sent(const std::vector<Message>& messages);

}  // namespace dovetail::schedule::reshard

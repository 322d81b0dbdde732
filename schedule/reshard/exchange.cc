// Matching the parts that ranks hold with the parts that ranks need.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/exchange.h"

#include "base/error.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace dovetail::schedule::reshard {
namespace {

// One distinct part of the source layout. Parts of one layout are equal or disjoint.
struct HeldPart {
  Box box;
  std::vector<Rank> holders;  // in mesh order
  std::size_t turns = 0;      // taken so far
};

std::vector<HeldPart> held_parts(const Shape& shape, const Layout& layout) {
  std::vector<HeldPart> parts;
  for (std::size_t i = 0; i < layout.mesh.size(); ++i) {
    Box box = part_of(shape, layout, i);
    const auto found = std::ranges::find(parts, box, &HeldPart::box);
    if (found != parts.end()) {
      found->holders.push_back(layout.mesh.ranks[i]);
    } else {
      parts.push_back({.box = std::move(box), .holders = {layout.mesh.ranks[i]}});
    }
  }
  return parts;
}

Rank choose_sender(HeldPart& part, Rank target, SenderChoice choice) {
  if (std::ranges::find(part.holders, target) != part.holders.end()) return target;
  if (choice == SenderChoice::RoundRobin) return part.holders[part.turns++ % part.holders.size()];
  return *std::ranges::min_element(
      part.holders, {}, [&](Rank holder) { return std::abs(holder.value - target.value); });
}

void require_no_partial(const Layout& layout) {
  DOVETAIL_CHECK(layout.partial.empty()) << to_string(layout);
}

}  // namespace

std::vector<Message> exchange(const Shape& shape, const Layout& from, const Layout& to,
                              SenderChoice choice) {
  require_no_partial(from);
  require_no_partial(to);
  std::vector<HeldPart> parts = held_parts(shape, from);
  std::vector<Message> messages;
  for (std::size_t i = 0; i < to.mesh.size(); ++i) {
    const Rank target = to.mesh.ranks[i];
    const Box needed = part_of(shape, to, i);
    for (HeldPart& part : parts) {
      if (std::optional<Box> common = intersection(part.box, needed)) {
        messages.push_back({.from = choose_sender(part, target, choice),
                            .to = target,
                            .part = std::move(*common)});
      }
    }
  }
  return messages;
}

std::vector<Message> whole_part_exchange(const Shape& shape, const Layout& from, const Layout& to) {
  require_no_partial(from);
  require_no_partial(to);
  std::vector<HeldPart> parts = held_parts(shape, from);
  std::vector<Message> messages;
  for (std::size_t i = 0; i < to.mesh.size(); ++i) {
    const Box needed = part_of(shape, to, i);
    for (HeldPart& part : parts) {
      if (!intersection(part.box, needed)) continue;
      const std::size_t turn = part.turns < part.holders.size() ? part.turns : 0;
      ++part.turns;
      messages.push_back({.from = part.holders[turn], .to = to.mesh.ranks[i], .part = part.box});
    }
  }
  return messages;
}

std::int64_t elements_sent(const std::vector<Message>& messages) {
  std::int64_t sum = 0;
  for (const Message& message : messages) {
    if (message.from != message.to) sum += elements(message.part);
  }
  return sum;
}

}  // namespace dovetail::schedule::reshard

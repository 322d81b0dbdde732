// Matches the parts of a tensor that ranks hold with the parts that ranks need. The parts of a
// layout are the cells of a regular grid, so the few cells that share elements with a box are
// computed, not searched for.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/exchange.h"

#include "base/error.h"

#include <algorithm>
#include <utility>

namespace dovetail::schedule::reshard {
namespace {

// One distinct part of the source layout. Parts of one layout are equal or disjoint.
struct HeldPart {
  Box box;
  std::vector<Rank> holders;  // in mesh order
  std::size_t turns = 0;      // taken so far
};

// The parts of a layout, by the first rank that holds each. They are the cells of a regular grid, so
// that those which share elements with a box are found without looking at the others.
class HeldParts {
 public:
  HeldParts(const Shape& shape, const Layout& layout) : extent_(local_shape(shape, layout)) {
    std::size_t cells = 1;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      count_.push_back(shape[d] / extent_[d]);
      cells *= static_cast<std::size_t>(count_.back());
    }
    at_.assign(cells, kNone);
    for (std::size_t i = 0; i < layout.mesh.size(); ++i) {
      Box box = part_of(shape, layout, i);
      std::size_t cell = 0;
      for (std::size_t d = 0; d < box.size(); ++d) cell = below(cell, d, box[d].begin / extent_[d]);
      if (at_[cell] == kNone) {
        at_[cell] = parts_.size();
        parts_.push_back({.box = std::move(box), .holders = {}});
      }
      parts_[at_[cell]].holders.push_back(layout.mesh.ranks[i]);
    }
  }

  // Calls visit(part) for each that shares elements with the box, in order.
  template <class Visit>
  void for_each_in(const Box& box, const Visit& visit) {
    std::vector<std::size_t>& cells = cells_;
    cells = {0};
    for (std::size_t d = 0; d < box.size(); ++d) {
      deeper_.clear();
      const std::int64_t last = (box[d].end - 1) / extent_[d];
      for (const std::size_t cell : cells) {
        for (std::int64_t i = box[d].begin / extent_[d]; i <= last; ++i) {
          deeper_.push_back(below(cell, d, i));
        }
      }
      std::swap(cells, deeper_);
    }
    for (std::size_t& cell : cells) cell = at_[cell];
    std::ranges::sort(cells);
    for (const std::size_t part : cells) visit(parts_[part]);
  }

 private:
  static constexpr auto kNone = static_cast<std::size_t>(-1);

  [[nodiscard]] std::size_t below(std::size_t cell, std::size_t d, std::int64_t place) const {
    return cell * static_cast<std::size_t>(count_[d]) + static_cast<std::size_t>(place);
  }

  Shape extent_;  // of a part
  Shape count_;   // of parts along each dimension
  std::vector<HeldPart> parts_;
  std::vector<std::size_t> at_;  // by cell, row-major
  std::vector<std::size_t> cells_, deeper_;
};

Rank choose_sender(HeldPart& part, Rank target) {
  if (std::ranges::find(part.holders, target) != part.holders.end()) return target;
  return part.holders[part.turns++ % part.holders.size()];
}

void require_no_partial(const Layout& layout) {
  DOVETAIL_CHECK(layout.partial.empty()) << to_string(layout);
}

}  // namespace

void for_each_message(const Shape& shape, const Layout& from, const Layout& to,
                      const std::function<void(const Message&)>& visit) {
  require_no_partial(from);
  require_no_partial(to);
  HeldParts parts(shape, from);
  Message message;
  for (std::size_t i = 0; i < to.mesh.size(); ++i) {
    message.to = to.mesh.ranks[i];
    const Box needed = part_of(shape, to, i);
    parts.for_each_in(needed, [&](HeldPart& part) {
      message.from = choose_sender(part, message.to);
      message.part.resize(needed.size());
      for (std::size_t d = 0; d < needed.size(); ++d) {
        message.part[d] = {.begin = std::max(part.box[d].begin, needed[d].begin),
                           .end = std::min(part.box[d].end, needed[d].end)};
      }
      visit(message);
    });
  }
}

std::vector<Message> exchange(const Shape& shape, const Layout& from, const Layout& to) {
  std::vector<Message> messages;
  for_each_message(shape, from, to, [&](const Message& message) { messages.push_back(message); });
  return messages;
}

std::vector<Message> whole_part_exchange(const Shape& shape, const Layout& from, const Layout& to) {
  require_no_partial(from);
  require_no_partial(to);
  HeldParts parts(shape, from);
  std::vector<Message> messages;
  for (std::size_t i = 0; i < to.mesh.size(); ++i) {
    parts.for_each_in(part_of(shape, to, i), [&](HeldPart& part) {
      const std::size_t turn = part.turns < part.holders.size() ? part.turns : 0;
      ++part.turns;
      messages.push_back({.from = part.holders[turn], .to = to.mesh.ranks[i], .part = part.box});
    });
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

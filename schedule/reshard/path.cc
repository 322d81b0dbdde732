// Dijkstra's search for the cheapest sequence of moves between two layouts, and the fixed order of
// moves that it is compared with. Layouts are made when the search reaches them; an exchange is
// only counted where it could still beat the best way known.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/path.h"

#include "base/error.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace dovetail::schedule::reshard {
namespace {

constexpr std::int64_t kMostMessages = std::int64_t{1} << 26;  // of an exchange that is considered

// How good a way to a layout is. The last number is the place of its last move in a fixed list.
struct Standing {
  Duration cost{};
  std::size_t moves = 0;
  MoveKind last = MoveKind::AllReduce;
  friend auto operator<=>(const Standing&, const Standing&) = default;
};

// The best way known to a layout. `before` is a key of the same map; null at its beginning.
struct Arrival {
  Standing standing;
  const Layout* before = nullptr;
  Move move;
};

// Layouts of a search lie on one mesh or two, which says nothing about most pairs: it is compared last.
struct CutsFirst {
  bool operator()(const Layout& a, const Layout& b) const {
    return std::tie(a.cuts, a.partial, a.mesh) < std::tie(b.cuts, b.partial, b.mesh);
  }
};
using Arrivals = std::map<Layout, Arrival, CutsFirst>;

// The best first; of equal ones the first layout.
struct BestFirst {
  bool operator()(Arrivals::const_iterator a, Arrivals::const_iterator b) const {
    const auto order = a->second.standing <=> b->second.standing;
    return order == 0 ? a->first < b->first : order < 0;
  }
};

class Search {
 public:
  Search(const Value& value, const Layout& from, const Layout& to, const ReshardCosts& costs)
      : value_(value), from_(from), to_(to), costs_(costs) {
    if (from.mesh == to.mesh) {
      Layout complete = to;
      complete.partial.clear();
      landings_ = {complete};
    } else {
      landings_ = complete_layouts(value.shape, to.mesh);
    }
  }

  std::optional<Path> find() {
    // A way without an exchange spares counting the messages of those that cannot beat it.
    if (from_.mesh == to_.mesh && !landings_.empty()) {
      const std::vector<Layout> landings = std::exchange(landings_, {});
      if (search()) bound_ = arrivals_.at(to_).standing;
      arrivals_.clear();
      open_.clear();
      landings_ = landings;
    }
    return search() ? std::optional(path_to(to_)) : std::nullopt;
  }

 private:
  // Whether it arrives.
  bool search() {
    open_.insert(arrivals_.try_emplace(from_).first);
    while (!open_.empty()) {
      const Arrivals::const_iterator at = *open_.begin();
      open_.erase(open_.begin());
      if (at->first == to_) return true;
      try_moves(at->second.standing, at->first);
    }
    return false;
  }

  void try_moves(const Standing& standing, const Layout& layout) {
    const bool has_arrived = layout.mesh == to_.mesh;
    for (Move& move :
         moves_from(value_, layout, has_arrived ? to_.partial : std::vector<Partial>{})) {
      try_move(standing, layout, std::move(move));
    }
    if (!layout.partial.empty() || (has_arrived && from_.mesh != to_.mesh)) return;
    for (const Layout& landing : landings_) {
      if (landing == layout || is_hopeless(standing, layout, landing)) continue;
      try_move(standing, layout, {.kind = MoveKind::Exchange, .axis = 0, .to = landing});
    }
  }

  // Whether an exchange cannot beat the way that is known to its layout, or to the target; or has too
  // many messages to count.
  [[nodiscard]] bool is_hopeless(const Standing& standing, const Layout& layout,
                                 const Layout& landing) const {
    const ExchangeBound least = exchange_bound(value_, layout, landing, costs_);
    if (least.messages > kMostMessages) return true;
    const Standing reached{.cost = standing.cost + least.cost,
                           .moves = standing.moves + 1,
                           .last = MoveKind::Exchange};
    if (bound_ && *bound_ <= reached) return true;
    const auto known = arrivals_.find(landing);
    return known != arrivals_.end() && known->second.standing <= reached;
  }

  void try_move(const Standing& standing, const Layout& layout, Move move) {
    move.cost = cost_of(value_, layout, move, costs_);
    const Standing reached{
        .cost = standing.cost + move.cost, .moves = standing.moves + 1, .last = move.kind};
    const auto [to, is_first] = arrivals_.try_emplace(move.to);
    if (!is_first) {
      if (to->second.standing <= reached) return;
      open_.erase(to);
    }
    to->second = {.standing = reached, .before = &layout, .move = std::move(move)};
    open_.insert(to);
  }

  [[nodiscard]] Path path_to(const Layout& layout) const {
    Path path{.from = from_, .moves = {}, .cost = arrivals_.at(layout).standing.cost};
    for (const Arrival* at = &arrivals_.at(layout); at->before != nullptr;
         at = &arrivals_.at(*at->before)) {
      path.moves.push_back(at->move);
    }
    std::ranges::reverse(path.moves);
    return path;
  }

  const Value& value_;
  const Layout& from_;
  const Layout& to_;
  const ReshardCosts& costs_;
  std::vector<Layout> landings_;
  std::optional<Standing> bound_;  // a way to the target that exists
  Arrivals arrivals_;
  std::set<Arrivals::const_iterator, BestFirst> open_;
};

// Adds moves one after another; each must exist.
class FixedOrder {
 public:
  FixedOrder(const Value& value, const Layout& from, const Layout& to, const ReshardCosts& costs)
      : value_(value), to_(to), costs_(costs) {
    path_.from = from;
  }

  // The first of these moves along the axis; `leads_to`, when given, must lie so afterwards.
  void take(MoveKind kind, std::int32_t axis, std::optional<std::size_t> cut_after) {
    const Layout at = path_.to();
    for (Move& move : moves_from(value_, at, to_.partial)) {
      if (move.kind != kind || move.axis != axis) continue;
      if (change_along(at, move).cut_after != cut_after) continue;
      move.cost = cost_of(value_, at, move, costs_);
      path_.cost += move.cost;
      path_.moves.push_back(std::move(move));
      return;
    }
    throw InputError("no " + std::string(to_string(kind)) + " along mesh axis " +
                     std::to_string(axis) + " from " + to_string(at) + " in the fixed order");
  }
  [[nodiscard]] const Layout& at() const { return path_.to(); }
  [[nodiscard]] Path path() && { return std::move(path_); }

 private:
  const Value& value_;
  const Layout& to_;
  const ReshardCosts& costs_;
  Path path_;
};

std::optional<std::size_t> cut_by(const Layout& layout, std::int32_t axis) {
  for (std::size_t d = 0; d < layout.cuts.size(); ++d) {
    if (std::ranges::count(layout.cuts[d], axis) > 0) return d;
  }
  return std::nullopt;
}

std::optional<Partial> partial_by(const Layout& layout, std::int32_t axis) {
  const auto found = std::ranges::find(layout.partial, axis, &Partial::axis);
  return found == layout.partial.end() ? std::nullopt : std::optional(*found);
}

void require_same_dimensions(const Layout& from, const Layout& to) {
  if (from.dimensions() != to.dimensions()) {
    throw InputError("layouts " + to_string(from) + " and " + to_string(to) +
                     " are for tensors of different dimensions");
  }
}

}  // namespace

Path cheapest_path(const Value& value, const Layout& from, const Layout& to,
                   const ReshardCosts& costs) {
  require_same_dimensions(from, to);
  require_layout(value.shape, from);
  require_layout(value.shape, to);
  std::optional<Path> path = Search(value, from, to, costs).find();
  if (!path) throw InputError("no way from " + to_string(from) + " to " + to_string(to));
  return *std::move(path);
}

Path fixed_order_path(const Value& value, const Layout& from, const Layout& to,
                      const ReshardCosts& costs) {
  require_same_dimensions(from, to);
  require_layout(value.shape, from);
  require_layout(value.shape, to);
  DOVETAIL_CHECK(from.mesh == to.mesh) << to_string(from.mesh) << ' ' << to_string(to.mesh);
  FixedOrder order(value, from, to, costs);
  const auto axes = static_cast<std::int32_t>(from.mesh.shape.size());
  const auto differs = [&](std::int32_t axis) {
    return cut_by(order.at(), axis) != cut_by(to, axis) ||
           partial_by(order.at(), axis) != partial_by(to, axis);
  };
  for (std::int32_t axis = axes; axis-- > 0;) {
    if (differs(axis) && cut_by(from, axis)) order.take(MoveKind::AllGather, axis, std::nullopt);
  }
  for (std::int32_t axis = axes; axis-- > 0;) {
    if (!differs(axis) || !partial_by(order.at(), axis)) continue;
    const std::optional<std::size_t> cut = cut_by(to, axis);
    order.take(cut ? MoveKind::ReduceScatter : MoveKind::AllReduce, axis, cut);
  }
  for (std::int32_t axis = axes; axis-- > 0;) {
    if (differs(axis) && partial_by(to, axis)) {
      order.take(MoveKind::MakePartial, axis, std::nullopt);
    }
  }
  for (std::int32_t axis = 0; axis < axes; ++axis) {
    if (differs(axis)) order.take(MoveKind::Slice, axis, cut_by(to, axis));
  }
  if (order.at() != to) {
    throw InputError("the fixed order ends at " + to_string(order.at()) + " instead of " +
                     to_string(to));
  }
  return std::move(order).path();
}

std::vector<Layout> complete_layouts(const Shape& shape, const Mesh& mesh) {
  std::set<Layout> seen{replicated(mesh, shape.size())};
  std::vector<Layout> layouts(seen.begin(), seen.end());
  for (std::size_t next = 0; next < layouts.size(); ++next) {
    const Layout layout = layouts[next];
    for (const Move& move : moves_from({.shape = shape}, layout, {})) {
      if (move.kind == MoveKind::Slice && seen.insert(move.to).second) layouts.push_back(move.to);
    }
  }
  return layouts;
}

std::string describe(const Path& path) {
  std::string text = to_string(path.from);
  for (const Move& move : path.moves) {
    text += " -> " + to_string(move.to) + " by " + std::string(to_string(move.kind));
    if (move.kind == MoveKind::Exchange) {
      text += path.from.mesh == move.to.mesh ? "" : " onto " + to_string(move.to.mesh);
    } else {
      text += " along axis " + std::to_string(move.axis);
    }
    text += " (" + dovetail::to_string(move.cost) + ")";
  }
  return text + (path.moves.empty() ? ": nothing to do" : "");
}

}  // namespace dovetail::schedule::reshard

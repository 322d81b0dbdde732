// Lists the single moves that are possible from a layout, and computes what each costs by the
// formulas in the header.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/transitions.h"

#include "base/error.h"
#include "schedule/reshard/exchange.h"

#include <algorithm>
#include <utility>

namespace dovetail::schedule::reshard {
namespace {

// The dimension that this axis cuts.
std::optional<std::size_t> dimension_cut_by(const Layout& layout, std::int32_t axis) {
  for (std::size_t d = 0; d < layout.cuts.size(); ++d) {
    if (std::ranges::count(layout.cuts[d], axis) > 0) return d;
  }
  return std::nullopt;
}

std::optional<Partial> partial_along(const Layout& layout, std::int32_t axis) {
  const auto found = std::ranges::find(layout.partial, axis, &Partial::axis);
  if (found == layout.partial.end()) return std::nullopt;
  return *found;
}

Layout without_axis(Layout layout, std::int32_t axis) {
  for (std::vector<std::int32_t>& axes : layout.cuts) std::erase(axes, axis);
  std::erase_if(layout.partial, [&](const Partial& partial) { return partial.axis == axis; });
  return layout;
}

Layout with_cut(Layout layout, std::int32_t axis, std::size_t dimension) {
  layout.cuts[dimension].push_back(axis);
  return layout;
}

Layout with_partial(Layout layout, Partial partial) {
  layout.partial.push_back(partial);
  std::ranges::sort(layout.partial);
  return layout;
}

class MoveList {
 public:
  MoveList(const Value& value, const Layout& from) : value_(value), from_(from) {}

  void add(MoveKind kind, std::int32_t axis, Layout to) {
    if (cannot_lay_out(value_.shape, to)) return;
    moves_.push_back({.kind = kind, .axis = axis, .to = std::move(to)});
  }
  void add_cuts(MoveKind kind, std::int32_t axis) {
    const Layout free = without_axis(from_, axis);
    for (std::size_t d = 0; d < from_.dimensions(); ++d) add(kind, axis, with_cut(free, axis, d));
  }
  std::vector<Move> take() { return std::move(moves_); }

 private:
  const Value& value_;
  const Layout& from_;
  std::vector<Move> moves_;
};

// The formulas of the header for one axis.
struct AxisCost {
  const ReshardCosts& costs;
  std::int64_t n;
  Bytes whole;  // W

  [[nodiscard]] Bytes share() const { return Bytes(whole.count() / n); }
  [[nodiscard]] Duration ring() const {
    return costs.latency * (n - 1) + share() * (n - 1) / costs.wire;
  }
  [[nodiscard]] Duration pairs() const {
    return costs.latency * (n - 1) + Bytes(share().count() / n) * (n - 1) / costs.wire;
  }
  [[nodiscard]] Duration copy(Bytes bytes) const { return bytes / costs.copy; }
};

Duration collective_cost(const AxisCost& cost, const Shape& before, const Shape& after,
                         MoveKind kind, const AxisChange& change) {
  const bool gathers_runs = !change.cut_before || is_contiguous(after, *change.cut_before);
  const bool cuts_runs = !change.cut_after || is_contiguous(before, *change.cut_after);
  switch (kind) {
    case MoveKind::AllReduce:
      return 2 * cost.ring();
    case MoveKind::ReduceScatter:
      return cost.ring() +
             (cuts_runs ? Duration{} : cost.copy(cost.whole * 2) + cost.copy(cost.share() * 2));
    case MoveKind::AllGather:
      return cost.ring() + (gathers_runs ? Duration{} : cost.copy(cost.whole * 4));
    case MoveKind::AllToAll:
      return cost.pairs() + (cuts_runs ? Duration{} : cost.copy(cost.share() * 2)) +
             (gathers_runs ? Duration{} : cost.copy(cost.share() * 2));
    default:
      DOVETAIL_CHECK(false) << to_string(kind) << " is no collective";
      return {};
  }
}

struct Traffic {
  std::int64_t messages = 0;
  Bytes bytes;
  void add(Bytes more) {
    ++messages;
    bytes += more;
  }
  [[nodiscard]] Duration cost(const ReshardCosts& costs) const {
    return costs.latency * messages + bytes / costs.wire;
  }
};

Duration exchange_cost(const Value& value, const Layout& from, const Layout& to,
                       const ReshardCosts& costs) {
  std::vector<Traffic> out(from.mesh.size());
  std::vector<Traffic> in(to.mesh.size());
  const auto count = [&](const Message& message) {
    if (message.from == message.to) return;
    const Bytes bytes = element_size(value.dtype) * elements(message.part);
    out[*from.mesh.index_of(message.from)].add(bytes);
    in[*to.mesh.index_of(message.to)].add(bytes);
  };
  for_each_message(value.shape, from, to, count);
  Duration wire{};
  for (const Traffic& traffic : out) wire = std::max(wire, traffic.cost(costs));
  for (const Traffic& traffic : in) wire = std::max(wire, traffic.cost(costs));
  return wire + value.local_bytes(to) * 2 / costs.copy;
}

}  // namespace

ExchangeBound exchange_bound(const Value& value, const Layout& from, const Layout& to,
                             const ReshardCosts& costs) {
  const Shape held = local_shape(value.shape, from);
  ExchangeBound bound;
  for (std::size_t i = 0; i < to.mesh.size(); ++i) {
    const Box needed = part_of(value.shape, to, i);
    Traffic in{.messages = 1, .bytes = {}};
    for (std::size_t d = 0; d < needed.size(); ++d) {
      in.messages *= (needed[d].end - 1) / held[d] - needed[d].begin / held[d] + 1;
    }
    bound.messages += in.messages;
    std::int64_t missing = elements(needed);
    if (const auto at = from.mesh.index_of(to.mesh.ranks[i])) {
      if (const auto kept = intersection(part_of(value.shape, from, *at), needed)) {
        missing -= elements(*kept);
        --in.messages;
      }
    }
    in.bytes = element_size(value.dtype) * missing;
    bound.cost = std::max(bound.cost, in.cost(costs));
  }
  bound.cost += value.local_bytes(to) * 2 / costs.copy;
  return bound;
}

Bytes Value::local_bytes(const Layout& layout) const {
  return element_size(dtype) * elements(local_shape(shape, layout));
}

bool is_contiguous(const Shape& shape, std::size_t dimension) {
  return std::all_of(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(dimension),
                     [](std::int64_t extent) { return extent == 1; });
}

AxisChange change_along(const Layout& from, const Move& move) {
  return {.cut_before = dimension_cut_by(from, move.axis),
          .cut_after = dimension_cut_by(move.to, move.axis)};
}

std::vector<Move> moves_from(const Value& value, const Layout& from,
                             const std::vector<Partial>& partial) {
  MoveList moves(value, from);
  for (auto axis = static_cast<std::int32_t>(from.mesh.shape.size()); axis-- > 0;) {
    const Layout free = without_axis(from, axis);
    const std::optional<std::size_t> cut = dimension_cut_by(from, axis);
    const std::optional<Partial> wanted = [&]() -> std::optional<Partial> {
      const auto found = std::ranges::find(partial, axis, &Partial::axis);
      return found == partial.end() ? std::nullopt : std::optional(*found);
    }();
    if (partial_along(from, axis)) {
      moves.add(MoveKind::AllReduce, axis, free);
      moves.add_cuts(MoveKind::ReduceScatter, axis);
    } else if (!cut) {
      moves.add_cuts(MoveKind::Slice, axis);
      if (wanted) moves.add(MoveKind::MakePartial, axis, with_partial(free, *wanted));
    } else if (from.cuts[*cut].back() == axis) {
      if (wanted && wanted->op == ReduceOp::Sum) {
        moves.add(MoveKind::MakePartial, axis, with_partial(free, *wanted));
      }
      moves.add(MoveKind::AllGather, axis, free);
      for (std::size_t d = 0; d < from.dimensions(); ++d) {
        if (d != *cut) moves.add(MoveKind::AllToAll, axis, with_cut(free, axis, d));
      }
    }
  }
  return moves.take();
}

Duration cost_of(const Value& value, const Layout& from, const Move& move,
                 const ReshardCosts& costs) {
  if (move.kind == MoveKind::Exchange) return exchange_cost(value, from, move.to, costs);
  const AxisChange change = change_along(from, move);
  const std::int64_t n = from.mesh.shape[static_cast<std::size_t>(move.axis)];
  const AxisCost cost{
      .costs = costs, .n = n, .whole = value.local_bytes(from) * (change.cut_before ? n : 1)};
  if (move.kind == MoveKind::Slice) return cost.copy(cost.share());
  if (move.kind == MoveKind::MakePartial) {
    const std::optional<Partial> made = partial_along(move.to, move.axis);
    return made->op == ReduceOp::Average ? Duration{} : cost.copy(cost.whole);
  }
  return collective_cost(cost, local_shape(value.shape, from), local_shape(value.shape, move.to),
                         move.kind, change);
}

}  // namespace dovetail::schedule::reshard

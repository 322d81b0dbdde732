// From a path to the steps of every rank. All boxes follow from the parts of the whole tensor that
// ranks hold before and after a move.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/plan.h"

#include "base/error.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace dovetail::schedule::reshard {
namespace {

// The box as the rank that holds `part` sees it.
Box within(const Box& box, const Box& part) {
  Box local = box;
  for (std::size_t d = 0; d < box.size(); ++d) {
    local[d].begin -= part[d].begin;
    local[d].end -= part[d].begin;
  }
  return local;
}

// What leaves ranks in a move along one axis.
Bytes axis_wire(const Value& value, const Layout& from, const Move& move) {
  const std::int64_t n = from.mesh.shape[static_cast<std::size_t>(move.axis)];
  if (n == 1) return {};
  const std::int64_t whole =
      elements(local_shape(value.shape, from)) * (change_along(from, move).cut_before ? n : 1);
  const auto lines = static_cast<std::int64_t>(from.mesh.size()) / n;
  return element_size(value.dtype) * (wire_elements(move.kind, n, whole) * lines);
}

// What leaves ranks in messages.
Bytes message_wire(const Value& value, const Layout& from, const Move& move) {
  std::int64_t sent = 0;
  for_each_message(value.shape, from, move.to, [&](const Message& message) {
    if (message.from != message.to) sent += elements(message.part);
  });
  return element_size(value.dtype) * sent;
}

// The parts before and after a move, by mesh index, and who of a line stands where in its group.
class Planner {
 public:
  Planner(const Value& value, const Path& path) : value_(value) {
    plan_.value = value;
    plan_.path = path;
    std::set<Rank> ranks(path.from.mesh.ranks.begin(), path.from.mesh.ranks.end());
    for (const Move& move : path.moves) {
      ranks.insert(move.to.mesh.ranks.begin(), move.to.mesh.ranks.end());
    }
    for (const Rank rank : ranks) {
      positions_[rank] = plan_.ranks.size();
      plan_.ranks.push_back({.rank = rank,
                             .before = held_by(rank, path.from),
                             .after = held_by(rank, path.to()),
                             .steps = {}});
    }
  }

  ReshardPlan plan() && {
    Layout at = plan_.path.from;
    for (const Move& move : plan_.path.moves) {
      if (move.kind == MoveKind::Exchange) {
        add_messages(at, move);
      } else {
        add_axis_move(at, move);
      }
      at = move.to;
    }
    return std::move(plan_);
  }

 private:
  [[nodiscard]] std::optional<Shape> held_by(Rank rank, const Layout& layout) const {
    if (!layout.mesh.index_of(rank)) return std::nullopt;
    return local_shape(value_.shape, layout);
  }

  void add(Rank rank, Step step) {
    plan_.ranks[positions_.at(rank)].steps.push_back(std::move(step));
  }

  // Messages, between any two meshes -------------------------------------------------------------

  [[nodiscard]] Box part(const Layout& layout, Rank rank) const {
    return part_of(value_.shape, layout, *layout.mesh.index_of(rank));
  }

  void add_messages(const Layout& from, const Move& move) {
    for (const RankPlan& rank : plan_.ranks) {
      if (!from.mesh.index_of(rank.rank) && !move.to.mesh.index_of(rank.rank)) continue;
      add(rank.rank, Begin{held_by(rank.rank, move.to).value_or(Shape{0})});
    }
    std::int64_t sent = 0;
    for (const Message& message : exchange(value_.shape, from, move.to)) {
      Box out = within(message.part, part(from, message.from));
      Box in = within(message.part, part(move.to, message.to));
      if (message.from == message.to) {
        add(message.from, CopyPart{.from = std::move(out), .to = std::move(in)});
        continue;
      }
      sent += elements(message.part);
      add(message.from, SendPart{.to = message.to, .part = std::move(out)});
      add(message.to, ReceivePart{.from = message.from, .part = std::move(in)});
    }
    finish(from.mesh, move.to.mesh);
    plan_.wire.push_back(element_size(value_.dtype) * sent);
  }

  void finish(const Mesh& from, const Mesh& to) {
    for (const RankPlan& rank : plan_.ranks) {
      if (from.index_of(rank.rank) || to.index_of(rank.rank)) add(rank.rank, Finish{});
    }
  }

  // Along one axis of one mesh --------------------------------------------------------------------

  void add_axis_move(const Layout& from, const Move& move) {
    const Mesh& mesh = from.mesh;
    const std::int64_t n = mesh.shape[static_cast<std::size_t>(move.axis)];
    const bool is_local =
        n == 1 || move.kind == MoveKind::Slice || move.kind == MoveKind::MakePartial;
    const GroupId group = is_local ? GroupId{} : group_along(mesh, move.axis);
    for (std::size_t i = 0; i < mesh.size(); ++i) {
      const Rank rank = mesh.ranks[i];
      add(rank, Begin{local_shape(value_.shape, move.to)});
      if (is_local) {
        add_local(from, move, i);
      } else {
        add(rank, collect(from, move, i, group));
      }
      add(rank, Finish{});
    }
    plan_.wire.push_back(axis_wire(value_, from, move));
  }

  // The first rank along the axis holds the summand, the others zeros; of an average all hold it. A
  // part that was cut lies among zeros.
  void add_local(const Layout& from, const Move& move, std::size_t index) {
    const Box before = part_of(value_.shape, from, index);
    const Box after = part_of(value_.shape, move.to, index);
    const std::optional<Box> common = intersection(before, after);
    DOVETAIL_CHECK(common.has_value()) << to_string(move.to);
    const auto made = std::ranges::find(move.to.partial, move.axis, &Partial::axis);
    const bool is_sum = move.kind == MoveKind::MakePartial && made != move.to.partial.end() &&
                        made->op == ReduceOp::Sum && before == after;
    const std::int64_t place = from.mesh.coordinate(index)[static_cast<std::size_t>(move.axis)];
    if (is_sum && place > 0) return;
    add(from.mesh.ranks[index],
        CopyPart{.from = within(*common, before), .to = within(*common, after)});
  }

  // The line's indices as they stand in the group: by rank.
  [[nodiscard]] static std::vector<std::size_t> members(const Mesh& mesh, std::size_t index,
                                                        std::int32_t axis) {
    std::vector<std::size_t> line = mesh.line(index, axis);
    std::ranges::sort(line, {}, [&](std::size_t i) { return mesh.ranks[i]; });
    return line;
  }

  GroupId group_along(const Mesh& mesh, std::int32_t axis) {
    const auto [known, is_new] =
        groups_.try_emplace({mesh, axis}, GroupId{static_cast<std::int32_t>(plan_.groups.size())});
    if (!is_new) return known->second;
    ProcessGroup group{
        .id = known->second,
        .name = (mesh == plan_.path.from.mesh ? "from.axis" : "to.axis") + std::to_string(axis),
        .ranks = {},
        .instance_size = mesh.shape[static_cast<std::size_t>(axis)]};
    for (std::size_t i = 0; i < mesh.size(); ++i) {
      if (mesh.coordinate(i)[static_cast<std::size_t>(axis)] != 0) continue;
      for (const std::size_t member : members(mesh, i, axis)) {
        group.ranks.push_back(mesh.ranks[member]);
      }
    }
    plan_.groups.push_back(std::move(group));
    return known->second;
  }

  [[nodiscard]] Collect collect(const Layout& from, const Move& move, std::size_t index,
                                GroupId group) const {
    const Box before = part_of(value_.shape, from, index);
    const Box after = part_of(value_.shape, move.to, index);
    Collect step;
    step.kind = Collective::AllReduce;
    step.group = group;
    const auto partial = std::ranges::find(from.partial, move.axis, &Partial::axis);
    if (partial != from.partial.end()) step.op = partial->op;
    const bool scatters = move.kind == MoveKind::ReduceScatter || move.kind == MoveKind::AllToAll;
    const bool gathers = move.kind == MoveKind::AllGather || move.kind == MoveKind::AllToAll;
    for (const std::size_t peer : members(from.mesh, index, move.axis)) {
      if (scatters) {
        const Box target = part_of(value_.shape, move.to, peer);
        step.outgoing.push_back(within(*intersection(before, target), before));
      }
      if (gathers) {
        const Box origin = part_of(value_.shape, from, peer);
        step.incoming.push_back(within(*intersection(origin, after), after));
      }
    }
    if (!scatters) step.outgoing = {within(before, before)};
    if (!gathers) step.incoming = {within(after, after)};
    if (scatters) step.kind = gathers ? Collective::AllToAll : Collective::ReduceScatter;
    if (!scatters && gathers) step.kind = Collective::AllGather;
    return step;
  }

  const Value& value_;
  ReshardPlan plan_;
  std::map<Rank, std::size_t> positions_;
  std::map<std::pair<Mesh, std::int32_t>, GroupId> groups_;
};

}  // namespace

Bytes ReshardPlan::total_wire() const {
  Bytes sum;
  for (const Bytes bytes : wire) sum += bytes;
  return sum;
}

const RankPlan& ReshardPlan::of(Rank rank) const {
  const auto found = std::ranges::find(ranks, rank, &RankPlan::rank);
  DOVETAIL_CHECK(found != ranks.end()) << "rank " << rank << " is not part of the plan";
  return *found;
}

ReshardPlan plan_reshard(const Value& value, const Layout& from, const Layout& to,
                         const ReshardCosts& costs) {
  return plan_path(value, cheapest_path(value, from, to, costs));
}

ReshardPlan plan_path(const Value& value, const Path& path) { return Planner(value, path).plan(); }

Bytes wire_of(const Value& value, const Path& path) {
  Bytes sum;
  Layout at = path.from;
  for (const Move& move : path.moves) {
    const bool sends = move.kind == MoveKind::Exchange;
    sum += sends ? message_wire(value, at, move) : axis_wire(value, at, move);
    at = move.to;
  }
  return sum;
}

std::int64_t wire_elements(MoveKind kind, std::int64_t ranks, std::int64_t whole) {
  switch (kind) {
    case MoveKind::AllReduce:
      return 2 * (ranks - 1) * whole;
    case MoveKind::ReduceScatter:
    case MoveKind::AllGather:
      return (ranks - 1) * whole;
    case MoveKind::AllToAll:
      return (ranks - 1) * (whole / ranks);
    default:
      return 0;
  }
}

}  // namespace dovetail::schedule::reshard

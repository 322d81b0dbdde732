// The cheapest way from one layout to another, and the fixed order that it replaces.
//
// The layouts of a mesh are the nodes of a graph, the transitions its edges; Dijkstra's search
// finds the cheapest path. One edge leads from each layout straight to the target as an exchange;
// between meshes, one leads to every layout of the other mesh, so a tensor may be cut before it
// travels and gathered where it arrives.
//
//   8x8, mesh 4, S(0) -> S(1)     all-to-all                                 (RL5)
//   mesh 4 -> 4 other ranks, R -> R   exchange to S(0), then all-gather, where latency allows
//
// Ties are broken by the fewest moves, then by the order of MoveKind, so plans do not depend on the
// platform. Cost: the layouts of k axes and t dimensions, at most (t + 2)^k k!, each with
// O(k t) moves; exchanges cost O(ranks^2) each and dominate on large meshes.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/reshard/transitions.h"

#include <string>
#include <vector>

namespace dovetail::schedule::reshard {

struct Path {
  Layout from;
  std::vector<Move> moves;
  Duration cost{};

  [[nodiscard]] const Layout& to() const { return moves.empty() ? from : moves.back().to; }
  friend bool operator==(const Path&, const Path&) = default;
};

// Throws InputError when the value cannot lie so at either end.
Path cheapest_path(const Value& value, const Layout& from, const Layout& to,
                   const ReshardCosts& costs = {});

// The fixed order (table of transitions, "n-D mesh"): for each mesh axis from the last on which the
// layouts differ, gather what it cuts; then complete partial axes (or scatter them where the target
// is cut by that axis); then make partial, then slice. It cannot gather an axis under a cut that
// stays, nor put a cut under a finer one that stays: InputError. REQUIRES: one mesh.
Path fixed_order_path(const Value& value, const Layout& from, const Layout& to,
                      const ReshardCosts& costs = {});

// Every layout without partial axes in which the shape can lie on the mesh, in a fixed order.
std::vector<Layout> complete_layouts(const Shape& shape, const Mesh& mesh);

// "S(0) -> R by all-gather over axis 0 (12.3 us) -> ..."
std::string describe(const Path& path);

}  // namespace dovetail::schedule::reshard

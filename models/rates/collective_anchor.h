// A modelled curve, moved by how far off the model was where other worlds of the same machine were measured.
//
//   anchored(modelled over 512 ranks, {{measured over 64, modelled over 64}, {measured over 32, modelled over 32}})
//
// T(S) = model(S) times the geometric mean over the anchors of measured(S) / modelled(S), each taken at their table's last size
// beyond it; isolated and back-to-back times each by their own. A model's error depends on the machine and the size more than on
// the number of ranks, so most of it drops out.
//
// Which worlds anchor (cluster.cc): those of one shape, all in one node or equally many ranks on each of several; not two ranks and
// not two nodes, which NCCL treats apart. In a node the nearest one, between nodes the nearest two, since a shared
// network strays. How good: of the shipped tables in a node, 8 ranks from 4 are missed by 11 % in the median
// (p90 26), unanchored by 13 (38). All-reduces of another machine over 128 to 2,048 ranks on 32 to 512 nodes from tables over up to
// 64: models/clusters/topology_fit.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/rates/collective_table.h"

#include <vector>

namespace dovetail::models {

struct Anchor {
  CollectiveTable measured, modelled;
};

// REQUIRES: at least one anchor.
CollectiveTable anchored(const CollectiveTable& model, const std::vector<Anchor>& anchors);

// The greater one of both at each size of either: a group on several nodes is not done before its part in one node would be.
CollectiveTable slower_of(const CollectiveTable& one, const CollectiveTable& other);

// Where a size takes less than a smaller one, the smaller one takes as little: a bump that one world alone was measured to have is its own.
CollectiveTable without_falls(const CollectiveTable& table);

}  // namespace dovetail::models

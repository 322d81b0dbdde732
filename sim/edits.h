// A Patch: changes of a StepGraph that are taken back together. What would the step take with a faster network, without
// this kernel, with a host that never pauses?
//
//   Patch patch(graph);
//   patch.scale_curve(all_reduce, 0.5);
//   play(graph, workspace, patch.first_changed());     // nodes before it keep their times
//   patch.undo();
//
// It changes times, not the shape: other nodes and edges come from truncate() and append() (graph.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/rates/op_model.h"
#include "sim/graph.h"

namespace dovetail::step {

class Patch {
 public:
  // Keeps a reference. REQUIRES: until undo() the graph is changed by this Patch only, or by one that is undone first.
  explicit Patch(StepGraph& graph) : graph_(graph), first_(graph.size()) {}

  // A node takes this long. A transfer keeps its lanes and the links that it loads.
  void set_time(NodeId node, std::int64_t ns);
  // It takes no time; what follows it still waits for what it waited for.
  void remove(NodeId node) { set_time(node, 0); }
  // Rounded to ns. REQUIRES: factor >= 0.
  void scale(NodeId node, double factor);
  void scale_kind(NodeKind kind, double factor);
  void scale_kernels(models::KernelClass kernel, double factor);  // of compute nodes
  void scale_curve(std::int32_t curve, double factor);            // of Transfer::curve
  void set_release(NodeId node, std::int64_t ns);
  // `edge`: a position as in StepGraph::edges_of of this node.
  void set_lag(NodeId node, std::size_t edge, std::int64_t ns);

  // From where the graph has to be played again; its size where nothing was changed.
  [[nodiscard]] NodeId first_changed() const { return first_; }
  // Everything as it was when the Patch was made.
  void undo();

 private:
  struct OldTime {
    NodeId node;
    Work work;
  };
  struct OldValue {
    std::size_t at;
    std::int64_t value;
  };
  void keep(NodeId node);

  StepGraph& graph_;
  NodeId first_;
  std::vector<OldTime> times_;
  std::vector<Transfer>
      transfers_;  // as they were, of those of `times_` that are ones, in their order
  std::vector<OldValue> releases_, lags_;
};

}  // namespace dovetail::step

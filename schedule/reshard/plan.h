// A ReshardPlan: what every rank does, step by step, to turn a tensor from one layout into another.
//
// Each rank holds a current tensor, its part, row-major. A move of the path begins a next tensor,
// fills it by copies, messages or one collective, and finishes: next becomes current.
//
//   8x8 f32, mesh 2, S(0) -> S(1)
//     rank 0  begin 8x4
//             all-to-all over axis0   out [0,4)x[0,4) [0,4)x[4,8)   in [0,4)x[0,4) [4,8)x[0,4)
//             finish
//
// Boxes are in elements of the tensor that the rank reads from or writes to, not of the whole. What
// a rank sends are the elements of the box in row-major order. All process groups are declared at
// the top, for all ranks in the same order (R13), and the steps of all ranks match (RI6,
// `mismatches`).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/program.h"
#include "schedule/reshard/exchange.h"
#include "schedule/reshard/path.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace dovetail::schedule::reshard {

// The next tensor exists from here on, all zeros. Shape {0}: the rank will hold nothing.
struct Begin {
  Shape shape;
  friend bool operator==(const Begin&, const Begin&) = default;
};
struct CopyPart {
  Box from;  // of the current tensor
  Box to;    // of the next
  friend bool operator==(const CopyPart&, const CopyPart&) = default;
};
struct SendPart {
  Rank to;
  Box part;  // of the current tensor
  friend bool operator==(const SendPart&, const SendPart&) = default;
};
struct ReceivePart {
  Rank from;
  Box part;  // of the next tensor
  friend bool operator==(const ReceivePart&, const ReceivePart&) = default;
};
// One collective of the rank's instance of the group. Outgoing boxes are of the current tensor,
// incoming ones of the next; where there are several, the i-th belongs to the rank at position i of
// the instance.
//   AllReduce      one out, one in          ReduceScatter  n out, one in
//   AllGather      one out, n in            AllToAll       n out, n in
struct Collect {
  Collective kind = Collective::AllGather;
  GroupId group;
  ReduceOp op = ReduceOp::Sum;
  std::vector<Box> outgoing;
  std::vector<Box> incoming;
  friend bool operator==(const Collect&, const Collect&) = default;
};
struct Finish {
  friend bool operator==(const Finish&, const Finish&) = default;
};
using Step = std::variant<Begin, CopyPart, SendPart, ReceivePart, Collect, Finish>;

struct RankPlan {
  Rank rank;
  std::optional<Shape> before;  // what it holds; nothing: it is not on the source mesh
  std::optional<Shape> after;
  std::vector<Step> steps;
  friend bool operator==(const RankPlan&, const RankPlan&) = default;
};

struct ReshardPlan {
  Value value;
  Path path;
  std::vector<ProcessGroup> groups;  // instances: the lines of the mesh along one axis
  std::vector<RankPlan> ranks;       // ascending; those of both meshes
  std::vector<Bytes> wire;           // per move, what leaves ranks, all together

  [[nodiscard]] Bytes total_wire() const;
  // REQUIRES: the rank is part of the plan.
  [[nodiscard]] const RankPlan& of(Rank rank) const;
  friend bool operator==(const ReshardPlan&, const ReshardPlan&) = default;
};

// The cheapest path, as steps. Throws InputError as cheapest_path does.
ReshardPlan plan_reshard(const Value& value, const Layout& from, const Layout& to,
                         const ReshardCosts& costs = {});
// Any path, e.g. fixed_order_path.
ReshardPlan plan_path(const Value& value, const Path& path);

// What leaves ranks along a path, as ReshardPlan::total_wire, without the steps of any rank.
Bytes wire_of(const Value& value, const Path& path);

// Where the steps of two ranks do not fit together: groups whose ranks disagree on their
// collectives or sizes, messages that are sent and not received in the same order and size. Empty:
// none.
std::vector<std::string> mismatches(const ReshardPlan& plan);

// Elements that one collective moves over the wire, all ranks of one instance together, by a ring
// (all-to-all: in pairs). `whole` as in transitions.h (W).
std::int64_t wire_elements(MoveKind kind, std::int64_t ranks, std::int64_t whole);

// The text above, one line per step.
std::string describe(const ReshardPlan& plan);

}  // namespace dovetail::schedule::reshard

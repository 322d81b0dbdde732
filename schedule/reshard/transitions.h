// Transitions: the single steps by which a layout becomes another, and what each costs.
//
// Along one mesh axis of n ranks, with W the bytes that they hold together (W = n x local bytes
// where the axis cuts the tensor, the local bytes where it does not):
//
//   from    to      done by          cost
//   R       S(d)    slice            g W/n                       nothing travels
//   S(d)    R       all-gather       (n-1)(a + b W/n)            + 4 g W unless contiguous
//   S(d)    S(e)    all-to-all       (n-1)(a + b W/n^2)          + 2 g W/n per repacking
//   P       R       all-reduce       2 (n-1)(a + b W/n)
//   P       S(d)    reduce-scatter   (n-1)(a + b W/n)            + 2 g (W + W/n) unless contiguous
//   R, S(d) P(sum)  zeros elsewhere  g W
//   R       P(avg)  all keep it      0
//   any     any     exchange         the busiest rank: a per message, b per byte, each way at once;
//                                    + 2 g per byte that a rank then holds
//   any     other mesh, cut alike: pairwise send and receive, a + b local bytes
//
// a latency of one message, b time per byte on the wire, g time per byte copied: standard ring and
// pairwise formulas, alone on the network. Contiguous: all extents before dimension d are 1 in what
// a rank holds. Only the finest cut of a dimension can be gathered, and a new cut is the finest.
// Sizes hold for every dtype, and are those of the definition above: gathered, not local (RL6).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "base/words.h"
#include "schedule/reshard/layout.h"

#include <string_view>
#include <vector>

namespace dovetail::schedule::reshard {

using dovetail::to_string;

// What is moved.
struct Value {
  Shape shape;
  DType dtype = DType::F32;

  // Of what one rank holds.
  [[nodiscard]] Bytes local_bytes(const Layout& layout) const;
  friend bool operator==(const Value&, const Value&) = default;
};

struct ReshardCosts {
  Duration latency = std::chrono::microseconds(5);
  BytesPerSecond wire{10e9};
  BytesPerSecond copy{500e9};
};

enum class MoveKind {
  AllReduce,
  ReduceScatter,
  Slice,
  MakePartial,
  AllGather,
  AllToAll,
  Exchange,
};
constexpr auto words_of(MoveKind) {
  return words("all-reduce", "reduce-scatter", "slice", "make-partial", "all-gather", "all-to-all",
               "exchange");
}

struct Move {
  MoveKind kind = MoveKind::Slice;
  std::int32_t axis = 0;  // of the mesh; meaningless for Exchange
  Layout to;
  Duration cost{};
  friend bool operator==(const Move&, const Move&) = default;
};

// All single moves within the mesh, along one axis each, that this value can make: an uneven cut is
// no move. `partial` is what an axis may become partial as; usually what the target wants.
// REQUIRES: the value can lie as `from`.
std::vector<Move> moves_from(const Value& value, const Layout& from,
                             const std::vector<Partial>& partial);

// The same with their costs.
Duration cost_of(const Value& value, const Layout& from, const Move& move,
                 const ReshardCosts& costs);

// How many messages an exchange has, kept parts included, and what it costs at least: the busiest
// receiver's part of it. Takes time with the number of ranks, where the whole cost takes it with the
// number of messages. REQUIRES: neither is partial.
struct ExchangeBound {
  std::int64_t messages = 0;
  Duration cost{};
};
ExchangeBound exchange_bound(const Value& value, const Layout& from, const Layout& to,
                             const ReshardCosts& costs);

// How n ranks along the move's axis cut or join which dimension: for the move S(d) -> S(e) these
// are d and e. REQUIRES: the move is one of moves_from(from).
struct AxisChange {
  std::optional<std::size_t> cut_before;
  std::optional<std::size_t> cut_after;
};
AxisChange change_along(const Layout& from, const Move& move);

// Whether a range of this dimension is one run of memory in a tensor of this shape.
bool is_contiguous(const Shape& shape, std::size_t dimension);

}  // namespace dovetail::schedule::reshard

// A Layout: how the elements of one tensor are spread over a mesh of ranks (rule R1).
//
// A mesh is a shape and its ranks in row-major order. Each mesh axis does one of three things to a
// tensor: R, it repeats it; S(d), it cuts dimension d; P(op), each rank along it holds a summand,
// and the tensor is their sum (or average). As text, one word per mesh axis:
//
//   mesh 2x2, tensor 8x8, "S(0),S(1)":  rank 0 rows [0,4) columns [0,4)   rank 1 [0,4) x [4,8)
//                                       rank 2      [4,8)         [0,4)   rank 3 [4,8) x [4,8)
//   mesh 4, "P(sum)": four tensors of the full shape, to be added
//
// Several axes may cut one dimension: the first in `cuts[d]` cuts it coarsest. In text they stand
// in ascending order; another order is written with the position, "S(0:1),S(0:0)".
//
// Only even cuts (rules R2, RL4): a dimension that an axis does not divide is refused, with the
// dimension, the extent and the axis in the message.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "schedule/program.h"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::schedule::reshard {

using Shape = std::vector<std::int64_t>;

struct Mesh {
  Shape shape;
  std::vector<Rank> ranks;  // row-major

  [[nodiscard]] std::size_t size() const { return ranks.size(); }
  [[nodiscard]] std::optional<std::size_t> index_of(Rank rank) const;
  // The place of the rank at this index, one number per axis.
  [[nodiscard]] Shape coordinate(std::size_t index) const;
  // The indices that differ from `index` only along this axis, in order of their coordinate.
  [[nodiscard]] std::vector<std::size_t> line(std::size_t index, std::int32_t axis) const;
  friend auto operator<=>(const Mesh&, const Mesh&) = default;
};

// Of one mesh. Steps of all ranks grow with the square of their number.
constexpr std::int64_t kMostRanks = std::int64_t{1} << 16;

// The ranks first, first + 1, ... in the given shape. Throws InputError for extents below 1, and for
// too many ranks.
Mesh make_mesh(Shape shape, Rank first = Rank{0});
// "2x4". Throws InputError.
Shape parse_shape(std::string_view text);

struct Partial {
  std::int32_t axis = 0;
  ReduceOp op = ReduceOp::Sum;
  friend auto operator<=>(const Partial&, const Partial&) = default;
};

struct Layout {
  Mesh mesh;
  // Per tensor dimension the mesh axes that cut it, coarsest first.
  std::vector<std::vector<std::int32_t>> cuts;
  std::vector<Partial> partial;  // ascending by axis

  [[nodiscard]] std::size_t dimensions() const { return cuts.size(); }
  friend auto operator<=>(const Layout&, const Layout&) = default;
};

// Every rank of the mesh holds the whole tensor.
Layout replicated(const Mesh& mesh, std::size_t dimensions);

// "S(0),R,P(sum)": one word per axis of the mesh. Throws InputError for anything else.
Layout parse_layout(std::string_view text, const Mesh& mesh, std::size_t dimensions);
std::string to_string(const Layout& layout);
std::string to_string(const Mesh& mesh);  // "2x2 on ranks 0..3"
std::ostream& operator<<(std::ostream& out, const Layout& layout);

// Why a tensor of this shape cannot lie so: a cut that is not even, an axis that the mesh lacks, an
// axis used twice, ranks that occur twice. Nothing when it can.
std::optional<std::string> cannot_lay_out(const Shape& shape, const Layout& layout);
// Throws InputError with that reason.
void require_layout(const Shape& shape, const Layout& layout);

// What one rank holds. REQUIRES: the tensor can lie so.
Shape local_shape(const Shape& shape, const Layout& layout);

// Half-open, per dimension.
struct Range {
  std::int64_t begin = 0, end = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  friend auto operator<=>(const Range&, const Range&) = default;
};
using Box = std::vector<Range>;
std::int64_t elements(const Box& box);
std::int64_t elements(const Shape& shape);
// Nothing when they share no element.
std::optional<Box> intersection(const Box& a, const Box& b);
std::string to_string(const Box& box);  // "[4,8)x[4,8)"

// The part of the tensor that the rank at this index of the mesh holds. REQUIRES: the tensor can
// lie so.
Box part_of(const Shape& shape, const Layout& layout, std::size_t index);

}  // namespace dovetail::schedule::reshard

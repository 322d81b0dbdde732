// Layouts: what each rank holds, and whether a reader can use it as it is.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/layout.h"

#include "base/error.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <set>
#include <utility>

namespace dovetail::schedule::reshard {
namespace {

std::int64_t extent_of(const Mesh& mesh, std::int32_t axis) {
  return mesh.shape[static_cast<std::size_t>(axis)];
}

std::int64_t parts_along(const Layout& layout, std::size_t dimension) {
  std::int64_t parts = 1;
  for (const std::int32_t axis : layout.cuts[dimension]) parts *= extent_of(layout.mesh, axis);
  return parts;
}

std::string text_of(const Shape& shape) {
  std::string text;
  for (const std::int64_t extent : shape) {
    text += (text.empty() ? "" : "x") + std::to_string(extent);
  }
  return text.empty() ? "scalar" : text;
}

bool has_axis(const Layout& layout, std::int32_t axis) {
  return axis >= 0 && axis < static_cast<std::int32_t>(layout.mesh.shape.size());
}

std::optional<std::string> wrong_mesh(const Mesh& mesh) {
  std::int64_t size = 1;
  for (const std::int64_t extent : mesh.shape) size *= extent;
  if (size != static_cast<std::int64_t>(mesh.size())) {
    return "a mesh of shape " + text_of(mesh.shape) + " has " + std::to_string(mesh.size()) +
           " ranks";
  }
  const bool ascends =
      std::ranges::adjacent_find(mesh.ranks, std::greater_equal<>{}) == mesh.ranks.end();
  if (!ascends && std::set<Rank>(mesh.ranks.begin(), mesh.ranks.end()).size() != mesh.size()) {
    return "a rank stands twice in the mesh " + to_string(mesh);
  }
  return std::nullopt;
}

std::optional<std::string> wrong_axes(const Layout& layout) {
  std::set<std::int32_t> used;
  const auto wrong = [&](std::int32_t axis) -> std::optional<std::string> {
    if (!has_axis(layout, axis)) {
      return "mesh axis " + std::to_string(axis) + " does not exist in the mesh " +
             to_string(layout.mesh);
    }
    if (!used.insert(axis).second) return "mesh axis " + std::to_string(axis) + " is used twice";
    return std::nullopt;
  };
  for (const std::vector<std::int32_t>& axes : layout.cuts) {
    for (const std::int32_t axis : axes) {
      if (auto reason = wrong(axis)) return reason;
    }
  }
  for (const Partial& partial : layout.partial) {
    if (auto reason = wrong(partial.axis)) return reason;
  }
  return std::nullopt;
}

// One word of a layout's text.
struct Word {
  std::optional<std::size_t> cut;       // the dimension
  std::optional<std::size_t> position;  // in its list, where given
  std::optional<ReduceOp> partial;
};

std::optional<std::size_t> number(std::string_view text) {
  if (text.empty() || text.size() > 3) return std::nullopt;
  std::size_t value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return std::nullopt;
    value = value * 10 + static_cast<std::size_t>(digit - '0');
  }
  return value;
}

std::optional<Word> parse_word(std::string_view text) {
  if (text == "R") return Word{};
  if (text == "P(sum)" || text == "P")
    return Word{.cut = {}, .position = {}, .partial = ReduceOp::Sum};
  if (text == "P(average)") return Word{.cut = {}, .position = {}, .partial = ReduceOp::Average};
  if (!text.starts_with("S(") || !text.ends_with(")")) return std::nullopt;
  const std::string_view inside = text.substr(2, text.size() - 3);
  const std::size_t colon = inside.find(':');
  Word word;
  word.cut = number(inside.substr(0, colon));
  if (!word.cut) return std::nullopt;
  if (colon != std::string_view::npos) {
    word.position = number(inside.substr(colon + 1));
    if (!word.position) return std::nullopt;
  }
  return word;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  for (std::size_t from = 0; from <= text.size();) {
    const std::size_t to = std::min(text.find(separator, from), text.size());
    words.push_back(text.substr(from, to - from));
    from = to + 1;
  }
  return words;
}

}  // namespace

std::optional<std::size_t> Mesh::index_of(Rank rank) const {
  if (ranks.empty()) return std::nullopt;
  // Most meshes are a run of ranks.
  const std::int64_t place = std::int64_t{rank.value} - ranks.front().value;
  if (place >= 0 && place < static_cast<std::int64_t>(ranks.size()) &&
      ranks[static_cast<std::size_t>(place)] == rank) {
    return static_cast<std::size_t>(place);
  }
  const auto found = std::ranges::find(ranks, rank);
  if (found == ranks.end()) return std::nullopt;
  return static_cast<std::size_t>(found - ranks.begin());
}

Shape Mesh::coordinate(std::size_t index) const {
  Shape place(shape.size());
  auto rest = static_cast<std::int64_t>(index);
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    place[axis] = rest % shape[axis];
    rest /= shape[axis];
  }
  return place;
}

std::vector<std::size_t> Mesh::line(std::size_t index, std::int32_t axis) const {
  std::size_t stride = 1;
  for (std::size_t later = static_cast<std::size_t>(axis) + 1; later < shape.size(); ++later) {
    stride *= static_cast<std::size_t>(shape[later]);
  }
  const auto extent = static_cast<std::size_t>(shape[static_cast<std::size_t>(axis)]);
  const std::size_t first = index - index / stride % extent * stride;
  std::vector<std::size_t> indices;
  for (std::size_t i = 0; i < extent; ++i) indices.push_back(first + i * stride);
  return indices;
}

Mesh make_mesh(Shape shape, Rank first) {
  std::int64_t size = 1;
  for (const std::int64_t extent : shape) {
    if (extent < 1 || extent > kMostRanks / size) {
      throw InputError("mesh " + text_of(shape) + ": expected extents from 1 on, at most " +
                       std::to_string(kMostRanks) + " ranks");
    }
    size *= extent;
  }
  constexpr std::int64_t kLastRank = std::numeric_limits<std::int32_t>::max();
  if (first.value > kLastRank + 1 - size) {
    throw InputError("mesh " + text_of(shape) + " from rank " + std::to_string(first.value) +
                     " on: expected ranks up to " + std::to_string(kLastRank));
  }
  Mesh mesh{.shape = std::move(shape), .ranks = {}};
  for (std::int64_t i = 0; i < size; ++i) {
    mesh.ranks.push_back(Rank{first.value + static_cast<std::int32_t>(i)});
  }
  return mesh;
}

Shape parse_shape(std::string_view text) {
  Shape shape;
  for (const std::string_view word : split(text, 'x')) {
    std::int64_t value = 0;
    bool is_number = !word.empty() && word.size() <= 12;
    for (const char digit : word) {
      is_number = is_number && digit >= '0' && digit <= '9';
      value = value * 10 + (digit - '0');
    }
    if (!is_number || value < 1) {
      throw InputError("shape \"" + std::string(text) + "\": expected extents such as 8x8");
    }
    shape.push_back(value);
  }
  return shape;
}

Layout replicated(const Mesh& mesh, std::size_t dimensions) {
  return {.mesh = mesh, .cuts = std::vector<std::vector<std::int32_t>>(dimensions), .partial = {}};
}

Layout parse_layout(std::string_view text, const Mesh& mesh, std::size_t dimensions) {
  const auto fail = [&](const std::string& reason) -> InputError {
    return InputError("layout \"" + std::string(text) + "\": " + reason);
  };
  const std::vector<std::string_view> words = split(text, ',');
  if (words.size() != mesh.shape.size()) {
    throw fail("expected one word per mesh axis, " + std::to_string(mesh.shape.size()) +
               " of them, found " + std::to_string(words.size()));
  }
  Layout layout = replicated(mesh, dimensions);
  std::vector<std::vector<std::pair<std::size_t, std::int32_t>>> placed(dimensions);
  for (std::size_t axis = 0; axis < words.size(); ++axis) {
    const std::optional<Word> word = parse_word(words[axis]);
    if (!word) {
      throw fail("expected R, S(dimension), P(sum) or P(average), found \"" +
                 std::string(words[axis]) + "\"");
    }
    const auto id = static_cast<std::int32_t>(axis);
    if (word->partial) layout.partial.push_back({.axis = id, .op = *word->partial});
    if (!word->cut) continue;
    if (*word->cut >= dimensions) {
      throw fail("found S(" + std::to_string(*word->cut) +
                 "), the number of the tensor's dimensions is " + std::to_string(dimensions));
    }
    auto& list = placed[*word->cut];
    list.emplace_back(word->position.value_or(list.size()), id);
  }
  for (std::size_t d = 0; d < dimensions; ++d) {
    std::ranges::sort(placed[d]);
    for (std::size_t i = 0; i < placed[d].size(); ++i) {
      if (placed[d][i].first != i) {
        throw fail("positions of the cuts of dimension " + std::to_string(d) +
                   " are not 0, 1, ...");
      }
      layout.cuts[d].push_back(placed[d][i].second);
    }
  }
  return layout;
}

std::string to_string(const Layout& layout) {
  std::vector<std::string> words(layout.mesh.shape.size(), "R");
  for (std::size_t d = 0; d < layout.cuts.size(); ++d) {
    const std::vector<std::int32_t>& axes = layout.cuts[d];
    const bool is_ascending = std::ranges::is_sorted(axes);
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const std::string position = is_ascending ? "" : ":" + std::to_string(i);
      words[static_cast<std::size_t>(axes[i])] = "S(" + std::to_string(d) + position + ")";
    }
  }
  for (const Partial& partial : layout.partial) {
    words[static_cast<std::size_t>(partial.axis)] =
        "P(" + std::string(schedule::to_string(partial.op)) + ")";
  }
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

std::string to_string(const Mesh& mesh) {
  std::string text = text_of(mesh.shape) + " on ranks ";
  bool is_run = !mesh.ranks.empty();
  for (std::size_t i = 1; i < mesh.ranks.size(); ++i) {
    is_run = is_run && mesh.ranks[i].value == mesh.ranks[i - 1].value + 1;
  }
  if (is_run && mesh.size() > 2) {
    return text + std::to_string(mesh.ranks.front().value) + ".." +
           std::to_string(mesh.ranks.back().value);
  }
  for (std::size_t i = 0; i < mesh.ranks.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(mesh.ranks[i].value);
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const Layout& layout) {
  return out << to_string(layout) << " on " << to_string(layout.mesh);
}

std::optional<std::string> cannot_lay_out(const Shape& shape, const Layout& layout) {
  if (shape.size() != layout.dimensions()) {
    return "a tensor of " + std::to_string(shape.size()) + " dimensions has a layout for " +
           std::to_string(layout.dimensions());
  }
  if (auto reason = wrong_mesh(layout.mesh)) return reason;
  if (auto reason = wrong_axes(layout)) return reason;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const std::int64_t parts = parts_along(layout, d);
    if (shape[d] % parts != 0) {
      return "dimension " + std::to_string(d) + " of tensor " + text_of(shape) + " has " +
             std::to_string(shape[d]) + " elements, which " + std::to_string(parts) +
             " ranks cannot share evenly (" + to_string(layout) + "); pad it first";
    }
  }
  return std::nullopt;
}

void require_layout(const Shape& shape, const Layout& layout) {
  if (const auto reason = cannot_lay_out(shape, layout)) throw InputError(*reason);
}

Shape local_shape(const Shape& shape, const Layout& layout) {
  Shape local = shape;
  for (std::size_t d = 0; d < shape.size(); ++d) local[d] /= parts_along(layout, d);
  return local;
}

std::int64_t elements(const Box& box) {
  std::int64_t count = 1;
  for (const Range& range : box) count *= range.size();
  return count;
}

std::int64_t elements(const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box common;
  for (std::size_t d = 0; d < a.size(); ++d) {
    const Range range{.begin = std::max(a[d].begin, b[d].begin),
                      .end = std::min(a[d].end, b[d].end)};
    if (range.begin >= range.end) return std::nullopt;
    common.push_back(range);
  }
  return common;
}

std::string to_string(const Box& box) {
  std::string text;
  for (const Range& range : box) {
    text += (text.empty() ? "[" : "x[") + std::to_string(range.begin) + "," +
            std::to_string(range.end) + ")";
  }
  return text.empty() ? "scalar" : text;
}

Box part_of(const Shape& shape, const Layout& layout, std::size_t index) {
  const Shape place = layout.mesh.coordinate(index);
  Box box;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::int64_t part = 0;
    for (const std::int32_t axis : layout.cuts[d]) {
      part = part * extent_of(layout.mesh, axis) + place[static_cast<std::size_t>(axis)];
    }
    const std::int64_t extent = shape[d] / parts_along(layout, d);
    box.push_back({.begin = part * extent, .end = (part + 1) * extent});
  }
  return box;
}

}  // namespace dovetail::schedule::reshard

// Reads replica_groups in the forms of the header.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/hlo/groups.h"

#include "base/error.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <utility>

namespace dovetail::imports {
namespace {

using Integers = std::vector<std::int64_t>;

// Devices in an order of rows and columns.
class Grid {
 public:
  // 0, 1, 2, ... in `dims`, its axes then taken in the order `axes`. Absent: they do not fit.
  static std::optional<Integers> transposed(const Integers& dims, const Integers& axes) {
    std::set<std::int64_t> all(axes.begin(), axes.end());
    if (axes.size() != dims.size() || all.size() != axes.size() ||
        (!all.empty() && *all.begin() < 0) ||
        (!all.empty() && *all.rbegin() >= static_cast<std::int64_t>(dims.size()))) {
      return std::nullopt;
    }
    Integers strides(dims.size(), 1);
    for (std::size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    Integers out = {0};
    for (const std::int64_t axis : axes) {
      const auto at = static_cast<std::size_t>(axis);
      Integers next;
      for (const std::int64_t base : out) {
        for (std::int64_t i = 0; i < dims[at]; ++i) next.push_back(base + i * strides[at]);
      }
      out = std::move(next);
    }
    return out;
  }
};

class GroupReader {
 public:
  GroupReader(const Source& file, const HloInstruction& at, std::int64_t world)
      : file_(file), at_(at), world_(world) {}

  HloGroups run() const {
    const std::string_view text = at_.attribute("replica_groups");
    HloGroups groups;
    if (text.empty() || text == "{}") {
      groups.emplace_back(static_cast<std::size_t>(world_));
      std::iota(groups.front().begin(), groups.front().end(), 0);
    } else if (text.starts_with('{')) {
      groups = listed_groups(text);
    } else if (text.starts_with("mesh[")) {
      groups = mesh_groups(text);
    } else {
      groups = iota_groups(text);
    }
    return checked(std::move(groups));
  }

  HloGroups listed_groups(std::string_view text) const {
    if (text.size() < 2) fail();
    HloGroups groups;
    for (const std::string_view part : hlo_parts(text.substr(1, text.size() - 2))) {
      const std::optional<Integers> group = hlo_integers(part);
      if (!group || group->empty()) fail();
      groups.push_back(*group);
    }
    return groups;
  }

  [[noreturn]] void fail() const {
    throw InputError(file_.name + ": line " + std::to_string(at_.line) + ": " +
                     printable(at_.name) + ": groups of devices in a form that is not known");
  }

 private:
  [[nodiscard]] HloGroups checked(HloGroups groups) const {
    const auto bad = [this](const std::string& what) {
      throw InputError(file_.name + ": line " + std::to_string(at_.line) + ": " +
                       printable(at_.name) + ": " + what);
    };
    std::set<std::int64_t> seen;
    for (Integers& group : groups) {
      if (group.size() != groups.front().size()) bad("groups of unequal size");
      for (const std::int64_t device : group) {
        if (device < 0 || device >= world_) {
          bad("device " + std::to_string(device) + " of " + std::to_string(world_));
        }
        if (!seen.insert(device).second) bad("device " + std::to_string(device) + " twice");
      }
      std::ranges::sort(group);
    }
    std::erase_if(groups, [](const Integers& group) { return group.size() < 2; });
    return groups;
  }

  // "[2,4]" as its extents, whose product is the world.
  [[nodiscard]] Integers extents(std::string_view text) const {
    const std::optional<Integers> dims = hlo_integers(text);
    if (!dims) fail();
    std::int64_t product = 1;
    for (const std::int64_t extent : *dims) {
      if (extent < 1 || extent > world_ || product > world_) fail();
      product *= extent;
    }
    if (product != world_) fail();
    return *dims;
  }

  // "[2,2]T(1,0)", or "[4]" in the order as it is.
  [[nodiscard]] Integers device_order(std::string_view text) const {
    const std::size_t turn = text.find('T');
    const Integers dims = extents(text.substr(0, turn));
    Integers axes(dims.size());
    std::iota(axes.begin(), axes.end(), 0);
    if (turn != std::string_view::npos) {
      const std::optional<Integers> order = hlo_integers(text.substr(turn + 1));
      if (!order) fail();
      axes = *order;
    }
    const std::optional<Integers> devices = Grid::transposed(dims, axes);
    if (!devices) fail();
    return *devices;
  }

  static HloGroups rows(const Integers& devices, std::int64_t width) {
    HloGroups groups;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (i % static_cast<std::size_t>(width) == 0) groups.emplace_back();
      groups.back().push_back(devices[i]);
    }
    return groups;
  }

  [[nodiscard]] HloGroups iota_groups(std::string_view text) const {
    const std::size_t arrow = text.find("<=");
    if (arrow == std::string_view::npos) fail();
    const Integers shape = extents(trimmed(text.substr(0, arrow)));
    if (shape.size() != 2) fail();
    return rows(device_order(trimmed(text.substr(arrow + 2))), shape[1]);
  }

  [[nodiscard]] HloGroups mesh_groups(std::string_view text) const {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) fail();
    std::vector<std::string_view> names;
    Integers dims;
    for (const std::string_view axis : hlo_parts(text.substr(5, end - 5))) {
      const std::size_t sign = axis.find('=');
      const auto extent =
          sign == std::string_view::npos ? std::nullopt : integer_of(axis.substr(sign + 1));
      if (!extent || *extent < 1 || *extent > world_) fail();
      names.push_back(axis.substr(0, sign));
      dims.push_back(*extent);
    }
    std::string_view joined = trimmed(text.substr(end + 1));
    const Integers order = mesh_order(joined, dims);
    const Joined last = joined_axes(names, dims, joined);
    return rows(with_axes_last(last.axes, dims, order), last.degree);
  }

  // The devices of the mesh; `joined` becomes the braces with the axes.
  Integers mesh_order(std::string_view& joined, const Integers& dims) const {
    const std::string_view ids = at_.attribute("device_ids");
    if (ids.empty()) {
      std::string text = "[";
      for (const std::int64_t extent : dims) text += std::to_string(extent) + ",";
      text.back() = ']';
      return device_order(text);
    }
    const std::size_t end = ids.find(") {");
    if (!ids.starts_with('(') || end == std::string_view::npos) fail();
    joined = ids.substr(end + 2);
    return device_order(ids.substr(1, end - 1));
  }

  struct Joined {
    Integers axes;
    std::int64_t degree = 1;
  };

  // {'x','y'}: numbers of the axes, and how many devices they have.
  [[nodiscard]] Joined joined_axes(const std::vector<std::string_view>& names, const Integers& dims,
                                   std::string_view text) const {
    if (text.size() < 2 || !text.starts_with('{')) fail();
    Joined made;
    for (const std::string_view name : hlo_parts(text.substr(1, text.size() - 2))) {
      const auto at = std::ranges::find(names, name);
      if (at == names.end()) fail();
      made.axes.push_back(at - names.begin());
      made.degree *= dims[static_cast<std::size_t>(at - names.begin())];
    }
    return made;
  }

  [[nodiscard]] Integers with_axes_last(const Integers& last, const Integers& dims,
                                        const Integers& order) const {
    Integers axes;
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(dims.size()); ++i) {
      if (std::ranges::find(last, i) == last.end()) axes.push_back(i);
    }
    axes.insert(axes.end(), last.begin(), last.end());
    const std::optional<Integers> places = Grid::transposed(dims, axes);
    if (!places || places->size() != order.size()) fail();
    Integers devices;
    for (const std::int64_t place : *places)
      devices.push_back(order[static_cast<std::size_t>(place)]);
    return devices;
  }

  const Source& file_;
  const HloInstruction& at_;
  std::int64_t world_;
};

}  // namespace

HloGroups hlo_groups(const Source& file, const HloInstruction& collective, std::int64_t world) {
  return GroupReader(file, collective, world).run();
}

std::vector<std::pair<std::int64_t, std::int64_t>> hlo_pairs(const Source& file,
                                                             const HloInstruction& permute,
                                                             std::int64_t world) {
  const GroupReader reader(file, permute, world);
  const std::string_view text = permute.attribute("source_target_pairs");
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  if (!text.starts_with('{')) reader.fail();
  for (const std::vector<std::int64_t>& pair : reader.listed_groups(text)) {
    const bool fits = pair.size() == 2 && std::ranges::all_of(pair, [&](std::int64_t device) {
                        return device >= 0 && device < world;
                      });
    if (!fits) reader.fail();
    pairs.emplace_back(pair[0], pair[1]);
  }
  return pairs;
}

}  // namespace dovetail::imports

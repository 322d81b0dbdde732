// Multiplies curves knot by knot, at the sizes of all of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/rates/collective_anchor.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>

namespace dovetail::models {
namespace {

struct Times {
  double isolated_ns = 0, back_to_back_ns = 0;
};

Times times_at(const CollectiveTable& table, double bytes) {
  const auto& knots = table.knots();
  auto after = std::ranges::upper_bound(knots, bytes, {}, &CollectiveTable::Knot::bytes);
  if (after == knots.begin()) ++after;
  const CollectiveTable::Knot& knot = *std::prev(after);
  const double beyond = std::max(0.0, bytes - knot.bytes);
  return {.isolated_ns = knot.isolated_ns + knot.isolated_slope * beyond,
          .back_to_back_ns = knot.back_to_back_ns + knot.back_to_back_slope * beyond};
}

using Knots = std::vector<CollectiveTable::Knot>;

// Slopes between knots; that of the last one stays.
CollectiveTable joined(Knots knots) {
  for (std::size_t i = 0; i + 1 < knots.size(); ++i) {
    CollectiveTable::Knot& knot = knots[i];
    const CollectiveTable::Knot& next = knots[i + 1];
    const double bytes = next.bytes - knot.bytes;
    knot.isolated_slope = (next.isolated_ns - knot.isolated_ns) / bytes;
    knot.back_to_back_slope = (next.back_to_back_ns - knot.back_to_back_ns) / bytes;
  }
  return CollectiveTable(std::move(knots));
}

}  // namespace

CollectiveTable slower_of(const CollectiveTable& one, const CollectiveTable& other) {
  std::set<double> sizes;
  for (const CollectiveTable* table : {&one, &other}) {
    for (const auto& knot : table->knots()) sizes.insert(knot.bytes);
  }
  Knots knots;
  for (const double bytes : sizes) {
    const Times a = times_at(one, bytes);
    const Times b = times_at(other, bytes);
    knots.push_back({.bytes = bytes,
                     .isolated_ns = std::max(a.isolated_ns, b.isolated_ns),
                     .back_to_back_ns = std::max(a.back_to_back_ns, b.back_to_back_ns)});
  }
  const CollectiveTable::Knot& a = one.knots().back();
  const CollectiveTable::Knot& b = other.knots().back();
  knots.back().isolated_slope = std::max(a.isolated_slope, b.isolated_slope);
  knots.back().back_to_back_slope = std::max(a.back_to_back_slope, b.back_to_back_slope);
  return joined(std::move(knots));
}

CollectiveTable without_falls(const CollectiveTable& table) {
  Knots knots = table.knots();
  for (std::size_t i = knots.size() - 1; i > 0; --i) {
    const CollectiveTable::Knot& next = knots[i];
    CollectiveTable::Knot& knot = knots[i - 1];
    knot.isolated_ns = std::min(knot.isolated_ns, next.isolated_ns);
    knot.back_to_back_ns = std::min(knot.back_to_back_ns, next.back_to_back_ns);
  }
  return joined(std::move(knots));
}

CollectiveTable anchored(const CollectiveTable& model, const std::vector<Anchor>& anchors) {
  DOVETAIL_CHECK(!anchors.empty()) << "no anchor";
  std::set<double> sizes;
  for (const auto& knot : model.knots()) sizes.insert(knot.bytes);
  for (const Anchor& anchor : anchors) {
    for (const auto& knot : anchor.measured.knots()) sizes.insert(knot.bytes);
  }
  Knots knots;
  Times factor;
  for (const double bytes : sizes) {
    factor = {.isolated_ns = 1, .back_to_back_ns = 1};
    const double part = 1 / static_cast<double>(anchors.size());
    for (const Anchor& anchor : anchors) {
      const double known = std::min(bytes, anchor.measured.knots().back().bytes);
      const Times measured = times_at(anchor.measured, known);
      const Times modelled = times_at(anchor.modelled, known);
      factor.isolated_ns *= std::pow(measured.isolated_ns / modelled.isolated_ns, part);
      factor.back_to_back_ns *= std::pow(measured.back_to_back_ns / modelled.back_to_back_ns, part);
    }
    const Times time = times_at(model, bytes);
    const double most_ns = 1e3 * to_us(kLongestTime);
    knots.push_back(
        {.bytes = bytes,
         .isolated_ns = std::min(most_ns, time.isolated_ns * factor.isolated_ns),
         .back_to_back_ns = std::min(most_ns, time.back_to_back_ns * factor.back_to_back_ns)});
  }
  knots.back().isolated_slope = model.knots().back().isolated_slope * factor.isolated_ns;
  knots.back().back_to_back_slope =
      model.knots().back().back_to_back_slope * factor.back_to_back_ns;
  return joined(std::move(knots));
}

}  // namespace dovetail::models

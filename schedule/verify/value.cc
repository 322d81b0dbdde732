// Numbers sets of contributions, so that the value of a cell is a few integers and two equal sets
// are one number.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/value.h"

#include <algorithm>
#include <iterator>

namespace dovetail::schedule::verification {
namespace {

std::int64_t pack(Contribution contribution) {
  return (static_cast<std::int64_t>(contribution.debt) << 32) | contribution.micro_steps;
}

Contribution unpack(std::int64_t packed) {
  return {static_cast<std::int32_t>(packed >> 32), static_cast<SetId>(packed & 0xffffffff)};
}

}  // namespace

Sets::Sets() { intern({}); }

SetId Sets::intern(std::vector<std::int64_t> sorted) {
  const auto [found, fresh] = numbers_.emplace(std::move(sorted), sets_.end_index());
  if (fresh) sets_.push_back(found->first);
  return found->second;
}

SetId Sets::single(std::int64_t element) { return intern({element}); }

SetId Sets::unite(SetId a, SetId b) {
  if (a == b || b == 0) return a;
  if (a == 0) return b;
  if (a > b) std::swap(a, b);
  const auto [found, fresh] = unions_.emplace(std::pair(a, b), 0);
  if (fresh) {
    std::vector<std::int64_t> both;
    std::ranges::set_union(members(a), members(b), std::back_inserter(both));
    found->second = intern(std::move(both));
  }
  return found->second;
}

bool Sets::contains(SetId set, std::int64_t element) const {
  return std::ranges::binary_search(members(set), element);
}

bool Sets::disjoint(SetId a, SetId b) const {
  const std::vector<std::int64_t>& many = members(a);
  return std::ranges::none_of(
      members(b), [&](std::int64_t element) { return std::ranges::binary_search(many, element); });
}

SetId Contributions::single(std::int32_t debt, std::int32_t micro_step) {
  return sets_.single(pack({debt, steps_.single(micro_step)}));
}

std::optional<SetId> Contributions::join(SetId a, SetId b) {
  std::vector<Contribution> all = members(a);
  for (const Contribution& added : members(b)) {
    const auto same = std::ranges::find(all, added.debt, &Contribution::debt);
    if (same == all.end()) {
      all.push_back(added);
    } else {
      if (!steps_.disjoint(same->micro_steps, added.micro_steps)) return std::nullopt;
      same->micro_steps = steps_.unite(same->micro_steps, added.micro_steps);
    }
  }
  std::vector<std::int64_t> packed;
  for (const Contribution& contribution : all) packed.push_back(pack(contribution));
  std::ranges::sort(packed);
  return sets_.intern(std::move(packed));
}

std::vector<Contribution> Contributions::members(SetId set) const {
  std::vector<Contribution> result;
  for (const std::int64_t packed : sets_.members(set)) result.push_back(unpack(packed));
  return result;
}

bool Contributions::has(SetId set, std::int32_t debt) const {
  return std::ranges::any_of(sets_.members(set),
                             [&](std::int64_t packed) { return unpack(packed).debt == debt; });
}

std::int32_t Contributions::micro_steps(const Contribution& contribution) const {
  return static_cast<std::int32_t>(steps_.members(contribution.micro_steps).size());
}

}  // namespace dovetail::schedule::verification

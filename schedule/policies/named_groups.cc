// Looks named gradients up, and refuses what a bucket cannot hold.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/policies/named_groups.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/json_reader.h"

namespace dovetail::schedule {

namespace {

std::vector<OwedGradient> in_ready_order(std::vector<OwedGradient> gradients) {
  std::ranges::stable_sort(gradients, {}, &OwedGradient::producer_index);
  return gradients;
}

}  // namespace

OwedByName::OwedByName(const Program& program) : OwedByName(program, owed_gradients(program)) {}

OwedByName::OwedByName(const Program& program, const Policy& policy)
    : OwedByName(program, in_ready_order(kinds_of(program, policy).gradients)) {}

OwedByName::OwedByName(const Program& program, std::vector<OwedGradient> owed)
    : all(std::move(owed)), readers(program, all) {
  for (const OwedGradient& gradient : all) {
    by_name.emplace(program.tensor(gradient.tensor).name, kinds.size());
    kinds.push_back(key_of(program, gradient));
  }
}

std::size_t OwedByName::position(std::string_view name) const {
  const auto found = by_name.find(name);
  if (found != by_name.end()) return found->second;
  std::vector<std::string> known;
  for (const auto& [each, at] : by_name) known.push_back(each);
  std::ranges::sort(known);
  const std::string near = nearest_word(name, known);
  throw InputError("groups: no gradient \"" + std::string(name) + "\"" +
                   (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

Groups groups_named(const Program& program, const OwedByName& owed, const NamedGroups& named) {
  std::vector<char> taken(owed.all.size(), 0);
  Groups groups;
  for (const std::vector<std::string_view>& names : named) {
    GradientGroup& group = groups.emplace_back();
    group.closed_by = "own policy";
    const std::size_t first = owed.position(names.front());
    group.members.reserve(names.size());
    for (const std::string_view name : names) {
      const std::size_t at = owed.position(name);
      if (taken[at] != 0)
        throw InputError("groups: " + std::string(name) + " stands in two of them");
      if (owed.kinds[at] != owed.kinds[first]) {
        throw InputError("groups: " + std::string(names.front()) + " and " + std::string(name) +
                         " differ in process group, type or stage and cannot share a bucket");
      }
      taken[at] = 1;
      group.members.push_back(owed.all[at]);
    }
  }
  const auto left = std::ranges::find(taken, 0);
  if (left != taken.end()) {
    const OwedGradient& absent = owed.all[static_cast<std::size_t>(left - taken.begin())];
    throw InputError("groups: " + program.tensor(absent.tensor).name + " is in none of them");
  }
  return groups;
}

Schedule schedule_of(const Program& program, const OwedByName& owed, const NamedGroups& named,
                     const Policy& policy, Schedule schedule) {
  append_buckets(schedule, groups_named(program, owed, named), placement(policy));
  return schedule;
}

}  // namespace dovetail::schedule

// Buckets that somebody names, gradient by gradient, as a Schedule like a policy's.
//
//   const OwedByName owed(program);
//   schedule_of(program, owed, {{"fc2.weight", "fc2.bias"}, {"fc1.weight"}}, policy, {});
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "schedule/policies/grouping.h"

namespace dovetail::schedule {

using NamedGroups =
    std::vector<std::vector<std::string_view>>;  // names of gradients, in launch order

// The gradients that a Program owes, in ready order and by name.
struct OwedByName {
  struct Hash : std::hash<std::string_view> {
    using is_transparent = void;
  };
  std::vector<OwedGradient> all;
  BackwardReaders readers;
  std::vector<BucketKey> kinds;                                                 // parallel to all
  std::unordered_map<std::string, std::size_t, Hash, std::equal_to<>> by_name;  // position in all

  explicit OwedByName(const Program& program);
  // As they travel with the policy. REQUIRES: it can be applied to the Program.
  OwedByName(const Program& program, const Policy& policy);
  // Throws InputError, with the nearest name, for a name that is no gradient.
  [[nodiscard]] std::size_t position(std::string_view name) const;

 private:
  OwedByName(const Program& program, std::vector<OwedGradient> owed);
};

// The groups, in the order in which they are named. Throws InputError for a name that is no gradient, stands twice or not at
// all, and for gradients that cannot share a bucket.
Groups groups_named(const Program& program, const OwedByName& owed, const NamedGroups& named);

// `schedule`, which has no buckets yet, with these, placed as the policy has them. Throws InputError as groups_named.
Schedule schedule_of(const Program& program, const OwedByName& owed, const NamedGroups& named,
                     const Policy& policy, Schedule schedule);

}  // namespace dovetail::schedule

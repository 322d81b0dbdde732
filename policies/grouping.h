// What all policies share: groups of gradients, and the Schedule that is made of them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "policies/bucket_rule.h"
#include "policies/policies.h"
#include "schedule/id_table.h"

namespace dovetail::schedule {

// Gradients of one bucket, in ready order, and why no further one joined them.
struct GradientGroup {
  std::vector<OwedGradient> members;
  std::string closed_by = {};
};
using Grouping = std::vector<GradientGroup>;  // in launch order

// What gradients must share to lie in one bucket: the last is the pipeline stage of the producer.
using BucketKey = std::tuple<GroupId, DType, ReduceOp, std::int32_t>;
BucketKey key_of(const Program& program, const OwedGradient& gradient);

// The owed gradients as they travel: with micro-steps that are summed first, in the sums' dtype.
std::vector<OwedGradient> travelling(const Program& program, const PolicySpec& spec);

// Buckets that close by the rule; every key has an open bucket and a position in the list of limits of
// its own. REQUIRES: the rule has a limit.
Grouping group_by_limits(const Program& program, const std::vector<OwedGradient>& owed,
                         const BucketRule& rule);

// One bucket per group, with the mode, wait and merge of the spec.
Schedule to_schedule(const Grouping& grouping, const PolicySpec& spec);

// Batches of spec.batch buckets; what is left over goes as spec.tail says.
void launch_in_batches(Schedule& schedule, const PolicySpec& spec);

// The first op of forward or backward that reads a gradient after its last write: it needs the
// reduced value long before the optimizer.
class BackwardReaders {
 public:
  static constexpr std::size_t kNone = SIZE_MAX;
  BackwardReaders(const Program& program, const std::vector<OwedGradient>& owed);
  // Its position in program.ops, or kNone.
  [[nodiscard]] std::size_t first(TensorId gradient) const { return first_.at(gradient); }
  // A gradient that has such a reader.
  [[nodiscard]] std::optional<TensorId> any() const { return any_; }

 private:
  IdTable<TensorId, std::size_t> first_{kNone};
  std::optional<TensorId> any_;
};

// Why the Schedule launches a bucket too late for a reader in backward: a sentence, or nothing.
std::optional<std::string> late_for_a_reader(const Program& program, const Schedule& schedule);

}  // namespace dovetail::schedule

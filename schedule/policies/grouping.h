// Which gradients share a bucket: a function for each alternative of Grouping (decisions.h), and the readers
// within backward that bound it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "schedule/id_table.h"
#include "schedule/policies/bucket_rule.h"
#include "schedule/policies/policies.h"

namespace dovetail::schedule {

// Gradients of one bucket, in ready order, and why no further one joined them.
struct GradientGroup {
  std::vector<OwedGradient> members;
  std::string closed_by = {};
  std::vector<Slice> slices = {};  // where members are cut: parallel to them; empty: all are whole
  Bytes pad_to = Bytes(1);
  Bytes align_to = Bytes(1);
};
using Groups = std::vector<GradientGroup>;  // in launch order

// What gradients must share to lie in one bucket: the fourth is the pipeline stage of the producer, then
// those of sharded updates.
using BucketKey = std::tuple<GroupId, DType, ReduceOp, std::int32_t, std::optional<DType>,
                             std::optional<GroupId>>;
BucketKey key_of(const Program& program, const OwedGradient& gradient);

// The owed gradients as they travel: with micro-steps that are summed first, in the sums' dtype.
std::vector<OwedGradient> travelling(std::vector<OwedGradient> owed, const Merge& merge);

// Buckets that close by the rule; every key has an open bucket and a position in the list of limits of
// its own. REQUIRES: the rule has a limit.
Groups group_by_limits(const Program& program, const std::vector<OwedGradient>& owed,
                       const BucketRule& rule);
// Closes before exceeding the cap, and before a reader within backward (ByCap).
Groups group_by_cap(const Program& program, const std::vector<OwedGradient>& owed, Bytes cap);
// Buckets of one size, tensors cut where one ends; what is cut is copied (EqualSizes).
Groups group_equal_sizes(const Program& program, const std::vector<OwedGradient>& owed, Bytes cap);
// Modules that follow each other in forward, which is taken to be the reverse of the order in which gradients are ready, as
// long as they stay below the cap; one that is above it travels alone (ByModules).
Groups group_by_modules(const Program& program, const std::vector<OwedGradient>& owed, Bytes cap);
// The parameters of one layer, by their names (ByLayer). A parameter may stand for its gradient.
Groups group_by_layer(const Program& program, const std::vector<OwedGradient>& owed);

// The policy's Schedule with these groups in place of its own, or the reason why it cannot be as a failure. REQUIRES: they hold
// each gradient of kinds_of(program, policy) once, and each those of one kind; as apply_policy.
PolicyResult decide_groups(const Program& program, const Groups& groups, const Policy& policy);

// "transformer.h.3" of "transformer.h.3.attn.weight"; without a number the module: "head" of
// "head.weight".
std::string_view layer_of(std::string_view parameter);

// One bucket per group, behind those that are there, with mode, wait and scope of the placement.
void append_buckets(Schedule& schedule, const Groups& groups, const BucketPlacement& placement);

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

// Why the Schedule launches a bucket too late for a reader in backward: a sentence, or nothing. `owed` and `readers` are of the
// Program.
std::optional<std::string> late_for_a_reader(const Program& program,
                                             const std::vector<OwedGradient>& owed,
                                             const BackwardReaders& readers,
                                             const Schedule& schedule);

}  // namespace dovetail::schedule

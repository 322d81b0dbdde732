// What a StepModel knows of the step: the rewritten Program's ops with their costs, and where each gradient is
// ready and first touched. A position is that of an op in the rewritten Program, whose micro-steps are unrolled.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "models/costs.h"
#include "schedule/id_table.h"
#include "schedule/schedule.h"
#include "schedule/scheduled_program.h"
#include "sim/command_graph.h"

namespace dovetail::search {

inline constexpr std::int32_t kBehindAllOps = std::numeric_limits<std::int32_t>::max();

// A micro-step in which gradients are reduced: each of them, or the last one.
struct ReducingStep {
  std::vector<std::int32_t> ready;      // of each gradient: the op that completes it; rising
  std::vector<std::int32_t> first_use;  // ... the first op behind backward that touches it
  std::int32_t backward_end = 0;        // the last op of backward
  std::int32_t after_backward = kBehindAllOps;
  std::int32_t earliest_launch = 0;  // behind this op
};

// A collective of the Program's own, which occupies the compute stream.
struct OwnCollective {
  std::int32_t op = 0;
  schedule::ProcessGroup group;
  sim::TransferCost cost;
};

struct StepData {
  models::Costs costs;
  schedule::Schedule frame;  // without buckets
  schedule::Bucket bucket;   // what all buckets have in common
  // Streams, ranks and the rewritten Program; its commands are not kept.
  schedule::ScheduledProgram program;
  schedule::ProcessGroup group;
  sim::TransferCost travel;  // of every bucket, but for its time
  bool scales_before = false;
  bool scales_after = false;

  // Of each op. Host times are those of issuing.
  std::vector<OpId> ids;
  std::vector<models::KernelClass> kernel;
  std::vector<std::int64_t> issue;
  std::vector<std::vector<std::int64_t>> work;  // [lane][op] without the launch gap
  std::vector<step::Work> alone;                // of the first lane, with it
  std::vector<OwnCollective> own;               // by op

  std::vector<TensorId> gradients;                         // in ready order
  schedule::IdTable<TensorId, std::int32_t> position{-1};  // of a gradient among them
  std::vector<std::int64_t> bytes;                         // of each gradient
  std::vector<std::int64_t> bytes_sum;                     // of those before it, one more in all
  std::vector<std::int64_t>
      spaced_sum;                      // the same with the space that alignment leaves behind each
  std::vector<ReducingStep> reducing;  // in order

  [[nodiscard]] std::int32_t ops() const { return static_cast<std::int32_t>(ids.size()); }
  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(gradients.size()); }
  [[nodiscard]] bool inline_host() const {
    return costs.host.kind == models::HostModel::Kind::Inline;
  }
  [[nodiscard]] std::int64_t launch_gap() const {
    return inline_host() ? 0 : costs.host.launch_gap.count();
  }
  // From when the host has issued a command until it may start, without the gap that is part of its work.
  [[nodiscard]] std::int64_t launch_lead() const {
    return costs.host.launch_latency.count() - launch_gap();
  }
};

}  // namespace dovetail::search

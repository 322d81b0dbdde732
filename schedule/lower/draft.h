// A ScheduledProgram in the making: what the passes of lower hand to each other.
//
// Each pass is a function on a Draft (the whole job) or on a RoleDraft (what one role issues). A
// place in the step is a position in the rewritten Program's op list. Positions are good here, and
// only here, because no pass after the rewrites changes that list.
//
//   rewrite.h   the Program: pipeline, micro-steps, folded factors, sharded updates
//   layout.h    the buffers, the streams, and which role runs which bucket
//   launch.h    after which op each bucket's collective is issued
//   wait.h      before which op, or which launch, the compute stream waits for it
//   gather.h    where the parameters of sharded buckets are completed
//   messages.h  the Program's own communication that leaves the compute stream
//   emit.h      the commands: one walk over the ops and over all that travels (walk.h)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/rational.h"
#include "schedule/id_table.h"
#include "schedule/lower/pass_line.h"
#include "schedule/lower/pipeline/order.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/scheduled_program.h"
#include "schedule/timetable.h"

namespace dovetail::schedule::internal {

// One Reduction, on the tensor that travels for it: the gradient, or its sum over micro-steps. The
// debts of one tensor form a list.
struct Debt {
  GroupId group;
  ReduceOp op = ReduceOp::Average;
  std::int32_t next = -1;  // in Draft::debts; -1 ends the list
};

// What one bucket of the Schedule becomes.
struct BucketPlan {
  std::int32_t role = 0;
  StreamId stream;                   // kComputeStream: inline
  BucketId buffer;                   // its own, or that of the bucket whose collective it continues
  std::optional<std::size_t> after;  // position of that bucket in Schedule::buckets
  bool continued = false;            // by a later bucket, which is then the one to wait for
  ReduceOp reduce = ReduceOp::Average;
  ReduceOp reduce_replicas = ReduceOp::Average;
  std::optional<Rational> before;      // a Scale in front of the collective
  std::optional<Rational> afterwards;  // ... and behind it
};

// A bucket of parameters that an all-gather completes: after its sharded update, or, of a frozen block, which
// has none, whenever it is used.
struct GatherPlan {
  BucketId parameters;
  BucketId
      named;  // as gathers of the Schedule call it: the bucket of the gradients, or the frozen block
  GroupId group;
  std::int32_t role = 0;
  std::optional<std::size_t> bucket = {};  // of the gradients: position in Schedule::buckets
  OpId update = {};                        // of the bucket
};

// Ops that stand in the same order in every micro-step: those of one virtual stage and phase. Sends apart, as a receive may
// stand before the reader of another message.
struct Repeated {
  std::int32_t micro_step = 0;
  std::int32_t stage = 0;
  Phase phase = Phase::Forward;
  bool sends = false;
  friend auto operator<=>(const Repeated&, const Repeated&) = default;
};

struct Draft {
  const Schedule& schedule;
  ScheduledProgram out = {};  // out.program is the rewritten Program
  std::vector<PassLine> report = {};
  IdTable<TensorId, TensorId> travels{TensorId{-1}};  // of an owed gradient: what its buckets hold
  IdTable<TensorId, std::int32_t> debt{-1};           // of what travels: first in `debts`
  std::vector<Debt> debts = {};
  IdTable<TensorId, Rational> left{Rational()};  // of an owed gradient: what its buckets must scale
  std::vector<BucketPlan> buckets = {};          // parallel to Schedule::buckets
  std::vector<GatherPlan> gathers = {};
  std::int32_t next_command = 0;
  std::int32_t next_event = 0;
  // Of index_ops (survey.h): where the ops of each role stand, rising; where an op stands; of each Repeated the positions of its ops, and at which place among them an
  // op stands.
  std::vector<std::vector<std::size_t>> ops_of_role = {};
  PipelineShape shape = {};
  IdTable<OpId, std::size_t> positions{kEnd};
  std::map<Repeated, std::vector<std::size_t>> repeated = {};
  std::vector<std::size_t> place = {};

  [[nodiscard]] const Program& program() const { return out.program; }
  [[nodiscard]] const std::vector<std::size_t>& ops_of(std::int32_t role) const {
    return ops_of_role[static_cast<std::size_t>(role)];
  }
  // Without words there was nothing to do.
  void tell(LoweringPass pass, std::string words) {
    if (!words.empty()) report.push_back({pass, std::move(words)});
  }
  // "schedule naive: bucket 3", as messages begin.
  [[nodiscard]] std::string name(const Bucket& bucket) const {
    return "schedule " + schedule.policy + ": bucket " + std::to_string(bucket.id.value);
  }
  [[nodiscard]] std::string name(const ParameterGather& gather) const {
    return "schedule " + schedule.policy + ": gather of bucket " +
           std::to_string(gather.bucket.value) + " for " + std::string(to_string(gather.readers));
  }
  [[nodiscard]] std::string name(const OpPlacement& placement) const {
    const std::size_t at = positions.at(placement.op);
    return "schedule " + schedule.policy + ": collective " +
           (at == kEnd ? std::to_string(placement.op.value) : program().ops[at].name);
  }
};

// All that touches one of the tensors that travel, in program order.
struct Access {
  std::size_t op = 0;
  bool writes = false;
  std::int32_t next = -1;  // in RoleDraft::accesses
};

struct RoleDraft {
  std::int32_t role = 0;
  // By micro-step: the role's last op before its optimizer (and before its sums over micro-steps, if
  // every micro-step reduces), and the first op after that one.
  std::vector<std::size_t> backward_end;
  std::vector<std::size_t> after_backward;
  std::vector<Access> accesses;
  IdTable<TensorId, std::int32_t> first_access{-1};
  std::vector<Travel> travels;  // buckets, gathers, messages: each in launch order
};

}  // namespace dovetail::schedule::internal

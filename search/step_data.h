// What a StepModel knows of the step: the rewritten Program's ops with their costs, where each gradient is ready and
// first touched, and, where updates are sharded, which update each gradient belongs to and who reads its parameter. A
// position is that of an op in `ops`: the rewritten Program, whose micro-steps are unrolled, without the updates that
// a placement cuts into shards.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "models/costs/costs.h"
#include "schedule/id_table.h"
#include "schedule/schedule.h"
#include "schedule/scheduled_program.h"
#include "schedule/timetable.h"
#include "search/step_model.h"
#include "sim/command_graph.h"

namespace dovetail::search {

inline constexpr std::int32_t kBehindAllOps = schedule::kEnd;
inline constexpr std::int32_t kBeforeAllOps = -1;

// One op on the compute stream, with its cost.
struct StepOp {
  std::int64_t issue = 0;  // of its host
  std::int32_t role = 0;
  models::KernelClass kernel = models::KernelClass::Other;
  // A collective of the Program's own, or one end of a send: index into StepData::own.
  std::optional<std::int32_t> own = {};
  bool is_message = false;  // it does not occupy the compute stream
  bool is_send = false;     // of a pipeline, which its rewriting added
};

struct OwnCollective {
  schedule::ProcessGroup group;
  sim::TransferCost cost;
  std::int32_t meeting = 0;  // index into StepData::meetings
};

// What the ranks of one stage issue; without a pipeline there is one.
struct StepRole {
  std::vector<std::size_t> ops;
  std::vector<schedule::Travel> messages;  // in the order in which they are issued
};

// Gradients of which any that follow each other may share a bucket.
struct GradientKind {
  std::int32_t role = 0;
  schedule::ProcessGroup group;
  std::optional<schedule::ProcessGroup> replicas = std::nullopt;  // of shards
  std::int64_t element = 1;                                       // bytes of one of a gradient,
  std::int64_t parameter = 1;  // and where updates are sharded of its parameter
  std::int64_t spacing = 1;    // bytes: gradients begin at multiples of it in a bucket
  bool scales_before = false, scales_after = false;
  bool is_frozen = false;  // parameters of a block that has no gradients

  [[nodiscard]] std::int64_t spaced(std::int64_t size) const {
    return (size + spacing - 1) / spacing * spacing;
  }
  // Of gradients of this size.
  [[nodiscard]] Bytes parameters(std::int64_t size) const {
    return Bytes(size / element * parameter);
  }
};

// A micro-step in which gradients are reduced: each of them, or the last one.
struct ReducingStep {
  std::vector<std::int32_t> ready;            // of each gradient: the op that completes it,
  bool is_rising = true;                      // in each kind
  std::vector<std::int32_t> first_use;        // ... the first op behind backward that touches it
  std::vector<std::int32_t> earliest_launch;  // ... behind this op
  bool is_held = false;                       // some of these are behind the first op
  // Of each role.
  std::vector<std::int32_t> backward_end;    // the last op of backward
  std::vector<std::int32_t> after_backward;  // the first one behind it

  [[nodiscard]] std::int32_t ready_of(const BucketChoice& choice) const {
    const auto begin = ready.begin() + choice.begin;
    const auto end = ready.begin() + choice.end;
    return is_rising ? *(end - 1) : *std::max_element(begin, end);
  }
};

// The first and last of some ops.
struct Uses {
  std::int32_t first = kBehindAllOps;
  std::int32_t last = kBeforeAllOps;
  void join(const Uses& other) {
    first = std::min(first, other.first);
    last = std::max(last, other.last);
  }
};

// An update that each bucket runs for the part that its gradients are.
struct CutUpdate {
  schedule::Op op;             // without its operands, with the work of all its gradients
  std::int64_t elements = 0;   // of these
  std::int32_t before_op = 0;  // where it stands
};

// A micro-step in which parameters are gathered.
struct GatheringStep {
  std::vector<std::int32_t> begin;  // for each role
  std::vector<std::int32_t> ops;    // of forward and backward, rising
  std::vector<Uses> forward,
      backward;  // readers of each gradient's parameter, then of each frozen block
};

struct Sharding {
  std::vector<CutUpdate> updates;          // in order
  std::vector<std::int32_t> update_of;     // of each gradient
  std::vector<std::int32_t> first_reader;  // of each gradient's parameter; kBehindAllOps: none
  std::vector<GatheringStep> steps;        // ParameterSync::EachUse; else empty
};

struct StepData {
  models::Costs costs;
  schedule::Schedule frame;  // without buckets
  schedule::Bucket bucket;   // what all buckets have in common
  // Streams, ranks and the rewritten Program; its commands are not kept.
  schedule::ScheduledProgram program;

  std::vector<StepOp> ops;
  std::vector<OpId> ids;         // of each op
  std::vector<step::Work> work;  // [op][lane], with the launch gap
  std::vector<OwnCollective> own;
  std::vector<std::int32_t> meetings;  // of each: how many roles meet
  std::vector<StepRole> roles;
  std::int32_t streams = 1 + kMostStreams;  // those of sends come last

  std::vector<TensorId> gradients;                         // kind by kind, in ready order
  schedule::IdTable<TensorId, std::int32_t> position{-1};  // of a gradient among them
  std::vector<GradientKind> kinds;
  std::vector<std::int32_t> kind_of;  // of each gradient
  std::vector<std::int64_t>
      bytes;  // of each gradient; then of frozen blocks, which count as more of them
  std::vector<std::int64_t> bytes_sum;   // of those before it, one more in all
  std::vector<std::int64_t> spaced_sum;  // the same, each with the space behind it
  std::vector<ReducingStep> reducing;    // in order
  std::optional<Sharding> sharding;      // where gradients are reduce-scattered
  // Of each micro-step but the last: what each op of that is in it, which `repeated` numbers. Where each reduces or gathers.
  std::vector<std::vector<std::int32_t>> repetitions;
  std::vector<std::int32_t> repeated;  // of all ops: -1 for those that are not repeated
  // Instead of what reductions cost: a rate, and a start-up of the last of each role (relaxed_step).
  std::optional<models::LinearPiece> relaxed;

  [[nodiscard]] std::int32_t same_op(std::size_t micro_step, std::int32_t op) const {
    if (micro_step >= repetitions.size()) return op;
    const std::int32_t number = repeated[static_cast<std::size_t>(op)];
    return number < 0 ? kBeforeAllOps : repetitions[micro_step][static_cast<std::size_t>(number)];
  }
  // Where a bucket is launched at the earliest in a micro-step that reduces, if not when ready.
  [[nodiscard]] std::int32_t launch_in(const ReducingStep& step, const BucketChoice& choice) const {
    if (&step == &reducing.back()) return choice.launch;
    const std::int32_t end = step.backward_end[static_cast<std::size_t>(kind(choice).role)];
    const std::int32_t same =
        same_op(static_cast<std::size_t>(&step - reducing.data()), choice.launch);
    const bool behind_all = same == kBeforeAllOps || choice.launch == backward_end_for(choice);
    return behind_all ? end : std::min(same, end);
  }
  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(gradients.size()); }
  [[nodiscard]] const GradientKind& kind(std::int32_t gradient) const {
    return kinds[static_cast<std::size_t>(kind_of[static_cast<std::size_t>(gradient)])];
  }
  [[nodiscard]] const GradientKind& kind(const BucketChoice& choice) const {
    return kind(choice.begin);
  }
  // One block of the frame as a choice.
  [[nodiscard]] BucketChoice frozen(std::size_t block) const {
    const auto at = count() + static_cast<std::int32_t>(block);
    return {.begin = at, .end = at + 1, .mode = frame.frozen[block].mode};
  }
  [[nodiscard]] bool is_frozen(const BucketChoice& choice) const { return choice.begin >= count(); }
  // Bytes of one gradient that the bucket holds.
  [[nodiscard]] std::int64_t held(const BucketChoice& choice, std::int32_t gradient) const;
  // Of some that follow each other; of all of them, and with the space between them.
  [[nodiscard]] std::int64_t held(const BucketChoice& choice, std::int32_t begin,
                                  std::int32_t end) const;
  [[nodiscard]] std::int64_t payload(const BucketChoice& choice) const {
    return held(choice, choice.begin, choice.end);
  }
  [[nodiscard]] std::int64_t extent(const BucketChoice& choice) const;
  // What travels, with the padding behind it, and what that costs.
  [[nodiscard]] Bytes size(const BucketChoice& choice) const;
  [[nodiscard]] sim::TransferCost travel(const BucketChoice& choice) const;
  // Of the shard of it that a rank holds, over its replicas. REQUIRES: there are some.
  [[nodiscard]] sim::TransferCost replicate(const BucketChoice& choice) const;
  // The gather of its parameters, and what one rank does to update them, as an op of its own. REQUIRES: sharding.
  [[nodiscard]] sim::TransferCost gather(const BucketChoice& choice) const;
  [[nodiscard]] schedule::Op update_of(const BucketChoice& choice) const;
  // Updates of some buckets have measured times of their own, by their names.
  bool names_updates = false;
  [[nodiscard]] std::int64_t shards(const GradientKind& kind) const {
    return sharding ? kind.group.size() : 1;
  }
  // The end of backward in the bucket's role.
  [[nodiscard]] std::int32_t backward_end_for(const BucketChoice& choice) const {
    return reducing.back().backward_end[static_cast<std::size_t>(kind(choice).role)];
  }
  // Parameters are gathered before each use.
  [[nodiscard]] bool gathers_each_use() const { return sharding && !sharding->steps.empty(); }

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

// The gathers of a placement before each use, in the order of their first uses.
struct GatherStop {
  std::size_t bucket = 0;
  schedule::GatherFor readers = schedule::GatherFor::Forward;
  std::int32_t first_use = 0;  // in the last micro-step
};
std::vector<GatherStop> gathers_of(const StepData& data, std::span<const BucketChoice> choices);
// Whom a gather serves in a micro-step.
Uses uses_of(const GatheringStep& step, const BucketChoice& choice, schedule::GatherFor readers);

}  // namespace dovetail::search

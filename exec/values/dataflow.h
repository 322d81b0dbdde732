// What every op of a plan must find in memory when its known inputs went the way that the Program
// says, on one rank: the law of the house as numbers.
//
// The Program is executed once, in program order, on formulas: a tensor's content is a combination of
// what producers wrote (known_values.h, Term). No stream, bucket or wait of the plan is looked at; a
// gradient that owes reductions is taken as reduced after its last write, and its factor is what is
// owed. So whatever the schedule did with streams, buckets, scaling, micro-steps and shards, the
// optimizer must see
//     sum over ranks and micro-steps x scale x 1 / degree (of averages)
// where the scale of the debt holds 1 / k already. The debts are those of the Program that the user gave,
// where the plan knows them (ScheduledProgram::owed), and not what lowering made of them. Observed are:
// what updates read (times their own rescale factor), readers of reduced gradients in backward, first readers of what an op that is a
// collective brought, norms, and parameters after the all-gather of their shards.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/values/content.h"
#include "schedule/scheduled_program.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace dovetail::exec::values {

// `writes_left` of what exists before the step.
inline constexpr std::int32_t kInput = 0x7FFF;

// What a producer writes.
struct Production {
  TensorId tensor;
  std::int32_t writes_left = 0;
  std::int32_t micro_step = 0;
  double factor = 1;  // of the loss gradient
};

// A look at a tensor by the op that reads it, before it computes.
struct Observation {
  OpId op;
  TensorId tensor;
  // Of a sharded update: the bucket and the place among its members; then only the shard is seen.
  std::optional<BucketId> bucket = std::nullopt;
  std::size_t member = 0;
  double factor = 1;  // with which the op multiplies what it reads
  Content expected = {};
  // Set for a norm: the sum of the squares of these is expected, and the tensor is one number.
  std::vector<Content> squares = {};
  bool is_of_previous_step = false;  // a parameter that is gathered in the next step
  // Of a parameter: the type in which its gradient was summed, before it was rounded to its own.
  std::optional<schedule::DType> summed_in = std::nullopt;
};

// What memory holds after the step, and likewise.
struct Remains {
  TensorId tensor;
  Content expected;
  std::optional<schedule::DType> summed_in = std::nullopt;
};

struct Expectations {
  std::map<OpId, std::vector<Production>> productions;
  std::vector<TensorId> inputs;  // exist before the step and are communicated: known values too
  // Of these each rank's shard exists before the step, and holds a known value of that rank from its own first element
  // on: frozen parameters, which nothing updates.
  std::vector<BucketId> frozen;
  std::vector<TensorId> sums;  // merged gradients: zero before the first step
  std::vector<Observation> observations;
  std::vector<Remains> at_end;
};

// The value that FillLossGradient gives in this micro-step; 1 where there is none.
double loss_factor(const schedule::Program& program, std::int32_t micro_step);

Expectations expectations(const schedule::ScheduledProgram& plan, Rank rank);

}  // namespace dovetail::exec::values

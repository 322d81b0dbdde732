// Training steps built op by op, for tests of policies: who produces which gradients, who reads
// them, and over which process groups they are owed.
//
//   StepBuilder step(ReduceOp::Average);
//   const GroupId dp = step.group(4);
//   step.backward("fc2", {{1000, dp}, {10, dp}});      one op, two gradients: fc2.0 and fc2.1
//   Program program = step.build(Update{});            with one update per gradient
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedule/program.h"
#include "tests/support/program_builder.h"

namespace dovetail::testing {

struct GradientOf {
  std::int64_t elements = 1;
  GroupId group;
  schedule::DType dtype = schedule::DType::F32;
};

enum class LossFill { Present, Absent };

class StepBuilder {
 public:
  explicit StepBuilder(schedule::ReduceOp reduction = schedule::ReduceOp::Average,
                       LossFill fill = LossFill::Present);

  // Ranks 0 .. size-1.
  GroupId group(std::int64_t size);
  // A backward op that finishes these gradients, which it calls "name.0", "name.1", ...
  std::vector<TensorId> backward(const std::string& name, const std::vector<GradientOf>& gradients);
  // A backward op that reads a gradient and writes an activation.
  void reader(const std::string& name, TensorId gradient);
  // An all-reduce over `group` that belongs to the model: it reads and writes the gradient.
  void tensor_parallel(TensorId gradient, GroupId group);
  // One more reduction that the gradient owes.
  void owe(TensorId gradient, GroupId group);

  // With one update per gradient, whose effect is this. The builder is spent.
  schedule::Program build(const schedule::Effect& update);

 private:
  void op(const std::string& name, schedule::Phase phase, std::vector<TensorId> reads,
          std::vector<TensorId> writes, schedule::Effect effect = schedule::Opaque{});

  schedule::ReduceOp reduction_;
  ProgramBuilder build_{"step"};
  std::vector<TensorId> gradients_;
  TensorId loss_;
};

}  // namespace dovetail::testing

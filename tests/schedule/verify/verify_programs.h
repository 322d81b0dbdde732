// A small training step with everything that verify follows, and ways to break its plans.
//
//   forward    l0.forward   l1.forward ...
//   backward   loss.fill    ... l1.backward  l0.backward     each reads the next layer's l.out.grad
//   optimizer  ... l1.update  l0.update                      momentum: rescale 1
//   owes       l.grad: average over dp (all ranks)
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/lower/lower.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "schedule/scheduled_program.h"
#include "schedule/verify/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/schedule/named.h"
#include "tests/support/program_builder.h"

namespace dovetail::schedule::verify_test {

inline constexpr GroupId kDp{0};

// All ranks owe over kDp; every op moves 48 bytes.
struct TrainingBuilder : dovetail::testing::ProgramBuilder {
  explicit TrainingBuilder(std::int32_t world) : ProgramBuilder("training", world) { ranks("dp"); }

  OpId op(const std::string& name, Phase phase, std::vector<TensorId> reads,
          std::vector<TensorId> writes, Effect effect = Opaque{}) {
    return ProgramBuilder::op(name, phase, MemoryWork{Bytes(48), Flop(0)}, std::move(reads),
                              std::move(writes), effect);
  }
};

// Layers with so many parameters each.
inline Program training(const std::vector<std::int64_t>& elements, std::int32_t world = 2) {
  TrainingBuilder build(world);
  std::vector<TensorId> weight, out, grad;
  for (std::size_t i = 0; i < elements.size(); ++i) {
    const std::string name = "l" + std::to_string(i);
    weight.push_back(build.tensor(name, TensorKind::Parameter, elements[i]));
    out.push_back(build.tensor(name + ".out", TensorKind::Activation, 4));
    std::vector<TensorId> reads{weight[i]};
    if (i > 0) reads.push_back(out[i - 1]);
    build.op(name + ".forward", Phase::Forward, reads, {out[i]});
  }
  TensorId arriving = build.tensor("loss.grad", TensorKind::Activation, 1);
  build.op("loss.fill", Phase::Backward, {}, {arriving}, FillLossGradient{});
  grad.resize(elements.size());
  for (std::size_t i = elements.size(); i-- > 0;) {
    const std::string name = "l" + std::to_string(i);
    grad[i] = build.tensor(name + ".grad", TensorKind::Gradient, elements[i]);
    const TensorId out_grad = build.tensor(name + ".out.grad", TensorKind::Activation, 4);
    build.op(name + ".backward", Phase::Backward, {weight[i], out[i], arriving},
             {grad[i], out_grad});
    build.owe(grad[i], kDp);
    arriving = out_grad;
  }
  for (std::size_t i = elements.size(); i-- > 0;) {
    const std::string name = "l" + std::to_string(i);
    const TensorId state = build.tensor(name + ".state", TensorKind::OptimizerState, elements[i]);
    build.op(name + ".update", Phase::Optimizer, {grad[i], weight[i], state}, {weight[i], state},
             Update{.elementwise = true, .rescale = Rational()});
  }
  return build.program;
}

// The same on four ranks, as experts make it: gradients of layers with odd numbers owe over the pairs
// {0, 2} and {1, 3}, parameters are bf16, and a norm of all gradients precedes the updates.
inline constexpr GroupId kExperts{1};
inline Program with_experts(const std::vector<std::int64_t>& elements) {
  Program program = training(elements, 4);
  program.groups.push_back({kExperts, "edp", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2});
  const TensorId norm{200};
  Op clip{.id = OpId{200},
          .name = "norm",
          .phase = Phase::Optimizer,
          .work = MemoryWork{.bytes = Bytes(960), .flop = Flop(0)},
          .reads = {},
          .writes = {norm},
          .effect = GlobalNorm{}};
  for (Reduction& owed : program.reductions) {
    const std::string& name = program.tensor(owed.gradient).name;
    if ((name[1] - '0') % 2 == 1) owed.group = kExperts;
    clip.reads.push_back(owed.gradient);
  }
  for (Tensor& tensor : program.tensors) {
    if (tensor.kind == TensorKind::Parameter) tensor.dtype = DType::BF16;
  }
  program.tensors.push_back({.id = norm, .name = "norm", .shape = {1}});
  for (Op& op : program.ops) {
    if (op.phase == Phase::Optimizer) op.reads.push_back(norm);
  }
  program.ops.insert(std::ranges::find(program.ops, Phase::Optimizer, &Op::phase), clip);
  return program;
}

// One bucket per entry, each the gradients that begin with these names.
inline Schedule buckets_of(const Program& program,
                           const std::vector<std::vector<std::string>>& layers) {
  Schedule schedule;
  schedule.policy = "hand";
  for (std::size_t i = 0; i < layers.size(); ++i) {
    Bucket bucket;
    bucket.id = BucketId{static_cast<std::int32_t>(i)};
    bucket.group = kDp;
    for (const std::string& layer : layers[i]) {
      bucket.gradients.emplace_back(tensor_named(program, layer + ".grad"));
    }
    schedule.buckets.push_back(bucket);
  }
  return schedule;
}

inline std::vector<Command>& commands_of(ScheduledProgram& plan, std::size_t role = 0) {
  return plan.roles[role].commands;
}

// The n-th command of which the predicate is true.
inline std::size_t find_command(const ScheduledProgram& plan,
                                const std::function<bool(const Command&)>& is, int nth = 0,
                                std::size_t role = 0) {
  const std::vector<Command>& commands = plan.roles[role].commands;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    if (is(commands[i]) && nth-- == 0) return i;
  }
  ADD_FAILURE() << "there is no such command";
  return 0;
}

template <class A>
std::size_t find(const ScheduledProgram& plan, int nth = 0, std::size_t role = 0) {
  return find_command(
      plan, [](const Command& command) { return std::holds_alternative<A>(command.action); }, nth,
      role);
}

inline void erase(ScheduledProgram& plan, std::size_t index, std::size_t role = 0) {
  auto& commands = commands_of(plan, role);
  commands.erase(commands.begin() + static_cast<std::ptrdiff_t>(index));
}

// Moves a command to stand before the one that is at `to` now.
inline void move(ScheduledProgram& plan, std::size_t from, std::size_t to) {
  auto& commands = commands_of(plan);
  const Command moved = commands[from];
  commands.insert(commands.begin() + static_cast<std::ptrdiff_t>(to), moved);
  erase(plan, from < to ? from : from + 1);
}

inline std::size_t run_of(const ScheduledProgram& plan, const std::string& op,
                          std::size_t role = 0) {
  return find_command(
      plan,
      [&](const Command& command) {
        const auto run = op_run_by(command);
        return run && plan.program.op(*run).name == op;
      },
      0, role);
}

// "wrong scale: op l0.update (c9) reads ...", one line each.
inline std::vector<std::string> reasons(const Program& original, const ScheduledProgram& plan,
                                        const Merge& merge = {}) {
  std::vector<std::string> lines;
  for (const Problem& problem : verify(original, plan, merge)) {
    lines.push_back(std::string(to_string(problem.kind)) + ": " + problem.message);
  }
  return lines;
}

// Of the commands alone: the plan's own Program says what is owed.
inline std::vector<std::string> reasons(const ScheduledProgram& plan) {
  return reasons(plan.program, plan);
}

}  // namespace dovetail::schedule::verify_test

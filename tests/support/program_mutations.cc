// What a wrong rewrite would do to the plan's own Program: the commands may even fit to it, so that only
// the Program that the user gave can tell.
//
// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <map>
#include <set>
#include <utility>

#include "tests/support/random_language.h"

namespace dovetail::testing {
namespace {

using schedule::Accumulate;
using schedule::Op;
using schedule::ProblemKind;
using schedule::Reduction;
using schedule::RunOp;
using schedule::ScheduledProgram;

Mutation mutation(std::string name, ScheduledProgram plan) {
  return {std::move(name), {ProblemKind::OtherProgram}, std::move(plan)};
}

std::size_t any_of(Random& random, std::size_t count) {
  return static_cast<std::size_t>(random.between(0, static_cast<std::int64_t>(count) - 1));
}

std::optional<Mutation> drop_a_debt(Random& random, ScheduledProgram plan) {
  auto& debts = plan.program.reductions;
  if (debts.empty()) return std::nullopt;
  debts.erase(debts.begin() + static_cast<std::ptrdiff_t>(any_of(random, debts.size())));
  return mutation("a debt dropped", std::move(plan));
}

std::optional<Mutation> double_a_debt(Random& random, ScheduledProgram plan) {
  auto& debts = plan.program.reductions;
  if (debts.empty()) return std::nullopt;
  Rational& scale = debts[any_of(random, debts.size())].scale;
  scale = scale * Rational(2);
  return mutation("a debt doubled", std::move(plan));
}

// 1/k owed once more, and applied once more in the last sum of every gradient.
std::optional<Mutation> divide_twice(Random&, ScheduledProgram plan) {
  schedule::Program& program = plan.program;
  if (program.micro_steps < 2 || program.reductions.empty()) return std::nullopt;
  const Rational part(1, program.micro_steps);
  std::map<TensorId, Accumulate*> last;  // by sum
  for (Op& op : program.ops) {
    auto* sum = std::get_if<Accumulate>(&op.effect);
    if (sum != nullptr && program.tensor(op.writes.front()).merges) last[op.writes.front()] = sum;
  }
  for (auto& [tensor, sum] : last) sum->factor = sum->factor * part;
  std::set<TensorId> divided;
  for (Reduction& debt : program.reductions) {
    if (divided.insert(debt.gradient).second) debt.scale = debt.scale * part;
  }
  return mutation("an average over micro-steps divided twice", std::move(plan));
}

// Neither in the plan's Program nor among its commands.
std::optional<Mutation> forget_an_update(Random& random, ScheduledProgram plan) {
  std::vector<OpId> updates;
  for (const Op& op : plan.program.ops) {
    if (std::holds_alternative<schedule::Update>(op.effect) ||
        std::holds_alternative<schedule::ShardUpdate>(op.effect)) {
      updates.push_back(op.id);
    }
  }
  if (updates.empty()) return std::nullopt;
  const OpId gone = updates[any_of(random, updates.size())];
  std::erase_if(plan.program.ops, [&](const Op& op) { return op.id == gone; });
  for (schedule::RankProgram& role : plan.roles) {
    std::erase_if(role.commands, [&](const schedule::Command& command) {
      const auto run = op_run_by(command);
      return run && *run == gone;
    });
  }
  return mutation("an update left out of the Program", std::move(plan));
}

using Way = std::optional<Mutation> (*)(Random&, ScheduledProgram);
constexpr std::array<Way, 4> kWays = {drop_a_debt, double_a_debt, divide_twice, forget_an_update};

}  // namespace

std::size_t program_mutation_kinds() { return kWays.size(); }

std::optional<Mutation> mutate_program(Random& random, const ScheduledProgram& legal,
                                       std::size_t index) {
  return kWays.at(index % kWays.size())(random, legal);
}

}  // namespace dovetail::testing

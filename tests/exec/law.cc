// Trains a job once with a Schedule and once without, and compares the weights bit for bit: a
// legal Schedule changes time, never results.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/law.h"

#include "base/error.h"
#include "schedule/policies/policies.h"

#include <gtest/gtest.h>

#include <sstream>

namespace dovetail::exec::testing {
namespace {

using schedule::Program;
using schedule::ReduceOp;
using schedule::Schedule;
using training::training_program;
using training::TrainingOptions;

std::string name(const TrainingOptions& options) {
  std::ostringstream text;
  const bool adam = options.optimizer == training::Optimizer::Adam;
  text << options.stages << " stages " << options.world_size << " ranks " << options.samples
       << " samples " << (adam ? "adam" : "momentum");
  if (options.embedding == training::Embedding::TwoParts) text << " two-parts";
  if (options.embedding == training::Embedding::Untied) text << " untied";
  if (options.second_order != training::SecondOrder::None) text << " penalised";
  if (options.max_norm > 0) text << " clipped at " << options.max_norm;
  return text.str();
}

Schedule naive(const Program& program) {
  return schedule::make_schedule(program, schedule::parse_policy("naive"));
}

}  // namespace

std::string to_string(const Combination& combination) {
  std::ostringstream text;
  const schedule::Merge& merge = combination.merge;
  text << name(combination.options) << ", " << combination.policy;
  if (combination.scale) text << ", scale " << to_string(*combination.scale);
  text << ", k " << merge.micro_steps << ' ' << to_string(merge.op) << ' ' << to_string(merge.sync)
       << ' ' << to_string(merge.dtype) << ", " << to_string(combination.pipeline.kind) << ' '
       << to_string(combination.pipeline.alignment);
  return text.str();
}

// A sum over k micro-steps learns as fast as their average does: else it diverges, and rounding is
// all that one sees.
training::Hyperparameters hyperparameters(const Combination& combination) {
  training::Hyperparameters result;
  result.max_norm = combination.options.max_norm;
  const schedule::Merge& merge = combination.merge;
  if (merge.micro_steps > 1 && merge.op == ReduceOp::Sum) result.learning_rate /= merge.micro_steps;
  return result;
}

Schedule schedule_of(const Combination& combination) {
  const schedule::Policy spec = schedule::parse_policy(combination.policy);
  Schedule schedule = make_schedule(training_program(combination.options), spec);
  if (combination.scale) schedule.scale = *combination.scale;
  schedule.merge = combination.merge;
  schedule.pipeline = combination.pipeline;
  return schedule;
}

const Trained& Law::reference(const Combination& combination) {
  TrainingOptions options = combination.options;
  const std::int32_t k = combination.merge.micro_steps;
  const bool penalised = options.second_order != training::SecondOrder::None;
  const bool sum = k > 1 && combination.merge.op == ReduceOp::Sum;
  options.world_size /= options.stages;
  options.stages = 1;
  options.chunks = 1;
  if (!penalised) options.samples *= k;
  std::ostringstream key;
  key << name(options) << (sum ? " sum " : " average ") << k;
  const auto known = references_.find(key.str());
  if (known != references_.end()) return known->second;

  Program program = training_program(options);
  Schedule schedule = naive(program);
  if (penalised) {
    schedule.merge = {
        .micro_steps = k, .op = combination.merge.op, .sync = schedule::SyncPoint::EveryMicroStep};
  } else if (sum) {
    for (schedule::Reduction& reduction : program.reductions) reduction.scale = Rational(k);
  }
  const auto trained = references_.emplace(
      key.str(), train(legal_plan(program, schedule), steps_, hyperparameters(combination)));
  EXPECT_EQ(trained.first->second.disagreement, "") << key.str();
  return trained.first->second;
}

std::optional<std::string> Law::hold(const Combination& combination, Runs runs) {
  SCOPED_TRACE(to_string(combination));
  try {
    const Program program = training_program(combination.options);
    const schedule::ScheduledProgram plan = legal_plan(program, schedule_of(combination));
    const training::Hyperparameters learning = hyperparameters(combination);
    const Trained trained = train(plan, steps_, learning);
    EXPECT_EQ(differences(reference(combination), trained), "");
    EXPECT_EQ(trained.disagreement, "");
    if (runs == Runs::Twice) {
      EXPECT_EQ(train(plan, steps_, learning).weights, trained.weights);
    }
    ++held_;
    return std::nullopt;
  } catch (const InputError& error) {
    return error.what();
  }
}

}  // namespace dovetail::exec::testing

// Draws training jobs and Schedules for them: every variant of the model in turn, the Schedule at
// random from a seed.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/drawn.h"

#include "base/error.h"
#include "base/random.h"
#include "exec/legal.h"
#include "schedule/lower/lower.h"
#include "schedule/verify/verify.h"
#include "tests/support/random_language.h"

#include <gtest/gtest.h>

#include <vector>

namespace dovetail::exec::testing {
namespace {

using training::Embedding;
using training::Optimizer;
using training::SecondOrder;
using training::TrainingOptions;

std::vector<TrainingOptions> variants() {
  std::vector<TrainingOptions> result;
  for (const Embedding embedding : {Embedding::OneTensor, Embedding::TwoParts}) {
    for (const Optimizer optimizer : {Optimizer::Momentum, Optimizer::Adam}) {
      for (const double max_norm : {0.0, 0.5}) {
        result.push_back({.embedding = embedding, .optimizer = optimizer, .max_norm = max_norm});
      }
    }
  }
  result.push_back({.second_order = SecondOrder::Penalised});
  return result;
}

}  // namespace

std::optional<Drawn> draw(std::uint64_t seed, std::int64_t samples) {
  static const std::vector<TrainingOptions> kVariants = variants();
  Random random(seed);
  Drawn drawn;
  drawn.options = kVariants[seed % kVariants.size()];
  drawn.options.samples = samples;
  drawn.source.program = training::training_program(drawn.options);
  const schedule::Program& program = drawn.source.program;
  const schedule::Schedule schedule = dovetail::testing::random_language_schedule(random, program);
  drawn.source.schedule = schedule;
  try {
    drawn.plan = schedule::lower(program, schedule).program;
  } catch (const InputError&) {
    return std::nullopt;
  }
  for (const schedule::Problem& problem : schedule::verify(program, drawn.plan, schedule.merge)) {
    ADD_FAILURE() << "seed " << seed << ": " << problem.message;
  }
  drawn.plan.owed = owed_by(drawn.source);
  return drawn;
}

}  // namespace dovetail::exec::testing

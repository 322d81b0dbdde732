// The law of the house as a harness: trains under a Schedule and compares the weights with those of
// the naive synchronous program on the same samples.
//
// The reference never knows of micro-steps, shards or stages: k micro-steps of n samples are one
// batch of k n samples, a sum over micro-steps owes k times its average, and S stages of D ranks are
// D ranks. Only a penalised job (whose loss is no mean over samples) takes the naive program with
// the same micro-steps.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/training/program.h"
#include "tests/exec/training_job.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::exec::testing {

struct Combination {
  training::TrainingOptions options;  // of one micro-step
  std::string policy;
  std::optional<schedule::ScaleAt> scale = std::nullopt;  // absent: as the policy decides
  schedule::Merge merge = {};
  schedule::Pipeline pipeline = {};
};
std::string to_string(const Combination& combination);

// The Schedule, for the Program of the options. Throws InputError where the policy refuses.
schedule::Schedule schedule_of(const Combination& combination);

class Law {
 public:
  static constexpr std::int32_t kSteps = 10;

  explicit Law(std::int32_t steps = kSteps) : steps_(steps) {}

  // Trains twice where asked for: the second run must give the same bits.
  enum class Runs { Once, Twice };
  // Fails the test for any weight that differs. Returns the words of a refusal.
  std::optional<std::string> hold(const Combination& combination, Runs runs = Runs::Once);

  const Trained& reference(const Combination& combination);
  [[nodiscard]] int held() const { return held_; }

 private:
  std::int32_t steps_;
  std::map<std::string, Trained> references_;
  int held_ = 0;
};

training::Hyperparameters hyperparameters(const Combination& combination);

}  // namespace dovetail::exec::testing

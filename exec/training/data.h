// What the training job learns, and how: samples, first weights and hyperparameters.
//
// A sample is a token and the token that follows it, which is a fixed function of it for most
// samples. Samples are numbered over the whole job, so k micro-steps of n samples see exactly the
// samples of one step of k n: the number depends on the step, the data-parallel rank and the
// position in the step's samples alone. First weights depend on the parameter's name alone, so all
// ranks and all Schedules begin alike.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace dovetail::exec::training {

struct Hyperparameters {
  double learning_rate = 0.1;  // of momentum SGD
  double momentum = 0.9;
  double adam_rate = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double epsilon = 1e-4;
  double penalty = 0.01;  // strength of the second-order term
  double max_norm = 0;    // of the whole gradient; 0: no limit
};

struct Sample {
  std::int64_t token = 0;
  std::int64_t next = 0;
};

// REQUIRES: vocabulary > 1, number >= 0.
Sample sample(std::int64_t number, std::int64_t vocabulary);

void fill_first_weights(std::string_view parameter, std::span<float> weights);

// What a rank has learned: the parameters that it updates, or its ranges of them, and the mean loss
// of its samples, step by step.
struct TrainedRange {
  TensorId parameter;
  std::int64_t first = 0;  // element of the parameter
  std::vector<float> values;
};
struct Trained {
  std::vector<TrainedRange> weights;
  std::vector<double> losses;
};

}  // namespace dovetail::exec::training

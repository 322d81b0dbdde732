// The Program of a genuine small training job: a language model small enough to run in a test.
//
//   x0     = E[tokens]                              embedding, vocabulary x width
//   u_i    = gelu(x_i W1_i + b1_i)                  blocks i = 0 .. blocks - 1, width -> hidden
//   x_i+1  = x_i + u_i W2_i + b2_i                  hidden -> width, with the residual path
//   logits = x_n E^T                                (tied) or x_n O^T (untied)
//   loss   = mean over the samples of the softmax cross-entropy
// Its backward is written out op by op, so a Schedule can overlap it, and every op has a kernel
// that computes it for real (exec/ops/training_ops.h): an op without a declared effect ends in its kernel's
// word, as "block1.fc2.forward", with the micro-step behind it where there are several ("@3"). All effects that a scheduler may fold are declared: the
// fill of the loss gradient, updates with or without a rescale factor, the global norm.
//
// Variants choose what is hard for a scheduler: see TrainingOptions.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/words.h"
#include "schedule/program.h"

#include <cstdint>

namespace dovetail::exec::training {

// How the embedding's two gradients (as input and as output layer) become one.
//   OneTensor  backward adds the second into the first, and the sum is reduced
//   TwoParts   each part is reduced on its own, then backward adds the reduced parts: the add reads
//              reduced gradients before the optimizer does
//   Untied     the output layer has weights of its own
enum class Embedding { OneTensor, TwoParts, Untied };

// Momentum: SGD whose momentum update has a rescale factor. Adam: has none.
enum class Optimizer { Momentum, Adam };

// Penalised: the gradient of the last block's second bias is used, reduced, by the backward of the
// first block (second-order use of a gradient).
enum class SecondOrder { None, Penalised };

// What an op of the job computes.
enum class Kernel {
  EmbeddingForward,
  EmbeddingBackward,
  Fc1Forward,
  GeluForward,
  Fc2Forward,
  OutputForward,
  LossForward,
  LossBackward,
  OutputBackwardInput,
  OutputBackwardWeight,
  Fc2BackwardWeight,
  Fc2BackwardInput,
  GeluBackward,
  Penalty,
  Fc1BackwardWeight,
  Fc1BackwardInput
};
constexpr auto words_of(Kernel) {
  return words("embedding.forward", "embedding.backward", "fc1.forward", "gelu.forward",
               "fc2.forward", "output.forward", "loss.forward", "loss.backward",
               "output.backward.input", "output.backward.weight", "fc2.backward.weight",
               "fc2.backward.input", "gelu.backward", "penalty", "fc1.backward.weight",
               "fc1.backward.input");
}
// REQUIRES: the op has no declared effect and does not communicate. Throws InputError where it is not of the job.
Kernel kernel_of(const schedule::Op& op);

struct TrainingOptions {
  std::int64_t world_size = 2;  // stages x data-parallel ranks
  std::int32_t stages = 1;      // pipeline stages; the blocks are divided evenly. Needs Untied
  std::int32_t chunks = 1;      // parts of the model on each stage
  schedule::StageMap stage_map = schedule::StageMap::Loop;
  std::int64_t samples = 8;  // per rank and micro-step
  std::int64_t vocabulary = 48;
  std::int64_t width = 24;
  std::int64_t hidden = 40;
  std::int64_t blocks = 2;
  Embedding embedding = Embedding::OneTensor;
  Optimizer optimizer = Optimizer::Momentum;
  SecondOrder second_order = SecondOrder::None;
  double max_norm = 0;  // clip the gradient's global norm to this; 0: never
};

// Throws InputError for options that contradict each other.
schedule::Program training_program(const TrainingOptions& options);

}  // namespace dovetail::exec::training

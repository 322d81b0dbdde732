// The Program and the Schedule that the tests of pipelines share.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "schedule/program.h"
#include "schedule/schedule.h"
#include "tests/support/program_builder.h"

namespace dovetail::schedule {

// A chain of layers as a pipeline sees it, one or more per virtual stage: forward hands an activation
// on, backward hands its gradient back. Data parallel degree 2.
//   F0: w0 -> a0    F1: a0 w1 -> a1    B1: a1 a0 -> g1 d0    B0: d0 -> g0    U1    U0
// In two: B1: a1 -> d0    W1: a1 a0 -> g1    B0: d0 -> d    W0: d0 -> g0; nobody reads d.
enum class BackwardOps { Whole, InTwo };
class LayerChain {
 public:
  LayerChain(std::int32_t layers, std::int32_t stages, std::int32_t layers_per_stage = 1,
             BackwardOps backward = BackwardOps::Whole)
      : layers_(layers),
        layers_per_stage_(layers_per_stage),
        backward_(backward),
        build_("layers", 2 * stages, stages) {
    build_.ranks("dp", 2);
    for (std::int32_t i = 0; i < layers; ++i) {
      weights_.push_back(tensor("w" + std::to_string(i), TensorKind::Parameter));
      outputs_.push_back(tensor("a" + std::to_string(i), TensorKind::Activation));
      gradients_.push_back(tensor("g" + std::to_string(i), TensorKind::Gradient));
      deltas_.push_back(tensor("d" + std::to_string(i), TensorKind::Activation));
    }
    for (std::int32_t i = 0; i < layers; ++i) add_forward(i);
    for (std::int32_t i = layers; i-- > 0;) add_backward(i);
    for (std::int32_t i = layers; i-- > 0;) {
      op("U", i, Phase::Optimizer, {at(gradients_, i), at(weights_, i)}, {at(weights_, i)});
    }
  }

  [[nodiscard]] Program take() const { return build_.program; }

 private:
  static TensorId at(const std::vector<TensorId>& ids, std::int32_t i) {
    return ids[static_cast<std::size_t>(i)];
  }

  TensorId tensor(const std::string& name, TensorKind kind) {
    return build_.tensor(name, kind, 256);
  }

  void op(const std::string& name, std::int32_t layer, Phase phase, std::vector<TensorId> reads,
          std::vector<TensorId> writes) {
    build_.op(name + std::to_string(layer), phase, TimedWork{{Duration(1000)}}, std::move(reads),
              std::move(writes), phase == Phase::Optimizer ? update() : Effect{Opaque{}});
    build_.program.ops.back().stage = layer / layers_per_stage_;
  }

  static Effect update() { return Update{.elementwise = true, .rescale = Rational(1)}; }

  void add_forward(std::int32_t i) {
    std::vector<TensorId> reads{at(weights_, i)};
    if (i > 0) reads.push_back(at(outputs_, i - 1));
    op("F", i, Phase::Forward, reads, {at(outputs_, i)});
  }

  void add_backward(std::int32_t i) {
    std::vector<TensorId> reads;
    std::vector<TensorId> writes{at(gradients_, i)};
    if (i + 1 == layers_) reads.push_back(at(outputs_, i));
    if (i + 1 < layers_) reads.push_back(at(deltas_, i));
    if (backward_ == BackwardOps::InTwo) {
      op("B", i, Phase::Backward, reads,
         {i > 0 ? at(deltas_, i - 1) : tensor("d", TensorKind::Activation)});
    } else if (i > 0) {
      writes.push_back(at(deltas_, i - 1));
    }
    if (i > 0) reads.push_back(at(outputs_, i - 1));
    op(backward_ == BackwardOps::InTwo ? "W" : "B", i, Phase::Backward, reads, writes);
    build_.owe(at(gradients_, i), GroupId{0});
  }

  std::int32_t layers_;
  std::int32_t layers_per_stage_;
  BackwardOps backward_;
  dovetail::testing::ProgramBuilder build_;
  std::vector<TensorId> weights_, outputs_, gradients_, deltas_;
};

// One layer per virtual stage, as this order has them: where it divides backward, so do the ops.
inline Program chain_for(PipelineKind kind, std::int32_t stages, std::int32_t chunks) {
  const BackwardOps backward = splits_backward(kind) ? BackwardOps::InTwo : BackwardOps::Whole;
  Program program = LayerChain(stages * chunks, stages, 1, backward).take();
  program.stage_map = stage_map_of(kind);
  return program;
}

inline Schedule pipeline_schedule(PipelineKind kind, std::int32_t micro_steps) {
  Schedule schedule;
  schedule.policy = "test";
  schedule.merge.micro_steps = micro_steps;
  schedule.pipeline.kind = kind;
  return schedule;
}

}  // namespace dovetail::schedule

// The ops of the training job (exec/training/program.h), computed for real on the calling thread.
//
// Unlike the synthetic ops, nothing is known beforehand: weights, activations and gradients are
// what the mathematics gives. So weights after some steps are the strongest check of a Schedule:
// they must not depend on it. Sums run in double in a fixed order, results are stored in float: one
// Schedule gives the same bits every time.
//
// Ops are recognised by their effect, else by their name without the micro-step ("x@2" is x), and
// address tensors by their position in Op::reads and writes, so rewritten Programs (micro-steps,
// pipelines, merged gradients, sharded updates) run unchanged.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cpu/matrix.h"
#include "exec/cpu/op_runner.h"
#include "exec/cpu/tensor_memory.h"
#include "exec/training/data.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

namespace dovetail::exec::cpu {

// A range of a parameter that this rank holds the newest values of.
struct OwnedWeights {
  TensorId parameter;
  std::int64_t first = 0;
  std::vector<float> values;
};

class TrainingOps final : public OpRunner {
 public:
  // Writes the first weights. REQUIRES: plan and memory outlive this, memory has
  // TensorScope::All.
  TrainingOps(const schedule::ScheduledProgram& plan, Rank rank, TensorMemory& memory,
              training::Hyperparameters hyperparameters);

  void begin_step(std::int32_t step) override;
  void run(const schedule::Op& op) override;
  // There is no known value to compare with: counts the weights that are not finite as wrong.
  CheckResult check_values() override;

  // After the last step: whole parameters, or this rank's shards of those that are sharded.
  [[nodiscard]] std::vector<OwnedWeights> weights() const;
  // The mean loss of this rank's samples, one entry per step; none on ranks without the loss.
  [[nodiscard]] const std::vector<double>& losses() const { return losses_; }

 private:
  // One parameter's range with all that its update touches.
  struct UpdateRange {
    std::span<const float> gradient;
    std::span<double> exact;  // the parameter before and after
    std::span<float> to;      // and as everybody reads it
    std::span<float> momentum;
    std::span<float> variance;  // empty without Adam
  };

  [[nodiscard]] bool is_parameter(TensorId id) const;
  [[nodiscard]] Matrix matrix(TensorId id) const;
  [[nodiscard]] std::vector<training::Sample> samples_of(const schedule::Op& op, std::int64_t count,
                                                         std::int64_t vocabulary) const;

  void pack_weights(BucketId parameters) const;
  void run_by_name(const schedule::Op& op);
  void run_product(const schedule::Op& op, std::string_view name);
  void embedding_forward(const schedule::Op& op);
  void embedding_backward(const schedule::Op& op);
  void loss_forward(const schedule::Op& op);
  void loss_backward(const schedule::Op& op);
  void fc1_backward_weight(const schedule::Op& op);
  void penalty(const schedule::Op& op);
  void accumulate(const schedule::Op& op, const schedule::Accumulate& sum);
  void global_norm(const schedule::Op& op, const schedule::GlobalNorm& norm);
  void update(const schedule::Op& op, const schedule::Update& effect);
  void shard_update(const schedule::Op& op, const schedule::ShardUpdate& effect);
  // The factor on gradients: the optimizer's rescale times the clip that the norm asks for.
  [[nodiscard]] double gradient_factor(const schedule::Op& op,
                                       const std::optional<Rational>& rescale) const;
  void step_range(const UpdateRange& range, double factor) const;
  // A range of a parameter in double.
  [[nodiscard]] std::span<double> exact(TensorId parameter, std::size_t first, std::size_t count);
  // An optimizer state of a parameter (".momentum"); empty when the optimizer has none such.
  [[nodiscard]] std::span<float> state(TensorId parameter, const char* which) const;

  const schedule::ScheduledProgram& plan_;
  Rank rank_;
  std::set<TensorId> updated_;  // parameters that this rank's ops update
  TensorMemory& memory_;
  // Weights are kept in double and rounded once per update: small weights that large ones became
  // would otherwise show the rounding of all their steps.
  std::map<TensorId, std::vector<double>> exact_;
  training::Hyperparameters hyper_;
  std::int64_t updates_ = 0;  // begun so far
  std::vector<double> losses_;
};

}  // namespace dovetail::exec::cpu

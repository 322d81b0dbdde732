// TrainingOps: the ops of the training job (exec/training/program.h), computed for real, with sums in double, those
// of matrix products in the same order on every device. So weights after some steps agree between devices to
// rounding, under every legal schedule.
//
// Samples of a step are drawn on the host and written to the device before it begins; all else that changes from
// step to step is read from device memory, so a graph may replay the step. Parameters are kept in double beside their
// tensors, so that rounding does not add up.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/rational.h"
#include "exec/device/memory.h"
#include "exec/ops/effects.h"
#include "exec/ops/op_runner.h"
#include "exec/training/data.h"
#include "exec/training/program.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace dovetail::exec {

class TrainingOps final : public OpRunner {
 public:
  // Writes the first weights. Throws InputError for a tensor that is not f32 and for an op of another program.
  // REQUIRES: plan and memory outlive this, memory has Scope::All and no other user.
  TrainingOps(const schedule::ScheduledProgram& plan, Rank rank, DeviceMemory& memory,
              const training::Hyperparameters& hyperparameters);

  void begin_step(std::int32_t step, DeviceStream stream) override;
  void run(const schedule::Op& op, DeviceStream stream) override;
  // There is no known value to compare with: counts the weights that are not finite as wrong.
  CheckResult check_values(DeviceStream stream) override;

  // After the last step.
  [[nodiscard]] training::Trained trained() const;

 private:
  // Where an op's samples lie in device memory.
  struct Samples {
    Block tokens, next;
    std::int64_t count = 0;
    std::int64_t vocabulary = 0;
    std::int32_t micro_step = 0;
  };
  void write_first_weights(const schedule::Tensor& tensor);
  void plan_op(const schedule::Op& op);
  void pack_weights();
  [[nodiscard]] float* data(TensorId id) const;
  [[nodiscard]] DeviceMatrix matrix(TensorId id) const;
  void run_kernel(const schedule::Op& op, DeviceStream stream) const;
  void multiply(const Product& product, DeviceStream stream) const;
  [[nodiscard]] Loss loss_of(const schedule::Op& op) const;
  void add_penalty(const schedule::Op& op, DeviceStream stream) const;
  void update_whole(const schedule::Op& op, const schedule::Update& effect,
                    DeviceStream stream) const;
  void update_shard(const schedule::Op& op, const schedule::ShardUpdate& effect,
                    DeviceStream stream) const;
  // Hyperparameters, factor and clipping of an op's update.
  [[nodiscard]] OptimizerStep step_of(const schedule::Op& op,
                                      const std::optional<Rational>& rescale) const;
  // An optimizer state of a parameter (".momentum"); nullptr when the optimizer has none such.
  [[nodiscard]] float* state(TensorId parameter, const char* which) const;
  [[nodiscard]] double* exact(TensorId parameter, std::int64_t first) const;

  const schedule::ScheduledProgram& plan_;
  Rank rank_;
  DeviceMemory& memory_;
  Device& device_;
  training::Hyperparameters hyper_;
  Effects effects_;
  std::map<OpId, training::Kernel> kernels_;
  std::map<OpId, Samples> samples_;
  std::map<TensorId, Block> exact_;  // parameters in double
  std::set<TensorId> updated_;       // parameters that this rank's ops update
  Block device_updates_;             // one int32
  Block loss_;                       // one double: of the step that runs
  std::int32_t updates_ = 0;         // begun so far
  std::vector<double> losses_;
};

}  // namespace dovetail::exec

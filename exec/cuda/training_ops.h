// The ops of the training job (exec/training/program.h) on the device: the twin of
// exec/cpu/training_ops.h, op for op, with sums in double, those of matrix products in the same
// order. So weights after some steps agree with those of the cpu backend to rounding, under every
// legal schedule.
//
// Samples of a step are drawn on the host and uploaded before it begins; all else that changes from
// step to step is read from device memory, so a graph may replay the step.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/cuda/device_memory.h"
#include "exec/cuda/module.h"
#include "exec/cuda/op_runner.h"
#include "exec/cuda/training_kernels.h"
#include "exec/training/data.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

namespace dovetail::exec::cuda {

class TrainingOps final : public OpRunner {
 public:
  // Writes the first weights. Throws InputError for a tensor that is not f32. REQUIRES: plan and
  // memory outlive this, memory has Scope::All.
  TrainingOps(const schedule::ScheduledProgram& plan, Rank rank, DeviceMemory& memory,
              const training::Hyperparameters& hyperparameters);

  void begin_step(std::int32_t step, cudaStream_t stream) override;
  void run(const schedule::Op& op, cudaStream_t stream) override;
  // There is no known value to compare with: counts the weights that are not finite as wrong.
  CheckResult check_values(cudaStream_t stream) override;

  // After the last step.
  [[nodiscard]] Trained trained() const;

 private:
  // Where an op's samples lie in device memory.
  struct Samples {
    DeviceBuffer tokens, next;
    std::int64_t count = 0;
    std::int64_t vocabulary = 0;
    std::int32_t micro_step = 0;
  };
  [[nodiscard]] float* data(TensorId id) const;
  [[nodiscard]] DeviceMatrix matrix(TensorId id) const;
  [[nodiscard]] std::vector<float> download(const Region& region) const;
  [[nodiscard]] const std::int32_t* updates() const;
  void plan_samples(const schedule::Op& op);
  void run_by_name(const schedule::Op& op, cudaStream_t stream);
  void run_product(const schedule::Op& op, std::string_view name, cudaStream_t stream);
  void run_loss(const schedule::Op& op, std::string_view name, cudaStream_t stream);
  void embed(const schedule::Op& op, std::string_view name, cudaStream_t stream);
  void fc1_backward_weight(const schedule::Op& op, cudaStream_t stream);
  void penalty(const schedule::Op& op, cudaStream_t stream);
  void square(const schedule::Op& op, const schedule::GlobalNorm& norm, cudaStream_t stream);
  void update_whole(const schedule::Op& op, const schedule::Update& effect, cudaStream_t stream);
  void update_shard(const schedule::Op& op, const schedule::ShardUpdate& effect,
                    cudaStream_t stream);
  // Hyperparameters, factor and clipping of an op's update.
  [[nodiscard]] OptimizerStep step_of(const schedule::Op& op,
                                      const std::optional<Rational>& rescale) const;
  // An optimizer state of a parameter (".momentum"); nullptr when the optimizer has none such.
  [[nodiscard]] float* state(TensorId parameter, const char* which) const;
  [[nodiscard]] double* exact(TensorId parameter, std::int64_t first) const;

  const schedule::ScheduledProgram& plan_;
  Rank rank_;
  DeviceMemory& memory_;
  training::Hyperparameters hyper_;
  std::map<OpId, Samples> samples_;
  std::map<TensorId, DeviceBuffer> exact_;  // parameters in double
  std::set<TensorId> updated_;              // parameters that this rank's ops update
  DeviceBuffer device_updates_;             // one int32
  DeviceBuffer squares_;                    // as in synthetic_ops.h
  DeviceBuffer loss_;                       // one double: of the step that runs
  std::int32_t updates_ = 0;                // begun so far
  std::vector<double> losses_;
};

}  // namespace dovetail::exec::cuda

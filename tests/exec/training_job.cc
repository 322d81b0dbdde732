// Runs the training job on threads and merges the weights of all ranks by parameter, so that
// sharded and unsharded runs can be compared.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/training_job.h"

#include "exec/cpu/job.h"
#include "exec/launch/local_ranks.h"
#include "exec/ops/training_ops.h"
#include "exec/run.h"
#include "schedule/lower/lower.h"
#include "schedule/verify/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <mutex>
#include <sstream>

namespace dovetail::exec::testing {
namespace {

// Collects what the ranks bring, one at a time.
class Collector {
 public:
  explicit Collector(const schedule::ScheduledProgram& plan) : plan_(plan) {}

  void add(const training::Trained& trained) {
    const std::lock_guard lock(mutex_);
    for (const training::TrainedRange& owned : trained.weights) add_weights(owned);
    const std::vector<double>& losses = trained.losses;
    if (losses.empty() || losses.front() == 0) return;  // a stage without the loss
    result_.losses.resize(losses.size(), 0);
    for (std::size_t i = 0; i < losses.size(); ++i) result_.losses[i] += losses[i];
    ++with_loss_;
  }

  Trained result() {
    for (double& loss : result_.losses) loss /= with_loss_;
    return std::move(result_);
  }

 private:
  void add_weights(const training::TrainedRange& owned) {
    const schedule::Tensor& tensor = plan_.program.tensor(owned.parameter);
    std::vector<float>& all = result_.weights[tensor.name];
    all.resize(static_cast<std::size_t>(tensor.numel()), std::nanf(""));
    for (std::size_t i = 0; i < owned.values.size(); ++i) {
      float& slot = all[static_cast<std::size_t>(owned.first) + i];
      if (!std::isnan(slot) && slot != owned.values[i]) {
        std::ostringstream words;
        words << tensor.name << '[' << owned.first + static_cast<std::int64_t>(i) << "]: " << slot
              << " and " << owned.values[i];
        result_.disagreement = words.str();
      }
      slot = owned.values[i];
    }
  }

  const schedule::ScheduledProgram& plan_;
  std::mutex mutex_;
  Trained result_;
  int with_loss_ = 0;
};

}  // namespace

schedule::ScheduledProgram legal_plan(const schedule::Program& program,
                                      const schedule::Schedule& schedule) {
  schedule::ScheduledProgram plan = schedule::lower(program, schedule).program;
  for (const schedule::Problem& problem : schedule::verify(program, plan, schedule.merge)) {
    ADD_FAILURE() << schedule.policy << ": " << problem.message;
  }
  return plan;
}

Trained train(const schedule::ScheduledProgram& plan, std::int32_t steps,
              const training::Hyperparameters& hyperparameters) {
  Collector collector(plan);
  const auto ranks = static_cast<std::int32_t>(plan.program.world_size);
  launch::run_local_ranks({.ranks = ranks, .network_namespace = {}}, [&](launch::Session& session) {
    cpu::Ports ports = cpu::ports_of(session, cpu::TransportKind::Ring);
    TrainingOps* ops = nullptr;
    ports.tensors = Scope::All;
    ports.make_ops = [&](const schedule::ScheduledProgram& scheduled, Rank rank,
                         DeviceMemory& memory) {
      auto made = std::make_unique<TrainingOps>(scheduled, rank, memory, hyperparameters);
      ops = made.get();
      return made;
    };
    cpu::CpuBackend backend(plan, ports);
    run(plan, session.rank(), backend, {.warmup = 0, .steps = steps});
    collector.add(ops->trained());
  });
  return collector.result();
}

std::string differences(const Trained& reference, const Trained& other,
                        const Tolerance& tolerance) {
  double worst = 0;
  std::ostringstream words;
  if (reference.weights.size() != other.weights.size()) return "other parameters";
  for (const auto& [name, expected] : reference.weights) {
    const auto found = other.weights.find(name);
    if (found == other.weights.end() || found->second.size() != expected.size()) {
      return name + " is missing or of another size";
    }
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double want = expected[i];
      const double have = found->second[i];
      const double excess =
          std::abs(have - want) / (tolerance.absolute + tolerance.relative * std::abs(want));
      // Not greater, so that NaN is a difference too.
      if (excess <= 1) continue;
      if (words.str().empty() || excess > worst) {
        worst = excess;
        words.str("");
        words << name << '[' << i << "]: expected " << want << ", found " << have;
      }
    }
  }
  return words.str();
}

}  // namespace dovetail::exec::testing

// Runs the ranks of a job as threads, each with an emulated device, and sums up what they found.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/job.h"

#include "exec/cpu/job.h"
#include "exec/launch/local_ranks.h"

#include <cmath>
#include <exception>
#include <mutex>

namespace dovetail::emulated {
namespace {

using exec::testing::Trained;

// Replicas must agree to the bit.
void add_weights(const schedule::Program& program, const exec::training::Trained& of_rank,
                 Trained& all) {
  for (const exec::training::TrainedRange& range : of_rank.weights) {
    const schedule::Tensor& tensor = program.tensor(range.parameter);
    std::vector<float>& values = all.weights[tensor.name];
    values.resize(static_cast<std::size_t>(tensor.numel()), std::nanf(""));
    for (std::size_t i = 0; i < range.values.size(); ++i) {
      float& slot = values[static_cast<std::size_t>(range.first) + i];
      if (!std::isnan(slot) && slot != range.values[i]) all.disagreement = tensor.name;
      slot = range.values[i];
    }
  }
}

}  // namespace

void on_ranks(std::int32_t ranks, const std::function<void(exec::launch::Session&)>& body) {
  exec::launch::run_local_ranks({.ranks = ranks, .cores = exec::launch::Cores::Any}, body);
}

std::unique_ptr<exec::Backend> make_backend(const schedule::ScheduledProgram& plan,
                                            const exec::cuda::BackendOptions& options,
                                            exec::launch::Session& session) {
  exec::cuda::BackendOptions mine = options;
  mine.device = session.rank().value;
  mine.exchange = exec::cpu::exchange_of(session);
  mine.peer_failure = [&session] { return session.failure().message(); };
  mine.on_failure = [&session](const std::string& why) { session.abort(why); };
  return dovetail_cuda_module()->make_backend(plan, mine);
}

Outcome run_job(const schedule::ScheduledProgram& plan, const exec::cuda::BackendOptions& options,
                const exec::RunOptions& steps, const Adjust& adjust) {
  const exec::cuda::Module& module = *dovetail_cuda_module();
  std::mutex mutex;
  Outcome outcome;
  const auto body = [&](exec::launch::Session& session) {
    exec::cuda::BackendOptions mine = options;
    if (adjust) adjust(session.rank(), mine);
    const std::unique_ptr<exec::Backend> backend = make_backend(plan, mine, session);
    const exec::RankResult result = exec::run(plan, session.rank(), *backend, steps);
    const std::lock_guard lock(mutex);
    exec::add(result.check, outcome.check);
    add_weights(plan.program, module.trained(*backend), outcome.trained);
  };
  try {
    on_ranks(static_cast<std::int32_t>(plan.program.world_size), body);
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  return outcome;
}

}  // namespace dovetail::emulated

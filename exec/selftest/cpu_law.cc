// The law (law.h) on two ranks that are threads of this process.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/local_ranks.h"
#include "exec/ops/training_ops.h"
#include "exec/run.h"
#include "exec/selftest/cpu.h"
#include "exec/selftest/law.h"

#include <memory>
#include <mutex>

namespace dovetail::exec::selftest {
namespace {

constexpr std::int32_t kLawRanks = 2;

// As rank 0 holds it.
training::Trained train_on_threads(const schedule::ScheduledProgram& plan) {
  training::Trained result;
  std::mutex mutex;
  launch::run_local_ranks({.ranks = kLawRanks}, [&](launch::Session& session) {
    cpu::Ports ports = cpu::ports_of(session, cpu::TransportKind::Ring);
    const TrainingOps* ops = nullptr;
    ports.tensors = Scope::All;
    ports.make_ops = [&](const schedule::ScheduledProgram& scheduled, Rank rank,
                         DeviceMemory& memory) {
      auto made =
          std::make_unique<TrainingOps>(scheduled, rank, memory, training::Hyperparameters{});
      ops = made.get();
      return made;
    };
    cpu::CpuBackend backend(plan, ports);
    run(plan, session.rank(), backend, {.warmup = 0, .steps = kLawSteps});
    const std::lock_guard lock(mutex);
    if (session.rank() == Rank{0}) result = ops->trained();
  });
  return result;
}

}  // namespace

std::vector<Row> cpu_law_rows() {
  LawJob job = {.backend = "cpu",
                .ranks = kLawRanks,
                .suffix = "",
                .train_naive = train_on_threads,
                .cases = {}};
  for (const char* policy :
       {"per-tensor", "one-bucket", "threshold:cap=4KiB", "torch-ddp:cap=8KiB,first=1KiB"}) {
    job.cases.push_back({.name = policy, .policy = policy, .train = train_on_threads});
  }
  return law_rows(job);
}

}  // namespace dovetail::exec::selftest

// Jobs on the emulated device: ranks are threads of this process, each with a device of its own.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cuda/module.h"
#include "exec/launch/session.h"
#include "exec/run.h"
#include "tests/exec/training_job.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace dovetail::emulated {

struct Outcome {
  exec::CheckResult check;  // of all ranks
  exec::testing::Trained trained;
  std::string error;  // of the rank that failed first; empty if none did
};

// What one rank has of its own.
using Adjust = std::function<void(Rank, exec::cuda::BackendOptions&)>;

void on_ranks(std::int32_t ranks, const std::function<void(exec::launch::Session&)>& body);

// Every rank of the plan; backend options without what a session gives.
Outcome run_job(const schedule::ScheduledProgram& plan, const exec::cuda::BackendOptions& options,
                const exec::RunOptions& steps = {.warmup = 0, .steps = 3},
                const Adjust& adjust = {});

// One rank's backend, on the device of its number.
std::unique_ptr<exec::Backend> make_backend(const schedule::ScheduledProgram& plan,
                                            const exec::cuda::BackendOptions& options,
                                            exec::launch::Session& session);

}  // namespace dovetail::emulated

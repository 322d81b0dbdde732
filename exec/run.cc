// The run loop and nothing else.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/run.h"

#include "base/error.h"
#include "schedule/visit.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace dovetail::exec {
namespace {

void run_commands(const schedule::RankProgram& role, Backend& backend) {
  for (const schedule::Command& command : role.commands) {
    schedule::visit(
        command.action, [&](const schedule::RunOp& action) { backend.run_op(command, action); },
        [&](const schedule::RunCollective& action) { backend.run_collective(command, action); },
        [&](const schedule::Copy& action) { backend.copy(command, action); },
        [&](const schedule::RecordEvent& action) { backend.record(command, action); },
        [&](const schedule::WaitEvent& action) { backend.wait(command, action); },
        [&](const schedule::Scale& action) { backend.scale(command, action); },
        [&](const schedule::Release& action) { backend.release(command, action); });
  }
}

void require_range(const RunOptions& options) {
  if (options.warmup >= 0 && options.steps >= 1 && options.rounds >= 1) return;
  throw InputError("a run needs warmup >= 0, steps >= 1 and rounds >= 1");
}

std::int32_t steps_of(const Lane& lane, const RunOptions& options) {
  return lane.steps > 0 ? lane.steps : options.steps;
}

}  // namespace

std::int32_t executed_by(std::span<const Lane> lanes, const RunOptions& options) {
  std::int32_t executed = 0;
  for (const Lane& lane : lanes) {
    executed += options.rounds * (options.warmup + steps_of(lane, options));
  }
  return executed;
}

const schedule::RankProgram& role_of(const schedule::ScheduledProgram& plan, Rank rank) {
  for (const schedule::RankProgram& role : plan.roles) {
    if (std::find(role.ranks.begin(), role.ranks.end(), rank) != role.ranks.end()) return role;
  }
  std::ostringstream message;
  message << "the plan has no commands for rank " << rank << "; it was made for "
          << plan.program.world_size << " ranks";
  throw InputError(message.str());
}

void add(const CheckResult& result, CheckResult& sum) {
  sum.checked += result.checked;
  sum.wrong += result.wrong;
  if (sum.first_wrong.empty()) sum.first_wrong = result.first_wrong;
}

std::vector<RankResult> run_interleaved(std::span<const Lane> lanes, Rank rank,
                                        const RunOptions& options) {
  require_range(options);
  std::vector<RankResult> results(lanes.size());
  std::int32_t executed = options.executed;  // steps of all lanes, warm-up included
  for (std::int32_t round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < lanes.size(); ++i) {
      const schedule::RankProgram& role = role_of(*lanes[i].plan, rank);
      Backend& backend = *lanes[i].backend;
      const std::int32_t steps = steps_of(lanes[i], options);
      for (std::int32_t step = -options.warmup; step < steps; ++step) {
        backend.barrier();
        backend.begin_step(executed++);
        run_commands(role, backend);
        std::vector<Timing> timings = backend.finish();
        std::vector<DeviceWork> works = backend.device_work();
        add(backend.check(), results[i].check);
        if (step < 0) continue;
        for (Timing& timing : timings) {
          timing.step = round * steps + step;
          results[i].timings.push_back(timing);
        }
        for (DeviceWork& work : works) {
          work.step = round * steps + step;
          results[i].device_work.push_back(std::move(work));
        }
      }
    }
  }
  return results;
}

RankResult run(const schedule::ScheduledProgram& plan, Rank rank, Backend& backend,
               const RunOptions& options) {
  const Lane lane = {.plan = &plan, .backend = &backend};
  return run_interleaved(std::span(&lane, 1), rank, options).front();
}

}  // namespace dovetail::exec

// The run loop: for each step a barrier, the commands in host issue order, finish and check. It
// knows no hardware, which is why the same loop runs on processors, GPUs and the virtual clock.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/run.h"

#include "base/error.h"
#include "schedule/visit.h"

#include <algorithm>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace dovetail::exec {
namespace {

void run_commands(const schedule::RankProgram& role, Backend& backend) {
  for (const schedule::Command& command : role.commands) {
    schedule::visit(
        command.action, [&](const schedule::RunOp& action) { backend.run_op(command, action); },
        [&](const schedule::Communicate& action) { backend.communicate(command, action); },
        [&](const schedule::Copy& action) { backend.copy(command, action); },
        [&](const schedule::RecordEvent& action) { backend.record(command, action); },
        [&](const schedule::WaitEvent& action) { backend.wait(command, action); },
        [&](const schedule::Scale& action) { backend.scale(command, action); },
        [&](const schedule::Release& action) { backend.release(command, action); });
  }
}

// What the machine says names the rank that met it, whichever call it was.
std::vector<Timing> step_of(const schedule::RankProgram& role, Rank rank, Backend& backend,
                            std::int32_t number) {
  try {
    backend.barrier();
    backend.begin_step(number);
    run_commands(role, backend);
    return backend.finish();
  } catch (const DeviceError& error) {
    if (std::string_view(error.what()).starts_with("rank ")) throw;
    throw DeviceError("rank " + std::to_string(rank.value) + ": " + error.what());
  }
}

void require_range(const RunOptions& options) {
  if (options.warmup >= 0 && options.steps >= 1 && options.rounds >= 1) return;
  throw InputError("a run needs warmup >= 0, steps >= 1 and rounds >= 1");
}

std::vector<Turn> turns_of(std::size_t lanes, const RunOptions& options) {
  if (!options.turns.empty()) return options.turns;
  std::vector<Turn> turns;
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    turns.push_back({.lane = lane, .warmup = options.warmup, .steps = options.steps});
  }
  return turns;
}

}  // namespace

std::int32_t executed_by(std::size_t lanes, const RunOptions& options) {
  std::int32_t executed = 0;
  for (const Turn& turn : turns_of(lanes, options)) {
    executed += options.rounds * (turn.warmup + turn.steps);
  }
  return executed;
}

std::int32_t steps_of(std::span<const Turn> turns, std::size_t lane) {
  std::int32_t steps = 0;
  for (const Turn& turn : turns) steps += turn.lane == lane ? turn.steps : 0;
  return steps;
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
  std::vector<std::int32_t> timed(lanes.size(), 0);  // steps so far
  std::int32_t executed = options.executed;          // steps of all lanes, warm-up included
  const std::vector<Turn> turns = turns_of(lanes.size(), options);
  for (std::int32_t round = 0; round < options.rounds; ++round) {
    for (const Turn& turn : turns) {
      const Lane& lane = lanes[turn.lane];
      RankResult& result = results[turn.lane];
      const schedule::RankProgram& role = role_of(*lane.plan, rank);
      for (std::int32_t step = -turn.warmup; step < turn.steps; ++step) {
        std::vector<Timing> timings = step_of(role, rank, *lane.backend, executed++);
        std::vector<DeviceWork> works = lane.backend->device_work();
        add(lane.backend->check_values(), result.check);
        if (step < 0) continue;
        const std::int32_t number = timed[turn.lane]++;
        for (Timing& timing : timings) {
          timing.step = number;
          result.timings.push_back(timing);
        }
        for (DeviceWork& work : works) {
          work.step = number;
          result.device_work.push_back(std::move(work));
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

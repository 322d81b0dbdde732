// The executor's run loop over the fake backend and the simulator give the same Trace.
//
// One rank that is like all others, no host cost, no contention: every span must agree, command by command.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "exec/fake/fake_backend.h"
#include "exec/measured_trace.h"
#include "exec/run.h"
#include "schedule/lower/lower.h"
#include "schedule/visit.h"
#include "sim/simulate.h"
#include "tests/support/programs.h"

namespace dovetail {
namespace {

// The same costs, asked command by command.
exec::fake::Durations durations_of(const schedule::ScheduledProgram& plan,
                                   const models::Costs& costs) {
  return {
      .duration =
          [&plan, &costs](const schedule::Command& command) {
            return schedule::visit(
                command.action,
                [&](const schedule::RunOp& run) {
                  return costs.op(plan.program.op(run.op), Rank{0});
                },
                [&](const schedule::Communicate& run) {
                  const auto& group = plan.program.group(run.group);
                  return costs.collective(run.kind, group, plan.bucket(*run.bucket).size).isolated;
                },
                [&](const schedule::Copy& copy) {
                  Bytes bytes;
                  for (const TensorId id : copy.gradients) bytes += plan.program.tensor(id).bytes();
                  return costs.copy(bytes);
                },
                [](const schedule::RecordEvent&) { return Duration{}; },
                [](const schedule::WaitEvent&) { return Duration{}; },
                [&](const schedule::Scale& scale) {
                  return costs.copy(plan.bucket(scale.bucket).size);
                },
                [](const schedule::Release&) { return Duration{}; });
          },
      .issue = {}};
}

TEST(FakeExecutorTest, TheRunLoopAndTheSimulatorGiveTheSameSpans) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const schedule::Program program = testing::random_chain(random, 20, 1);
    const testing::SimpleMachine machine{
        .collective = testing::line(Duration(random.between(1, 5000)), random.between(0, 3)),
        .copy_ns_per_byte = 0.25 * static_cast<double>(random.between(0, 3))};
    const models::Costs costs = testing::costs_of(machine, program);
    const auto plan = schedule::lower(program, testing::random_schedule(random, program)).program;
    const traces::Trace simulated = sim::simulate(plan, costs);
    exec::fake::FakeBackend fake(durations_of(plan, costs));
    const exec::RankResult result = exec::run(plan, Rank{0}, fake, {.warmup = 0, .steps = 1});
    const traces::Trace executed = exec::measured_trace(plan, {{result.timings}}, {});
    EXPECT_EQ(simulated.commands, executed.commands);
    ASSERT_EQ(simulated.spans.size(), executed.spans.size());
    for (std::size_t i = 0; i < simulated.spans.size(); ++i) {
      ASSERT_EQ(simulated.spans[i], executed.spans[i])
          << simulated.command(simulated.spans[i].command).name;
    }
  }
}

}  // namespace
}  // namespace dovetail

// Pipelines on the simulated machine: oracle O7, and what it adds to the closed formula.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "schedule/lower/lower.h"
#include "sim/simulate.h"
#include "sim/steady.h"
#include "tests/schedule/lower/pipeline_programs.h"
#include "tests/sim/role_programs.h"
#include "tests/support/oracle.h"
#include "tests/support/pipeline_slack.h"
#include "tests/support/programs.h"

namespace dovetail::sim {
namespace {

using schedule::Collective;
using schedule::Phase;
using testing::us;

testing::PipelinePlan equal_stages(std::int32_t stages, std::int32_t micro_steps) {
  return {.shape = {.kind = schedule::PipelineKind::OneFOneB,
                    .stages = stages,
                    .chunks = 1,
                    .micro_steps = micro_steps},
          .time = [](Phase phase, std::int32_t, std::int32_t) {
            return phase == Phase::Forward ? us(1) : us(2);
          }};
}

// When the last backward of each role ends, in us.
std::vector<double> last_backward_ends(const testing::PipelinePlan& pipeline, Duration send) {
  const auto plan = testing::pipeline_plan(pipeline);
  const auto costs = testing::role_costs(plan, testing::line(us(1), 0), testing::line(send, 0));
  const traces::Trace trace = simulate(plan, costs);
  std::vector<double> ends(static_cast<std::size_t>(pipeline.shape.stages), 0);
  for (const traces::Span& span : trace.spans) {
    if (trace.command(span.command).kind != traces::SpanKind::Compute) continue;
    double& end = ends[static_cast<std::size_t>(span.rank.value / pipeline.width)];
    end = std::max(end, to_us(span.end));
  }
  return ends;
}

// P = 4, t_f = 1, t_b = 2, m = 8, free sends: role 0 waits 3 for its first gradients to come back
// and works 8 * 3 = 24; the pipeline fills in 3 * (1 + 2) = 9: 33. Role r ends r * t_b before.
TEST(PipelineSimTest, O7AS4LastBackwardsEndAt33And31And29And27) {
  testing::expect_oracle("O7 last backwards of 4 stages, 8 micro-batches",
                         last_backward_ends(equal_stages(4, 8), us(0)),
                         std::vector<double>{33, 31, 29, 27});
}

// The same slack of r * t_b for fewer micro-batches; the fill of 9 stays, the work is 3 per batch.
TEST(PipelineSimTest, AS4TheSlackDoesNotDependOnTheMicroBatches) {
  EXPECT_EQ(last_backward_ends(equal_stages(4, 4), us(0)), (std::vector<double>{21, 19, 17, 15}));
  EXPECT_EQ(last_backward_ends(equal_stages(4, 2), us(0)), (std::vector<double>{15, 13, 11, 9}));
}

TEST(PipelineSimTest, O7EightStagesHaveSlackFrom0To14) {
  const std::vector<double> ends = last_backward_ends(equal_stages(8, 16), us(0));
  for (std::size_t role = 0; role < ends.size(); ++role) {
    EXPECT_EQ(ends.front() - ends[role], 2.0 * static_cast<double>(role));
  }
}

// The generator's own play knows nothing of streams and events. With free sends both agree on every
// shape; with costly ones too, as long as no two of a direction overlap.
TEST(PipelineSimTest, AgreesWithTheOrdersOwnPlay) {
  for (std::int32_t stages = 1; stages <= 6; ++stages) {
    for (std::int32_t micro_steps = 1; micro_steps <= 9; ++micro_steps) {
      SCOPED_TRACE(std::to_string(stages) + " stages, " + std::to_string(micro_steps));
      const testing::PipelinePlan pipeline = equal_stages(stages, micro_steps);
      const auto times = schedule::equal_stages(pipeline.shape, us(1), us(2));
      const std::vector<double> ends = last_backward_ends(pipeline, us(0));
      const auto slack = schedule::slack(pipeline.shape, times);
      for (std::size_t role = 0; role < ends.size(); ++role) {
        EXPECT_EQ(ends[role], to_us(slack[role].last_backward_end));
      }
    }
  }
}

// Forward and backward of one layer per virtual stage, F = B = W = 1 us, 2 us where backward is one op; sums and updates are free.
schedule::ScheduledProgram equal_layers(schedule::PipelineKind kind, std::int32_t stages,
                                        std::int32_t chunks, std::int32_t micro_steps) {
  schedule::ScheduledProgram plan = schedule::lower(schedule::chain_for(kind, stages, chunks),
                                                    schedule::pipeline_schedule(kind, micro_steps))
                                        .program;
  for (schedule::Op& op : plan.program.ops) {
    if (std::holds_alternative<schedule::CollectiveWork>(op.work)) continue;
    const bool is_free =
        op.phase == Phase::Optimizer || std::holds_alternative<schedule::Accumulate>(op.effect);
    const bool is_whole = op.phase == Phase::Backward && !splits_backward(kind);
    op.work = schedule::TimedWork{{us(is_free ? 0 : is_whole ? 2 : 1)}};
  }
  return plan;
}

// P = 3, m = 7, free sends. 1F1B: 3 m + (P - 1) (F + B + W) = 21 + 6 = 27; zero-bubble 3 m + (P - 1) (F + B - W) = 23.
// ZBV, in halves: 6 m + P - 1 = 44, of which each role works 42 without a pause; in step after step only these are left.
TEST(PipelineSimTest, LateWeightsFillTheBubble) {
  const auto step = [](schedule::PipelineKind kind, std::int32_t chunks) {
    const schedule::ScheduledProgram plan = equal_layers(kind, 3, chunks, 7);
    const auto costs = testing::role_costs(plan, testing::line(us(0), 0), testing::line(us(0), 0));
    Instant end{};
    for (const traces::Span& span : simulate(plan, costs).spans) end = std::max(end, span.end);
    CompiledProgram compiled;
    Workspace workspace;
    const SteadyState steady = find_steady_state(plan, costs, compiled, workspace);
    return std::pair(to_us(end), to_us(Duration(steady.summary.step_ns)));
  };
  EXPECT_EQ(step(schedule::PipelineKind::OneFOneB, 1).first, 27);
  EXPECT_EQ(step(schedule::PipelineKind::ZeroBubble, 1).first, 23);
  EXPECT_EQ(step(schedule::PipelineKind::Zbv, 2), std::pair(44.0, 42.0));
}

// P = 4, m = 8: each role reduces for 4 us right after its last backward (AS3). Role 0 shows all of
// it: 33 + 4 = 37. Role 1 has a bubble of 2, role 2 of 4: theirs end at 35 and 33.
TEST(PipelineSimTest, AS4ASynchronisationHidesInTheBubble) {
  testing::PipelinePlan pipeline = equal_stages(4, 8);
  pipeline.width = 2;
  pipeline.gradients = Bytes(400);
  const auto plan = testing::pipeline_plan(pipeline);
  const auto costs = testing::role_costs(plan, testing::line(us(4), 0), testing::line(us(0), 0));
  const traces::Trace trace = simulate(plan, costs);
  std::vector<double> ends(4, 0);
  for (const traces::Span& span : trace.spans) {
    if (!trace.command(span.command).bucket) continue;
    ends[static_cast<std::size_t>(span.rank.value / 2)] = to_us(span.end);
  }
  EXPECT_EQ(ends, (std::vector<double>{37, 35, 33, 31}));
  const StepGraph graph = compile(plan, costs, 1).graph;
  Workspace workspace;
  play(graph, workspace);
  EXPECT_EQ(summarize(graph, workspace.timeline).step_ns, 37'000);
}

}  // namespace
}  // namespace dovetail::sim

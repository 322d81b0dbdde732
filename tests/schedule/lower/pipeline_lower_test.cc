// Pipelines as commands: legal, and communicating only where their order lets them.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "models/networks/zoo.h"
#include "schedule/id_table.h"
#include "schedule/lower/pipeline/assign.h"
#include "tests/schedule/lower/pipeline_programs.h"
#include "tests/schedule/policies/applied.h"

namespace dovetail::schedule {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A policy's buckets, which respect stages, in a pipeline.
Schedule scheduled(const Program& program, const std::string& policy, const Schedule& pipeline) {
  Schedule schedule = make_schedule(program, parse_policy(policy));
  schedule.merge = pipeline.merge;
  schedule.pipeline = pipeline.pipeline;
  return schedule;
}

// Backwards of micro-batches (all chunks) that the role issued before each of its collectives.
std::vector<std::size_t> backwards_before_collectives(const ScheduledProgram& lowered,
                                                      std::size_t role) {
  std::vector<std::size_t> counts;
  std::size_t backwards = 0;
  for (const Command& command : lowered.roles.at(role).commands) {
    if (const auto run = op_run_by(command)) {
      if (lowered.program.op(*run).name.front() == 'B') ++backwards;
    }
    if (bucket_collective(command) != nullptr) counts.push_back(backwards);
  }
  return counts;
}

TEST(PipelineLowerTest, EveryKindOfPipelineIsLegal) {
  for (const auto& [kind, stages, chunks, m] :
       {std::tuple(PipelineKind::Sequential, 3, 1, 3), std::tuple(PipelineKind::OneFOneB, 2, 1, 1),
        std::tuple(PipelineKind::OneFOneB, 4, 1, 8), std::tuple(PipelineKind::Interleaved, 2, 2, 4),
        std::tuple(PipelineKind::Interleaved, 2, 3, 2),
        std::tuple(PipelineKind::ZeroBubble, 4, 1, 6),
        std::tuple(PipelineKind::ZeroBubble, 2, 2, 4), std::tuple(PipelineKind::Zbv, 3, 2, 5)}) {
    for (const LaunchAlignment alignment :
         {LaunchAlignment::PerStage, LaunchAlignment::AcrossStages}) {
      for (const char* policy : {"per-tensor", "one-bucket", "naive"}) {
        const Program program = chain_for(kind, stages, chunks);
        Schedule pipeline = pipeline_schedule(kind, m);
        pipeline.pipeline.alignment = alignment;
        const Schedule schedule = scheduled(program, policy, pipeline);
        const Lowered lowered = lower(program, schedule);
        EXPECT_THAT(lowered.program.roles, SizeIs(static_cast<std::size_t>(stages)));
        EXPECT_THAT(complaints(program, lowered.program, schedule), IsEmpty())
            << policy << ' ' << to_string(kind) << ' ' << stages << 'x' << chunks << " m " << m;
      }
    }
  }
}

TEST(PipelineLowerTest, ScalingMayBeAppliedWhereverTheProgramAllowsIt) {
  const Program program = LayerChain(4, 4).take();
  for (const ScaleAt scale : {ScaleAt::Collective, ScaleAt::BeforeCollective,
                              ScaleAt::AfterCollective, ScaleAt::Optimizer}) {
    Schedule schedule =
        scheduled(program, "per-tensor", pipeline_schedule(PipelineKind::OneFOneB, 8));
    schedule.scale = scale;
    EXPECT_THAT(complaints(program, lower(program, schedule).program, schedule), IsEmpty())
        << to_string(scale);
  }
}

TEST(PipelineLowerTest, ShardedUpdatesStayOnTheirStage) {
  const Program program = LayerChain(4, 2).take();
  for (const ParameterSync parameters : {ParameterSync::AfterUpdate, ParameterSync::NextForward}) {
    Schedule schedule =
        scheduled(program, "per-tensor", pipeline_schedule(PipelineKind::Interleaved, 4));
    schedule.parameters = parameters;
    for (Bucket& bucket : schedule.buckets) bucket.collective = Collective::ReduceScatter;
    const ScheduledProgram lowered = lower(program, schedule).program;
    EXPECT_THAT(complaints(program, lowered, schedule), IsEmpty());
    for (const Op& op : lowered.program.ops) {
      const auto* update = std::get_if<ShardUpdate>(&op.effect);
      if (update == nullptr) continue;
      // Layer i of the chain stands on virtual stage i; its bucket has one gradient, "g<i>.merged".
      const std::string& name = lowered.program.tensor(op.reads.front()).name;
      EXPECT_EQ(name, "g" + std::to_string(op.stage) + ".merged");
    }
    EXPECT_EQ(std::ranges::count_if(
                  lowered.program.ops,
                  [](const Op& op) { return std::holds_alternative<ShardUpdate>(op.effect); }),
              4);
  }
}

TEST(PipelineLowerTest, AZooModelInAPipelineIsLegal) {
  Rewrite assigned =
      assign_stages(models::zoo_program("resnet18", {.batch = 2, .world_size = 2}), {.stages = 3});
  const Program program = std::get<Rewritten>(std::move(assigned)).program;
  const Schedule schedule =
      scheduled(program, "torch-ddp", pipeline_schedule(PipelineKind::OneFOneB, 3));
  EXPECT_THAT(complaints(program, lower(program, schedule).program, schedule), IsEmpty());
}

TEST(PipelineLowerTest, AI8StagesBehindTheFirstLaunchNothingBeforeTheirLastBackward) {
  // P = 4, m = 8, one gradient per stage: each stage issues its one collective after 8 backwards;
  // on stage 0 the gradient is complete only then, too.
  const Program program = LayerChain(4, 4).take();
  const Lowered lowered = lower(
      program, scheduled(program, "per-tensor", pipeline_schedule(PipelineKind::OneFOneB, 8)));
  for (std::size_t role = 0; role < 4; ++role) {
    EXPECT_THAT(backwards_before_collectives(lowered.program, role), ElementsAre(8));
  }
}

TEST(PipelineLowerTest, AS3OnlyStage0CommunicatesBesideItsLastBackward) {
  // Two layers per stage, P = 2, m = 2: each stage runs 4 backward ops, in micro-batch 1 first that
  // of its second layer. Stage 0 launches that gradient before the backward of its first layer;
  // stage 1 holds both back to the end.
  Program program = LayerChain(4, 2).take();
  for (Op& op : program.ops) op.stage /= 2;
  const Schedule schedule =
      scheduled(program, "per-tensor", pipeline_schedule(PipelineKind::OneFOneB, 2));
  const Lowered lowered = lower(program, schedule);
  EXPECT_THAT(complaints(program, lowered.program, schedule), IsEmpty());
  EXPECT_THAT(backwards_before_collectives(lowered.program, 0), ElementsAre(3, 4));
  EXPECT_THAT(backwards_before_collectives(lowered.program, 1), ElementsAre(4, 4));
}

TEST(PipelineLowerTest, ALateGradientTravelsOnceItsLastWeightsAreDone) {
  // P = 2, m = 4, two layers per stage in backward order 3 2 | 1 0. Role 1 ends with the weights of its last two
  // micro-batches, W3 before W2: the gradient of layer 3 travels beside the last op of them.
  Program program = LayerChain(4, 2, 2, BackwardOps::InTwo).take();
  const Schedule schedule =
      scheduled(program, "per-tensor", pipeline_schedule(PipelineKind::ZeroBubble, 4));
  const Lowered lowered = lower(program, schedule);
  EXPECT_THAT(complaints(program, lowered.program, schedule), IsEmpty());
  std::vector<std::string> order;
  for (const Command& command : lowered.program.roles.at(1).commands) {
    if (const auto run = op_run_by(command)) {
      const std::string& name = lowered.program.program.op(*run).name;
      if (name.front() == 'W') order.push_back(name);
    }
    if (bucket_collective(command) != nullptr) order.emplace_back("travels");
  }
  EXPECT_THAT(order, ElementsAre("W3@0", "W2@0", "W3@1", "W2@1", "W3@2", "W2@2", "W3", "travels",
                                 "W2", "travels"));
}

TEST(PipelineLowerTest, AS9EachChunkCommunicatesBesideItsFinalBackward) {
  // P = 4, v = 2, m = 8: chunk 1 after backward id 11, the 12th; chunk 0 after the 16th and last.
  const Program program = LayerChain(8, 4).take();
  const Lowered lowered = lower(
      program, scheduled(program, "per-tensor", pipeline_schedule(PipelineKind::Interleaved, 8)));
  for (std::size_t role = 0; role < 4; ++role) {
    EXPECT_THAT(backwards_before_collectives(lowered.program, role), ElementsAre(12, 16));
  }
}

TEST(PipelineLowerTest, AS10AlignedStagesLaunchLaterBehindTheFirst) {
  // Stage r launches chunk 1 after id 11 + r, the (12 + r)-th backward.
  const Program program = LayerChain(8, 4).take();
  Schedule pipeline = pipeline_schedule(PipelineKind::Interleaved, 8);
  pipeline.pipeline.alignment = LaunchAlignment::AcrossStages;
  const Lowered lowered = lower(program, scheduled(program, "per-tensor", pipeline));
  for (std::size_t role = 0; role < 4; ++role) {
    EXPECT_THAT(backwards_before_collectives(lowered.program, role), ElementsAre(12 + role, 16));
  }
}

TEST(PipelineLowerTest, ARefusedPipelineIsAnInputErrorWithItsReason) {
  const Program program = LayerChain(4, 2).take();
  EXPECT_THROW(lower(program, scheduled(program, "per-tensor",
                                        pipeline_schedule(PipelineKind::OneFOneB, 4))),
               InputError);
}

}  // namespace
}  // namespace dovetail::schedule

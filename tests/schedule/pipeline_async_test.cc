// Where in a pipeline gradient communication may start.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "schedule/pipeline/async.h"
#include "tests/support/oracle.h"

namespace dovetail::schedule {
namespace {

constexpr LaunchAlignment kPerStage = LaunchAlignment::PerStage;
constexpr LaunchAlignment kAcross = LaunchAlignment::AcrossStages;

using Permissions = std::vector<LaunchPermission>;

Permissions by_role(const PipelineShape& shape, LaunchAlignment alignment, std::int32_t chunk) {
  Permissions permissions;
  for (std::int32_t role = 0; role < shape.stages; ++role) {
    permissions.push_back(launch_permission(shape, alignment, role, chunk));
  }
  return permissions;
}

std::ptrdiff_t exits(const std::vector<ContextEvent>& events) {
  return std::ranges::count(events, ContextChange::Exit, &ContextEvent::change);
}

using Events = std::vector<ContextEvent>;
constexpr ContextChange kEnter = ContextChange::Enter;
constexpr ContextChange kExit = ContextChange::Exit;

TEST(PipelineAsyncTest, AS1OnlyTheLastMicroBatchCommunicates) {
  const PipelineShape shape{PipelineKind::Sequential, 1, 1, 4};
  EXPECT_EQ(by_role(shape, kPerStage, 0), (Permissions{BesideBackward{3}}));
  // F0 B0 F1 B1 F2 B2 | F3 B3: left before micro-batch 3, that is before step 6.
  EXPECT_EQ(context_events(shape, kPerStage, 0, Pass::Training), (Events{{kEnter, 0}, {kExit, 6}}));
}

TEST(PipelineAsyncTest, AS3OnlyStage0CommunicatesBesideItsLastBackward) {
  const PipelineShape shape{PipelineKind::OneFOneB, 4, 1, 8};
  EXPECT_EQ(by_role(shape, kPerStage, 0), (Permissions{BesideBackward{7}, AfterAllBackwards{},
                                                       AfterAllBackwards{}, AfterAllBackwards{}}));
  // 16 steps per role, the last of which is the last cooldown backward of stage 0.
  EXPECT_EQ(context_events(shape, kPerStage, 0, Pass::Training),
            (Events{{kEnter, 0}, {kExit, 15}}));
  EXPECT_EQ(context_events(shape, kPerStage, 1, Pass::Training),
            (Events{{kEnter, 0}, {kExit, 16}}));
}

TEST(PipelineAsyncTest, AS5WithOneStageTheLastMicroBatchStillCommunicates) {
  // The source system has no cooldown here and so leaves the context after everything.
  const PipelineShape shape{PipelineKind::OneFOneB, 1, 1, 4};
  EXPECT_EQ(by_role(shape, kPerStage, 0), (Permissions{BesideBackward{3}}));
  EXPECT_EQ(context_events(shape, kPerStage, 0, Pass::Training), (Events{{kEnter, 0}, {kExit, 7}}));
}

TEST(PipelineAsyncTest, AS6ForwardOnlyLeavesTheContextAtTheEnd) {
  const PipelineShape shape{PipelineKind::OneFOneB, 4, 1, 8};
  for (std::int32_t role = 0; role < 4; ++role) {
    EXPECT_EQ(context_events(shape, kPerStage, role, Pass::ForwardOnly),
              (Events{{kEnter, 0}, {kExit, 8}}));
  }
}

TEST(PipelineAsyncTest, AS6ExactlyOneExitOnEveryPath) {
  for (std::int32_t stages = 1; stages <= 6; ++stages) {
    for (std::int32_t m = 1; m <= 10; ++m) {
      for (const PipelineKind kind : {PipelineKind::Sequential, PipelineKind::OneFOneB}) {
        for (const LaunchAlignment alignment : {kPerStage, kAcross}) {
          const PipelineShape shape{kind, stages, 1, m};
          for (std::int32_t role = 0; role < stages; ++role) {
            EXPECT_EQ(exits(context_events(shape, alignment, role, Pass::Training)), 1);
            EXPECT_EQ(exits(context_events(shape, alignment, role, Pass::ForwardOnly)), 1);
          }
        }
      }
    }
  }
}

TEST(PipelineAsyncTest, AI8EntriesAndExitsAlternateAndTheContextIsClosed) {
  for (std::int32_t stages = 1; stages <= 4; ++stages) {
    for (std::int32_t chunks = 1; chunks <= 3; ++chunks) {
      for (const LaunchAlignment alignment : {kPerStage, kAcross}) {
        const PipelineShape shape{PipelineKind::Interleaved, stages, chunks, 2 * stages};
        for (std::int32_t role = 0; role < stages; ++role) {
          const Events events = context_events(shape, alignment, role, Pass::Training);
          for (std::size_t i = 0; i < events.size(); ++i) {
            EXPECT_EQ(events[i].change, i % 2 == 0 ? kEnter : kExit);
          }
          EXPECT_TRUE(std::ranges::is_sorted(events, {}, &ContextEvent::before_step));
          EXPECT_EQ(events.back().change, kExit);
          EXPECT_EQ(events.front().before_step, 0U);
        }
      }
    }
  }
}

TEST(PipelineAsyncTest, AS7NoGradientExistsWhenLeavingExactlyOnTheFirstStage) {
  // DP 2, PP 2, batch 2, micro-batch 1: m = 2 micro-batches, P = 2. Where the context is left, does
  // the stage hold a complete gradient already? Stage 0 leaves before its last backward (F0 F1 B0 |
  // B1), stage 1 after all (F0 B0 F1 B1 |).
  const PipelineShape shape{PipelineKind::OneFOneB, 2, 1, 2};
  for (std::int32_t role = 0; role < 2; ++role) {
    const Events events = context_events(shape, kPerStage, role, Pass::Training);
    ASSERT_EQ(exits(events), 1);
    const std::vector<PipelineStep> order = stage_order(shape, role);
    const auto left = order.begin() + static_cast<std::ptrdiff_t>(events.back().before_step);
    const PipelineStep last{Phase::Backward, 1, 0};
    const bool gradient_exists = std::find(order.begin(), left, last) != left;
    EXPECT_EQ(!gradient_exists, role == 0) << "role " << role;
  }
}

TEST(PipelineAsyncTest, O7AS8AS9TheFinalBackwardOfEachChunkCommunicates) {
  // P = 4, v = 2, m = 8: the last group of P v = 8 ids is 8..15; x mod 8 mod 4 = 3 gives 11 and 15,
  // backward chunk 1 - (x mod 8) div 4: 1 and 0.
  const PipelineShape shape{PipelineKind::Interleaved, 4, 2, 8};
  dovetail::testing::expect_oracle("O7 final backward of chunk 1, of 4 stages with 2 chunks",
                                   final_backward(shape, 1), 11);
  dovetail::testing::expect_oracle("O7 final backward of chunk 0", final_backward(shape, 0), 15);
  EXPECT_EQ(by_role(shape, kPerStage, 1), Permissions(4, BesideBackward{11}));
  EXPECT_EQ(by_role(shape, kPerStage, 0), Permissions(4, BesideBackward{15}));
  // Role 3: warm-up 4, so backward id x stands at 4 + 2 x + 1 while pairs last (x < 12): 27. The
  // last of 32 steps is id 15.
  EXPECT_EQ(context_events(shape, kPerStage, 3, Pass::Training),
            (Events{{kEnter, 0}, {kExit, 27}, {kEnter, 28}, {kExit, 31}}));
}

TEST(PipelineAsyncTest, AS10AlignedStagesLaunchRIdsLater) {
  // Chunk 1 is complete with id 11 on every stage; chunk 0 with id 15, and stage r >= 1 has no id
  // 15 + r: it is left to the final synchronisation.
  const PipelineShape shape{PipelineKind::Interleaved, 4, 2, 8};
  EXPECT_EQ(by_role(shape, kAcross, 1), (Permissions{AfterBackward{11}, AfterBackward{12},
                                                     AfterBackward{13}, AfterBackward{14}}));
  EXPECT_EQ(by_role(shape, kAcross, 0), (Permissions{AfterBackward{15}, AfterAllBackwards{},
                                                     AfterAllBackwards{}, AfterAllBackwards{}}));
}

TEST(PipelineAsyncTest, AS11ParametersAreGatheredOneChunkAhead) {
  // P = 4, v = 3: chunk 2 with the first forward of chunk 1, id 4, r ids earlier on stage r.
  const PipelineShape shape{PipelineKind::Interleaved, 4, 3, 8};
  EXPECT_EQ(parameter_gathers(shape, 0), (std::vector<ParameterGather>{{0, 0}, {1, 0}, {2, 4}}));
  EXPECT_EQ(parameter_gathers(shape, 3), (std::vector<ParameterGather>{{0, 0}, {1, 0}, {2, 1}}));
  EXPECT_EQ(nth_step(shape, Phase::Forward, 4).chunk, 1);
  EXPECT_EQ(nth_step(shape, Phase::Forward, 3).chunk, 0);
}

}  // namespace
}  // namespace dovetail::schedule

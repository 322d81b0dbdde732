// Where in a pipeline gradient communication may start.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "schedule/lower/pipeline/async.h"
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

TEST(PipelineAsyncTest, AS1OnlyTheLastMicroBatchCommunicates) {
  const PipelineShape shape{PipelineKind::Sequential, 1, 1, 4};
  EXPECT_EQ(by_role(shape, kPerStage, 0), (Permissions{BesideBackward{3}}));
}

TEST(PipelineAsyncTest, AS3OnlyStage0CommunicatesBesideItsLastBackward) {
  const PipelineShape shape{PipelineKind::OneFOneB, 4, 1, 8};
  EXPECT_EQ(by_role(shape, kPerStage, 0), (Permissions{BesideBackward{7}, AfterAllBackwards{},
                                                       AfterAllBackwards{}, AfterAllBackwards{}}));
}

TEST(PipelineAsyncTest, AS5WithOneStageTheLastMicroBatchStillCommunicates) {
  // The source system has no cooldown here and so communicates after everything.
  const PipelineShape shape{PipelineKind::OneFOneB, 1, 1, 4};
  EXPECT_EQ(by_role(shape, kPerStage, 0), (Permissions{BesideBackward{3}}));
}

TEST(PipelineAsyncTest, O7AS8AS9TheFinalBackwardOfEachChunkCommunicates) {
  // P = 4, v = 2, m = 8: the last group of P v = 8 ids is 8..15; x mod 8 mod 4 = 3 gives 11 and 15,
  // backward chunk 1 - (x mod 8) div 4: 1 and 0.
  const PipelineShape shape{PipelineKind::Interleaved, 4, 2, 8};
  dovetail::testing::expect_oracle("O7 final backward of chunk 1, of 4 stages with 2 chunks",
                                   final_backward(shape, 0, 1), 11);
  dovetail::testing::expect_oracle("O7 final backward of chunk 0", final_backward(shape, 0, 0), 15);
  EXPECT_EQ(by_role(shape, kPerStage, 1), Permissions(4, BesideBackward{11}));
  EXPECT_EQ(by_role(shape, kPerStage, 0), Permissions(4, BesideBackward{15}));
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

}  // namespace
}  // namespace dovetail::schedule

// The order in which the stages of a pipeline run, and the bubbles that it leaves.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "schedule/lower/pipeline/order.h"
#include "tests/support/oracle.h"
#include "tests/support/pipeline_slack.h"

namespace dovetail::schedule {
namespace {

// "F0 F1 B0 ...", with chunks "F0.1": micro-batch 0, chunk 1.
std::string text(const std::vector<PipelineStep>& order, std::int32_t chunks = 1) {
  std::string line;
  for (const PipelineStep& step : order) {
    if (!line.empty()) line += ' ';
    line += "FBW"[static_cast<int>(step.pass)];
    line += std::to_string(step.micro_step);
    if (chunks > 1) line += '.' + std::to_string(step.chunk);
  }
  return line;
}

std::vector<PipelineShape> shapes() {
  std::vector<PipelineShape> all;
  for (std::int32_t stages = 1; stages <= 5; ++stages) {
    for (std::int32_t m = 1; m <= 3 * stages; ++m) {
      for (std::int32_t chunks = 1; chunks <= 3; ++chunks) {
        for (const PipelineKind kind : kAllOf<PipelineKind>) {
          const PipelineShape shape{kind, stages, chunks, m};
          if (!problem(shape)) all.push_back(shape);
        }
      }
    }
  }
  return all;
}

std::vector<std::int64_t> slack_units(const PipelineShape& shape) {
  std::vector<std::int64_t> units;
  for (const RoleSlack& role : slack(shape, equal_stages(shape, Duration(1), Duration(2)))) {
    units.push_back(role.slack.count());
  }
  return units;
}

TEST(PipelineOrderTest, AS1RunsForwardAndBackwardOfOneMicroBatchAfterTheOther) {
  const PipelineShape shape{PipelineKind::Sequential, 1, 1, 3};
  EXPECT_EQ(text(stage_order(shape, 0)), "F0 B0 F1 B1 F2 B2");
}

TEST(PipelineOrderTest, AS2WarmsUpWithOneForwardPerStageBehind) {
  // P = 4, m = 5: warm-up 3, 2, 1, 0; pairs until the forwards are spent; the rest is cooldown.
  const PipelineShape shape{PipelineKind::OneFOneB, 4, 1, 5};
  EXPECT_EQ(text(stage_order(shape, 0)), "F0 F1 F2 F3 B0 F4 B1 B2 B3 B4");
  EXPECT_EQ(text(stage_order(shape, 1)), "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4");
  EXPECT_EQ(text(stage_order(shape, 2)), "F0 F1 B0 F2 B1 F3 B2 F4 B3 B4");
  EXPECT_EQ(text(stage_order(shape, 3)), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
}

TEST(PipelineOrderTest, AS2WarmUpIsAtMostAllMicroBatches) {
  const PipelineShape shape{PipelineKind::OneFOneB, 4, 1, 2};
  EXPECT_EQ(warm_up_steps(shape, 0), 2);  // min(4 - 0 - 1, 2)
  EXPECT_EQ(text(stage_order(shape, 0)), "F0 F1 B0 B1");
  EXPECT_EQ(warm_up_steps(shape, 3), 0);
}

TEST(PipelineOrderTest, AS9WarmUpOfInterleavedStages) {
  // 2 (P - r - 1) + (v - 1) P with P = 4, v = 2: 6 + 4, 4 + 4, 2 + 4, 0 + 4.
  const PipelineShape shape{PipelineKind::Interleaved, 4, 2, 8};
  EXPECT_EQ(warm_up_steps(shape, 0), 10);
  EXPECT_EQ(warm_up_steps(shape, 1), 8);
  EXPECT_EQ(warm_up_steps(shape, 2), 6);
  EXPECT_EQ(warm_up_steps(shape, 3), 4);
  // With m == P everything is warm-up.
  const PipelineShape short_one{PipelineKind::Interleaved, 4, 2, 4};
  for (std::int32_t role = 0; role < 4; ++role) EXPECT_EQ(warm_up_steps(short_one, role), 8);
}

TEST(PipelineOrderTest, AS9InterleavesTheChunksInGroupsOfMicroBatches) {
  // P = 2, v = 2, m = 4. Forward ids: chunk 0 of 0 1, chunk 1 of 0 1, chunk 0 of 2 3, chunk 1 of 2
  // 3; backward ids the same with chunk 1 first. Warm-up of role 1: 0 + 2, of role 0: 2 + 2.
  const PipelineShape shape{PipelineKind::Interleaved, 2, 2, 4};
  EXPECT_EQ(text(stage_order(shape, 1), 2),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0");
  EXPECT_EQ(text(stage_order(shape, 0), 2),
            "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0");
}

TEST(PipelineOrderTest, WeightsFollowAsManyBackwardsLaterAsThereAreStagesBefore) {
  // P = 3, m = 4: warm-up 2, 1, 0; W of role r stands r backwards behind its own, the last r at the end.
  const PipelineShape shape{PipelineKind::ZeroBubble, 3, 1, 4};
  EXPECT_EQ(text(stage_order(shape, 0)), "F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3");
  EXPECT_EQ(text(stage_order(shape, 1)), "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3");
  EXPECT_EQ(text(stage_order(shape, 2)), "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3");
}

TEST(PipelineOrderTest, WeightsOfChunksFollowTheirBackwards) {
  // P = 2, v = 2, m = 2: warm-up (v - 1) P + P - r - 1 = 3 and 2, weights 0 and 1 backwards later.
  const PipelineShape shape{PipelineKind::ZeroBubble, 2, 2, 2};
  EXPECT_EQ(text(stage_order(shape, 0), 2),
            "F0.0 F1.0 F0.1 F1.1 B0.1 W0.1 B1.1 W1.1 B0.0 W0.0 B1.0 W1.0");
  EXPECT_EQ(text(stage_order(shape, 1), 2),
            "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 W0.1 B0.0 W1.1 B1.0 W0.0 W1.0");
}

TEST(PipelineOrderTest, ZbvGoesThereAndBack) {
  // P = 2, m = 4, as torch.distributed.pipelining writes it. Warm-up 2 (P - r) - 1 of chunk 0, r of both, P - r of chunk 1
  // with its backward; then both chunks in turn; r backwards of both without their weights.
  const PipelineShape shape{PipelineKind::Zbv, 2, 2, 4};
  EXPECT_EQ(text(stage_order(shape, 0), 2),
            "F0.0 F1.0 F2.0 F0.1 B0.1 W0.1 F1.1 B1.1 W1.1 F3.0 B0.0 W0.0 F2.1 B2.1 W2.1 B1.0 W1.0 "
            "F3.1 B3.1 W3.1 B2.0 W2.0 B3.0 W3.0");
  EXPECT_EQ(text(stage_order(shape, 1), 2),
            "F0.0 F0.1 F1.0 F1.1 B0.1 W0.1 F2.0 B0.0 W0.0 F2.1 B1.1 W1.1 F3.0 B1.0 W1.0 F3.1 B2.1 "
            "W2.1 B2.0 B3.1 B3.0 W2.0 W3.1 W3.0");
  for (std::int32_t stage = 0; stage < 4; ++stage) {
    EXPECT_EQ(shape.role_of(stage), stage < 2 ? stage : 3 - stage);
    EXPECT_EQ(shape.stage_of(shape.role_of(stage), stage / 2), stage);
  }
}

TEST(PipelineOrderTest, EveryMicroBatchPassesEveryChunkOnceInEachDirection) {
  for (const PipelineShape& shape : shapes()) {
    for (std::int32_t role = 0; role < shape.stages; ++role) {
      std::set<std::tuple<Pass, std::int32_t, std::int32_t>> seen;
      for (const PipelineStep& step : stage_order(shape, role)) {
        EXPECT_TRUE(seen.emplace(step.pass, step.micro_step, step.chunk).second);
        EXPECT_TRUE(step.micro_step >= 0 && step.micro_step < shape.micro_steps);
        EXPECT_TRUE(step.chunk >= 0 && step.chunk < shape.chunks);
      }
      const std::int32_t passes = splits_backward(shape.kind) ? 3 : 2;
      EXPECT_EQ(seen.size(), static_cast<std::size_t>(passes * shape.steps_per_direction()));
    }
  }
}

TEST(PipelineOrderTest, TheSerialOrderRespectsEveryDependencyAndEveryRole) {
  for (const PipelineShape& shape : shapes()) {
    const std::vector<RoleStep> serial = serial_order(shape);
    for (std::int32_t role = 0; role < shape.stages; ++role) {
      std::vector<PipelineStep> own;
      for (const RoleStep& at : serial) {
        if (at.role == role) own.push_back(at.step);
      }
      EXPECT_EQ(own, stage_order(shape, role));
    }
    for (auto at = serial.begin(); at != serial.end(); ++at) {
      const auto before = [&](const RoleStep& other) {
        return std::find(serial.begin(), at, other) != at;
      };
      const auto needed = step_needed(shape, *at);
      EXPECT_TRUE(!needed || before(*needed));
      const auto own_before = [&](Pass pass) {
        return before({at->role, {pass, at->step.micro_step, at->step.chunk}});
      };
      EXPECT_TRUE(at->step.pass != Pass::Backward || own_before(Pass::Forward));
      EXPECT_TRUE(at->step.pass != Pass::Weights || own_before(Pass::Backward));
    }
  }
}

TEST(PipelineOrderTest, NoRoleHoldsMoreThanItsOrderAllows) {
  // Of 1/v of the model each. 1F1B: P - r. Delayed weights fill that up to P on every role: v P chunks, 2 P in a V.
  for (const PipelineShape& shape : shapes()) {
    for (std::int32_t role = 0; role < shape.stages; ++role) {
      const std::int32_t most = most_in_flight(shape, role);
      const std::int32_t all = shape.chunks * shape.micro_steps;
      const std::int32_t filled = shape.chunks * shape.stages;
      if (shape.kind == PipelineKind::OneFOneB) {
        EXPECT_EQ(most, std::min(shape.stages - role, all));
      } else if (splits_backward(shape.kind)) {
        EXPECT_LE(most, std::min(filled, all));
      }
      if (splits_backward(shape.kind) && shape.micro_steps >= 2 * shape.stages) {
        EXPECT_EQ(most, filled);
      }
    }
  }
}

TEST(PipelineOrderTest, WhatIsInFlightIsWhatItsOrderHolds) {
  std::size_t looked_at = 0;
  for (const PipelineKind kind : kAllOf<PipelineKind>) {
    for (std::int32_t stages = 1; stages <= 8; ++stages) {
      for (std::int32_t chunks = 1; chunks <= 3; ++chunks) {
        for (std::int32_t micro_steps = 1; micro_steps <= 4 * stages + 3; ++micro_steps) {
          const PipelineShape shape{kind, stages, chunks, micro_steps};
          if (problem(shape)) continue;
          for (std::int32_t role = 0; role < stages; ++role) {
            std::int32_t now = 0, most = 0;
            for (const PipelineStep& step : stage_order(shape, role)) {
              if (step.pass == Pass::Forward) most = std::max(most, ++now);
              if (step.pass == shape.last_pass()) --now;
            }
            EXPECT_EQ(most_in_flight(shape, role), most)
                << to_string(kind) << ' ' << stages << ' ' << chunks << ' ' << micro_steps << ' '
                << role;
            ++looked_at;
          }
        }
      }
    }
  }
  EXPECT_GT(looked_at, 3'000U);
}

TEST(PipelineOrderTest, RefusesShapesThatHaveNoOrder) {
  EXPECT_EQ(problem({PipelineKind::Interleaved, 4, 2, 6}),
            "interleaved pipelines need a multiple of 4 micro-batches, not 6");
  EXPECT_EQ(problem({PipelineKind::OneFOneB, 4, 2, 8}),
            "the order 1F1B has one chunk per stage, not 2 (use interleaved)");
  EXPECT_EQ(problem({PipelineKind::ZeroBubble, 4, 1, 6}), std::nullopt);
  EXPECT_EQ(problem({PipelineKind::ZeroBubble, 4, 2, 6}),
            "interleaved pipelines need a multiple of 4 micro-batches, not 6");
  EXPECT_EQ(problem({PipelineKind::Zbv, 4, 1, 8}), "the order zbv has two chunks per stage, not 1");
  EXPECT_NE(problem({PipelineKind::OneFOneB, 0, 1, 8}), std::nullopt);
  EXPECT_EQ(problem({PipelineKind::Interleaved, 4, 2, 8}), std::nullopt);
}

TEST(PipelineSlackTest, O7LastBackwardsEndAt33_31_29_27) {
  // AS4: P = 4, t_f = 1, t_b = 2, m = 8. Stage 0 ends last: (m + P - 1) (t_f + t_b) = 33; each
  // stage behind it ends one t_b earlier.
  const PipelineShape shape{PipelineKind::OneFOneB, 4, 1, 8};
  const auto roles = slack(shape, equal_stages(shape, Duration(1), Duration(2)));
  ASSERT_EQ(roles.size(), 4U);
  EXPECT_EQ(roles[0], (RoleSlack{Duration(33), Duration(0)}));
  EXPECT_EQ(roles[1], (RoleSlack{Duration(31), Duration(2)}));
  EXPECT_EQ(roles[2], (RoleSlack{Duration(29), Duration(4)}));
  EXPECT_EQ(roles[3], (RoleSlack{Duration(27), Duration(6)}));
}

TEST(PipelineSlackTest, O7SlackIsTheSameWithFewerMicroBatches) {
  const std::vector<std::int64_t> expected{0, 2, 4, 6};
  for (const std::int32_t m : {8, 4, 2}) {
    dovetail::testing::expect_oracle(
        "O7 slack of 4 stages, " + std::to_string(m) + " micro-batches",
        slack_units({PipelineKind::OneFOneB, 4, 1, m}), expected);
  }
}

TEST(PipelineSlackTest, O7EightStages) {
  const std::vector<std::int64_t> expected{0, 2, 4, 6, 8, 10, 12, 14};
  dovetail::testing::expect_oracle("O7 slack of 8 stages, 16 micro-batches",
                                   slack_units({PipelineKind::OneFOneB, 8, 1, 16}), expected);
}

TEST(PipelineSlackTest, AS4WhatIsExposedShrinksByOneBackwardPerStage) {
  // T_sync = 5: max(0, 5 - 2 r) = 5, 3, 1, 0. Role 0 may communicate beside its last backward
  // (AS3), at best all 2 of it: 3.
  const PipelineShape shape{PipelineKind::OneFOneB, 4, 1, 8};
  const auto roles = slack(shape, equal_stages(shape, Duration(1), Duration(2)));
  EXPECT_EQ(exposed(roles[0], Duration(5)), Duration(5));
  EXPECT_EQ(exposed(roles[0], Duration(5), Duration(2)), Duration(3));
  EXPECT_EQ(exposed(roles[1], Duration(5)), Duration(3));
  EXPECT_EQ(exposed(roles[2], Duration(5)), Duration(1));
  EXPECT_EQ(exposed(roles[3], Duration(5)), Duration(0));
}

TEST(PipelineSlackTest, SendsLengthenTheBubble) {
  // P = 2, m = 1, t_f = 1, t_b = 2, sends 10: F 0..1 on role 0, F 11..12 and B 12..14 on role 1, B
  // 24..26 on role 0.
  const PipelineShape shape{PipelineKind::OneFOneB, 2, 1, 1};
  StageTimes times = equal_stages(shape, Duration(1), Duration(2));
  times.send = Duration(10);
  const auto roles = slack(shape, times);
  EXPECT_EQ(roles[0], (RoleSlack{Duration(26), Duration(0)}));
  EXPECT_EQ(roles[1], (RoleSlack{Duration(14), Duration(12)}));
}

TEST(PipelineSlackTest, DelayedWeightsShortenTheBubble) {
  // F = B = W = 1, P stages, m = 3 P. Work 3 m; bubbles of the paper's table 2 (arXiv 2401.10241): 1F1B (P - 1) (F + B + W),
  // ZB-H1 (P - 1) (F + B - W). ZBV: each role works 6 m half chunks without a pause, role r from r on, so the step
  // is 6 m + P - 1, and once steps follow one another no bubble is left but what the update makes wait.
  for (std::int32_t stages = 2; stages <= 6; ++stages) {
    const std::int32_t m = 3 * stages;
    const auto end = [&](PipelineKind kind, std::int32_t chunks, int backward, int weights) {
      const PipelineShape shape{kind, stages, chunks, m};
      Duration last{};
      const auto times = equal_stages(shape, Duration(1), Duration(backward), Duration(weights));
      for (const TimedStep& at : play(shape, times)) last = std::max(last, at.end);
      return last.count();
    };
    EXPECT_EQ(end(PipelineKind::OneFOneB, 1, 2, 0), 3 * m + 3 * (stages - 1));
    EXPECT_EQ(end(PipelineKind::ZeroBubble, 1, 1, 1), 3 * m + (stages - 1));
    EXPECT_EQ(end(PipelineKind::Zbv, 2, 1, 1), 6 * m + (stages - 1));
  }
}

TEST(PipelineSlackTest, ZbvLeavesNoRoleIdleBetweenItsFirstAndItsLastStep) {
  const PipelineShape shape{PipelineKind::Zbv, 4, 2, 12};
  std::vector<Duration> free_at(4);
  for (const TimedStep& at :
       play(shape, equal_stages(shape, Duration(1), Duration(1), Duration(1)))) {
    Duration& end = free_at[static_cast<std::size_t>(at.step.role)];
    EXPECT_TRUE(end == Duration{} || at.start == end);
    end = at.end;
  }
}

TEST(PipelineSlackTest, InterleavingShortensTheBubble) {
  // The ideal bubble is (P - 1) (t_f + t_b) / v: with P = 4, t = 3 per stage (chunks: half) and v =
  // 2, 9 of 1F1B become 4.5. In half units: work 8 x 6 = 48; 1F1B 48 + 18, interleaved 48 + 9.
  const PipelineShape plain{PipelineKind::OneFOneB, 4, 1, 8};
  const PipelineShape chunks{PipelineKind::Interleaved, 4, 2, 8};
  const auto end = [](const PipelineShape& shape, Duration forward, Duration backward) {
    return slack(shape, equal_stages(shape, forward, backward))[0].last_backward_end;
  };
  EXPECT_EQ(end(plain, Duration(2), Duration(4)), Duration(66));
  EXPECT_EQ(end(chunks, Duration(1), Duration(2)), Duration(57));
}

}  // namespace
}  // namespace dovetail::schedule

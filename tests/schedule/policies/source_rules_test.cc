// Rules of Paddle's data-parallel pass that no single pass of ours shows alone: what is recognised,
// how buckets lie, what is reported, and what its limits became.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "schedule/lower/factors.h"
#include "tests/schedule/policies/applied.h"
#include "tests/support/step_builder.h"

namespace dovetail::schedule {
namespace {

using dovetail::testing::StepBuilder;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Effect kAdamUpdate = Update{};

// The names of each bucket's gradients.
std::vector<std::vector<std::string>> names(const Program& program, const Schedule& schedule) {
  std::vector<std::vector<std::string>> buckets;
  for (const Bucket& bucket : schedule.buckets) {
    buckets.emplace_back();
    for (const Slice& slice : bucket.gradients) {
      buckets.back().push_back(program.tensor(slice.tensor).name);
    }
  }
  return buckets;
}

// `count` ops with one gradient of `elements` each, over one process group of 4 ranks.
Program layers(int count, std::int64_t elements) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  for (int i = 0; i < count; ++i) step.backward("l" + std::to_string(i), {{elements, dp}});
  return step.build(kAdamUpdate);
}

TEST(SourceRulesTest, P2EveryKeyThatTheSourceDoesNotReadIsAnOption) {
  const Program program = layers(8, 1000);  // 4000 bytes each
  const auto buckets = [&](const std::string& options) {
    return applied(program, "source-first-fit:" + options).schedule.buckets;
  };
  EXPECT_THAT(buckets("fuse=yes"), SizeIs(1));
  EXPECT_THAT(buckets("fuse=no"), SizeIs(8));
  EXPECT_THAT(buckets("cap=16000B"), SizeIs(2));
  EXPECT_EQ(buckets("overlap=yes").front().stream, StreamChoice(CommStream{0}));
  EXPECT_EQ(buckets("overlap=no").front().stream, StreamChoice(InlineStream{}));
  EXPECT_EQ(applied(program, "source-first-fit:k=2,sync=after").schedule.merge.sync,
            SyncPoint::AfterLastMicroStep);
}

// Three all-reduces of the Program touch gradients; only the debts decide what is bucketed.
TEST(SourceRulesTest, P3WhatIsOwedIsReducedAndNotWhatLooksLikeAReduction) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  const GroupId tp = step.group(2);
  const TensorId a = step.backward("a", {{1000, dp}}).front();
  step.tensor_parallel(a, tp);
  const TensorId expert = step.backward("expert", {{1000, dp}}).front();
  step.tensor_parallel(expert, tp);
  step.backward("b", {{1000, dp}});
  Program program = step.build(kAdamUpdate);
  std::erase_if(program.reductions,
                [&](const Reduction& reduction) { return reduction.gradient == expert; });
  for (const std::string policy :
       {"source-first-fit:scale=collective", "source-improved", "torch-ddp", "per-tensor"}) {
    std::vector<std::string> reduced;
    for (const auto& bucket : names(program, applied(program, policy).schedule)) {
      reduced.insert(reduced.end(), bucket.begin(), bucket.end());
    }
    EXPECT_THAT(reduced, ElementsAre("a.0", "b.0")) << policy;
  }
}

// An average over 3 ranks with a scale of 2/7: 1/3 x 2/7 = 2/21, which no binary float holds.
TEST(SourceRulesTest, P4TheScaleIsAnExactFractionOfTheDebt) {
  StepBuilder step;
  const TensorId a = step.backward("a", {{10, step.group(3)}}).front();
  Program program = step.build(kAdamUpdate);
  program.reductions.front().scale = Rational(2, 7);
  EXPECT_EQ(owed_factors(program).at(a).total(), Rational(2, 21));
  program.reductions.front().op = ReduceOp::Sum;
  EXPECT_EQ(owed_factors(program).at(a).total(), Rational(2, 7));
}

// x is written twice, so `again` is its producer; it owes two reductions, and both are kept.
TEST(SourceRulesTest, P6TheDebtsStandInReadyOrderAndNoneOfAGradientIsDropped) {
  StepBuilder step;
  const GroupId a = step.group(4);
  const GroupId b = step.group(2);
  const TensorId x = step.backward("x", {{10, a}}).front();
  step.owe(x, b);
  step.backward("y", {{10, a}});
  step.tensor_parallel(x, b);
  Program program = step.build(kAdamUpdate);
  std::rotate(program.reductions.begin(), program.reductions.begin() + 2,
              program.reductions.end());  // ready order
  ASSERT_THAT(problems(program), IsEmpty());
  std::vector<std::string> order;
  for (const OwedGradient& owed : owed_gradients(program)) {
    order.push_back(program.tensor(owed.tensor).name + " over " + program.group(owed.group).name +
                    " after " + program.op(owed.producer).name);
  }
  EXPECT_THAT(order, ElementsAre("y.0 over dp0 after y", "x.0 over dp0 after x.0.tp",
                                 "x.0 over dp1 after x.0.tp"));
}

TEST(SourceRulesTest, P6AL10ADebtOverAnUnknownGroupOrOfNoProducerIsAProblem) {
  Program unknown = layers(2, 10);
  unknown.reductions.front().group = GroupId{7};
  EXPECT_THAT(problems(unknown), Contains(HasSubstr("group")));
  // A parameter whose gradient never comes must not keep a bucket waiting: it is refused.
  Program unwritten = layers(2, 10);
  for (Op& op : unwritten.ops) {
    if (op.name == "l1") op.writes.clear();
  }
  EXPECT_THAT(problems(unwritten), Contains(HasSubstr("l1.0")));
}

// The same eight gradients, with unrelated ops between producer and producer: other ids, other
// positions, the same buckets.
TEST(SourceRulesTest, P24PL7PL10BucketsFollowProducersAndNotPositions) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  for (int i = 0; i < 8; ++i) {
    step.backward("l" + std::to_string(i), {{1000, dp}});
    for (int extra = 0; extra < i % 3; ++extra) {
      step.backward("other" + std::to_string(3 * i + extra), {});
    }
  }
  const Program apart = step.build(kAdamUpdate);
  const Program dense = layers(8, 1000);
  for (const std::string policy :
       {"source-first-fit:elements=3000", "source-improved:cap=12000B"}) {
    const Schedule schedule = applied(apart, policy).schedule;
    EXPECT_EQ(names(apart, schedule), names(dense, applied(dense, policy).schedule)) << policy;
    EXPECT_THAT(names(apart, schedule), SizeIs(3)) << policy;
    EXPECT_THAT(complaints(apart, schedule), IsEmpty());
  }
}

// 10, 20 and 30 elements of 4 bytes: offsets 0, 40, 120. The only collective moves the buffer.
TEST(SourceRulesTest, P26MembersAreWindowsOfOneBufferAndItsCollectiveMovesIt) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  for (int i = 1; i <= 3; ++i) step.backward("l" + std::to_string(i), {{10 * i, dp}});
  const Program program = step.build(kAdamUpdate);
  Schedule schedule = applied(program, "one-bucket").schedule;
  const ScheduledProgram lowered = lower(program, schedule).program;
  ASSERT_THAT(lowered.buckets, SizeIs(1));
  const BucketLayout& layout = lowered.buckets.front();
  std::vector<Bytes> offsets;
  for (const BucketMember& member : layout.members) offsets.push_back(member.offset);
  EXPECT_THAT(offsets, ElementsAre(Bytes(0), Bytes(40), Bytes(120)));
  EXPECT_EQ(layout.payload, Bytes(240));
  EXPECT_EQ(layout.mode, BucketMode::View);
  std::vector<BucketId> collectives;
  for (const Command& command : lowered.roles.front().commands) {
    EXPECT_FALSE(std::holds_alternative<Copy>(command.action));  // producers write in place
    const auto* run = bucket_collective(command);
    if (run != nullptr) collectives.push_back(*run->bucket);
  }
  EXPECT_THAT(collectives, ElementsAre(layout.bucket));
}

// Cap of 6000 elements, 13 gradients: 6, 6 and 1. The single gradient is counted apart.
TEST(SourceRulesTest, P31PL22TheReportCountsSingleGradientsApartAndSaysWhyBucketsClosed) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  for (int i = 0; i < 6; ++i) step.backward("l" + std::to_string(i), {{1000, dp}, {1000, dp}});
  step.backward("last", {{1000, dp}});
  const std::vector<std::string> report =
      applied(step.build(kAdamUpdate), "source-first-fit:elements=6000").report;
  EXPECT_THAT(report, Contains(HasSubstr("13 all-reduces fused into 3: 50.8 KiB")));
  EXPECT_THAT(report, Contains(HasSubstr("1 single gradient apart")));
  EXPECT_THAT(report, Contains("buckets closed by cap 2, end 1"));
}

// Fusion is refused for the op's name; each reader still waits for its gradient.
TEST(SourceRulesTest, PL13ARefusedFusionIsStillLegal) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  step.backward("l0", {{1000, dp}});
  step.backward("matmul_grad_grad", {{1000, dp}});
  const Program program = step.build(kAdamUpdate);
  const PolicyResult result = applied(program, "source-first-fit");
  EXPECT_THAT(result.refusals, ElementsAre(HasSubstr("is a higher-order op")));
  EXPECT_THAT(complaints(program, result.schedule), IsEmpty());
}

// Nobody reads a gradient in backward, so the name of an op is no reason not to fuse.
TEST(SourceRulesTest, P17PL18ReadersDecideAndNotTheNamesOfOps) {
  StepBuilder step;
  const GroupId dp = step.group(4);
  for (int i = 0; i < 8; ++i) {
    step.backward(i == 3 ? "matmul_grad_grad" : "l" + std::to_string(i), {{1000, dp}});
  }
  const Program program = step.build(kAdamUpdate);
  EXPECT_THAT(applied(program, "source-first-fit").schedule.buckets, SizeIs(8));
  EXPECT_THAT(applied(program, "source-improved").schedule.buckets, SizeIs(1));
}

}  // namespace
}  // namespace dovetail::schedule

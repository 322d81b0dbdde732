// The passes together: whatever a Schedule asks for, the lowered Program is legal or refused.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "schedule/lower.h"
#include "schedule/rewrite/scale.h"
#include "schedule/verify.h"
#include "tests/schedule/rewrite_programs.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dovetail::schedule::rewrite_test {
namespace {

// Every choice that the passes look at.
std::vector<Schedule> all_choices() {
  std::vector<Schedule> all;
  for (const ScaleAt scale :
       {ScaleAt::Collective, ScaleAt::BeforeCollective, ScaleAt::AfterCollective,
        ScaleAt::LossGradient, ScaleAt::Optimizer}) {
    for (const std::int32_t k : {1, 2, 4}) {
      for (const SyncPoint sync :
           {SyncPoint::EveryMicroStep, SyncPoint::AfterLastMicroStep, SyncPoint::LastMicroStep}) {
        for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Average}) {
          for (const Collective kind : {Collective::AllReduce, Collective::ReduceScatter}) {
            Schedule schedule = one_bucket(kind);
            schedule.policy = std::string(to_string(scale)) + " k=" + std::to_string(k) + " " +
                              std::string(to_string(sync)) + " " + std::string(to_string(op)) +
                              " " + std::string(to_string(kind));
            schedule.scale = scale;
            schedule.merge = {.micro_steps = k, .op = op, .sync = sync};
            schedule.buckets[0].mode = BucketMode::Copy;
            all.push_back(std::move(schedule));
          }
        }
      }
    }
  }
  return all;
}

std::vector<std::string> complaints(const ScheduledProgram& program) {
  std::vector<std::string> messages;
  for (const Problem& problem : verify(program)) messages.push_back(problem.message);
  return messages;
}

TEST(RewriteVerifyTest, PI2EveryCombinationOfPassesIsLegal) {
  int legal = 0;
  int refused = 0;
  for (const Schedule& schedule : all_choices()) {
    const bool shards_every_step = schedule.merge.micro_steps > 1 &&
                                   schedule.merge.sync == SyncPoint::EveryMicroStep &&
                                   schedule.buckets[0].collective == Collective::ReduceScatter;
    if (shards_every_step) {
      EXPECT_THROW(lower(two_layers(), schedule), InputError) << schedule.policy;
      ++refused;
      continue;
    }
    const Lowered lowered = lower(two_layers(), schedule);
    EXPECT_EQ(complaints(lowered.program), std::vector<std::string>{}) << schedule.policy;
    ++legal;
  }
  // 5 places x 3 k x 3 sync points x 2 x 2; refused are k = 2 and 4, every, sharded: 5 x 2 x 2.
  EXPECT_EQ(legal + refused, 180);
  EXPECT_EQ(refused, 20);
}

TEST(RewriteVerifyTest, PL14AFoldedFactorBesideAnAverageIsFound) {
  // What the passes avoid: the fill is scaled and the collective averages too.
  Schedule schedule = one_bucket();
  schedule.scale = ScaleAt::LossGradient;
  Lowered lowered = lower(two_layers(), schedule);
  for (Command& command : lowered.program.roles[0].commands) {
    if (auto* collective = std::get_if<RunCollective>(&command.action)) {
      collective->reduce = ReduceOp::Average;
    }
  }
  EXPECT_FALSE(complaints(lowered.program).empty());
}

TEST(RewriteVerifyTest, GM9ASumWithoutItsAverageIsFound) {
  Schedule schedule = one_bucket();
  schedule.merge = {.micro_steps = 2};
  Lowered lowered = lower(two_layers(), schedule);
  ASSERT_TRUE(complaints(lowered.program).empty());
  for (Op& op : lowered.program.program.ops) {
    if (auto* accumulate = std::get_if<Accumulate>(&op.effect)) accumulate->factor = Rational(1);
  }
  EXPECT_FALSE(complaints(lowered.program).empty());
}

}  // namespace
}  // namespace dovetail::schedule::rewrite_test

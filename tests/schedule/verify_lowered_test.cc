// What lower makes of every combination of decisions is legal, and no command of it is idle.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "tests/schedule/verify_programs.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>

namespace dovetail::schedule::verify_test {
namespace {

struct Case {
  std::string name;
  Schedule schedule;
};

// Every ScaleAt, merge, collective, mode, place of parameters and stream, with two groupings.
std::vector<Case> all_cases(const Program& program) {
  std::vector<Case> cases;
  const std::vector<Merge> merges = {
      {},
      {.micro_steps = 2, .sync = SyncPoint::EveryMicroStep},
      {.micro_steps = 2, .sync = SyncPoint::AfterLastMicroStep},
      {.micro_steps = 2, .sync = SyncPoint::LastMicroStep},
      {.micro_steps = 4, .op = ReduceOp::Sum, .sync = SyncPoint::LastMicroStep}};
  using enum ScaleAt;
  for (const ScaleAt scale :
       {Collective, BeforeCollective, AfterCollective, LossGradient, Optimizer}) {
    for (const Merge& merge : merges) {
      for (int choice = 0; choice < 32; ++choice) {
        Schedule schedule = (choice & 1) != 0 ? buckets_of(program, {{"l2"}, {"l1"}, {"l0"}})
                                              : buckets_of(program, {{"l2", "l1"}, {"l0"}});
        schedule.scale = scale;
        schedule.merge = merge;
        for (Bucket& bucket : schedule.buckets) {
          bucket.mode = (choice & 2) != 0 ? BucketMode::Copy : BucketMode::View;
          if ((choice & 4) != 0) bucket.collective = schedule::Collective::ReduceScatter;
          if ((choice & 8) != 0) bucket.stream = InlineStream{};
        }
        if ((choice & 16) != 0) schedule.parameters = ParameterSync::NextForward;
        cases.push_back({std::string(to_string(scale)) + ", " + std::to_string(merge.micro_steps) +
                             " micro-steps " + std::string(to_string(merge.sync)) + ", choice " +
                             std::to_string(choice),
                         schedule});
      }
    }
  }
  return cases;
}

std::optional<ScheduledProgram> plan_of(const Program& program, const Schedule& schedule) {
  try {
    return lower(program, schedule).program;
  } catch (const InputError&) {
    return std::nullopt;  // it says that it cannot
  }
}

TEST(VerifyLoweredTest, PI2EveryCombinationOfDecisionsIsLegal) {
  const Program program = training({6, 10, 8}, 4);
  std::size_t legal = 0;
  std::map<std::string, std::string> seen;
  for (const Case& one : all_cases(program)) {
    const auto plan = plan_of(program, one.schedule);
    if (!plan) continue;
    ++legal;
    const auto problems = verify(*plan);
    EXPECT_TRUE(problems.empty()) << one.name << ": " << problems.front().message;
  }
  // 800 cases; lower refuses only to scatter in every micro-step (5 x 16).
  EXPECT_EQ(legal, 720U);
}

}  // namespace
}  // namespace dovetail::schedule::verify_test

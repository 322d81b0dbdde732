// What lower makes of every combination of decisions is legal, and no command of it is idle.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "tests/schedule/verify/verify_programs.h"
#include "tests/support/cases.h"

#include <gtest/gtest.h>

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
  std::size_t number = 0;
  for (const Case& one : all_cases(program)) {
    if (!dovetail::testing::takes(number++)) continue;
    const auto plan = plan_of(program, one.schedule);
    ASSERT_TRUE(plan) << one.name;
    const auto problems = verify(program, *plan, one.schedule.merge);
    EXPECT_TRUE(problems.empty()) << one.name << ": " << problems.front().message;
  }
  EXPECT_EQ(number, 800U);
}

// Without any one of its ops, collectives, copies or scales a plan is illegal, and the reason is no
// accident: every mutation of every case is looked at. A wait or a record may be implied by another.
class VerifyLeftOutTest : public ::testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Part, VerifyLeftOutTest, ::testing::Range(std::size_t{0}, std::size_t{3}));

TEST_P(VerifyLeftOutTest, EveryCommandThatIsLeftOutIsNoticed) {
  const Program program = training({6, 10, 8}, 4);
  std::size_t waits = 0;
  std::size_t needed = 0;
  std::size_t at = 0;
  for (const Case& one : all_cases(program)) {
    // Every seventh: all decisions still meet each other. Each test has a third of those.
    if (at++ % 21 != 7 * GetParam() || !dovetail::testing::takes(at / 21)) continue;
    const auto plan = plan_of(program, one.schedule);
    if (!plan) continue;
    for (std::size_t i = 0; i < plan->roles[0].commands.size(); ++i) {
      ScheduledProgram broken = *plan;
      const Command left_out = plan->roles[0].commands[i];
      erase(broken, i);
      const bool noticed = !verify(program, broken, one.schedule.merge).empty();
      if (std::holds_alternative<WaitEvent>(left_out.action)) {
        ++waits;
        needed += noticed ? 1U : 0U;
      } else if (!std::holds_alternative<RecordEvent>(left_out.action)) {
        EXPECT_TRUE(noticed) << one.name << ", without c" << left_out.id.value;
      }
    }
  }
  // About 52 of the 103 plans have communication streams: 2 or 3 buckets, 2 waits each, or 4 where
  // they are sharded, some in several micro-steps; so about 7.5 per plan, and a third
  // of all waits here.
  EXPECT_GT(waits, dovetail::testing::kHasSanitizer ? 10U : 100U);
  EXPECT_GT(10 * needed, 8 * waits);
}

// A factor, a group, an operation or a part that is changed anywhere makes a plan illegal.
TEST(VerifyLoweredTest, PI2EveryChangeOfACollectiveOrAFactorIsNoticed) {
  Program program = training({6, 10, 8}, 4);
  program.groups.push_back({GroupId{1}, "pairs", {Rank{0}, Rank{1}, Rank{2}, Rank{3}}, 2});
  std::size_t changes = 0;
  std::size_t at = 0;
  for (const Case& one : all_cases(program)) {
    if (at++ % 7 != 0 || !dovetail::testing::takes(at / 7)) continue;
    const auto plan = plan_of(program, one.schedule);
    if (!plan) continue;
    for (std::size_t i = 0; i < plan->roles[0].commands.size(); ++i) {
      const auto expect_noticed = [&](const std::function<void(Action&)>& change) {
        ScheduledProgram broken = *plan;
        change(commands_of(broken)[i].action);
        EXPECT_FALSE(verify(program, broken, one.schedule.merge).empty())
            << one.name << ", command " << i;
        ++changes;
      };
      const Action& action = plan->roles[0].commands[i].action;
      if (const auto* scale = std::get_if<Scale>(&action)) {
        const Rational twice = scale->factor * Rational(2);
        expect_noticed([&](Action& a) { std::get<Scale>(a).factor = twice; });
      }
      const auto* collective = std::get_if<Communicate>(&action);
      if (collective == nullptr) continue;
      expect_noticed([](Action& a) { std::get<Communicate>(a).group = GroupId{1}; });
      expect_noticed([](Action& a) { std::get<Communicate>(a).kind = Collective::Broadcast; });
      if (collective->kind == Collective::AllGather) continue;  // it reduces nothing
      const bool sum = collective->reduce == ReduceOp::Sum;
      expect_noticed([&](Action& a) {
        std::get<Communicate>(a).reduce = sum ? ReduceOp::Average : ReduceOp::Sum;
      });
    }
  }
  EXPECT_GT(changes, dovetail::testing::kHasSanitizer ? 70U : 500U);
}

}  // namespace
}  // namespace dovetail::schedule::verify_test

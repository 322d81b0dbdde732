// Every kind of illegal schedule is found, with the right reason; legal ones pass.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "schedule/lower/lower.h"
#include "schedule/policies/policies.h"
#include "tests/support/cases.h"
#include "tests/support/programs.h"

namespace dovetail::schedule {
namespace {

using dovetail::testing::us;

Program two_layers() {
  return dovetail::testing::chain(
      {{us(1), us(1), Bytes(400), us(1)}, {us(1), us(1), Bytes(800), us(1)}});
}

ScheduledProgram plan(const std::string& policy) {
  const Program program = two_layers();
  return lower(program, make_schedule(program, parse_policy(policy))).program;
}

template <class A>
std::vector<Command>::iterator find_action(std::vector<Command>& commands, int nth = 0) {
  return std::ranges::find_if(commands, [&](const Command& command) {
    return std::holds_alternative<A>(command.action) && nth-- == 0;
  });
}

std::vector<Command>& commands_of(ScheduledProgram& program) {
  return program.roles.front().commands;
}

// The kinds of problem that a change of a legal plan causes.
std::vector<ProblemKind> kinds_after(const std::string& policy,
                                     const std::function<void(ScheduledProgram&)>& change) {
  ScheduledProgram program = plan(policy);
  const Program original = program.program;
  EXPECT_TRUE(verify(original, program).empty());
  change(program);
  std::vector<ProblemKind> kinds;
  for (const Problem& problem : verify(original, program)) kinds.push_back(problem.kind);
  return kinds;
}

using ::testing::Contains;

TEST(VerifyTest, AWaitThatIsMissingBeforeTheOptimizerIsARace) {
  EXPECT_THAT(kinds_after("per-tensor",
                          [](ScheduledProgram& program) {
                            auto& commands = commands_of(program);
                            const auto wait = std::ranges::find_if(commands, [](const Command& c) {
                              return c.stream == kComputeStream &&
                                     std::holds_alternative<WaitEvent>(c.action);
                            });
                            commands.erase(wait);
                          }),
              Contains(ProblemKind::Race));
}

TEST(VerifyTest, ACollectiveThatDoesNotWaitForItsProducerIsARace) {
  EXPECT_THAT(kinds_after("per-tensor",
                          [](ScheduledProgram& program) {
                            auto& commands = commands_of(program);
                            const auto wait = std::ranges::find_if(commands, [](const Command& c) {
                              return c.stream != kComputeStream &&
                                     std::holds_alternative<WaitEvent>(c.action);
                            });
                            commands.erase(wait);
                          }),
              Contains(ProblemKind::Race));
}

TEST(VerifyTest, ABucketLaunchedBeforeItsProducerIsReducedTooEarly) {
  EXPECT_THAT(kinds_after("naive",
                          [](ScheduledProgram& program) {
                            auto& commands = commands_of(program);
                            const auto collective = find_action<Communicate>(commands);
                            std::iter_swap(collective, collective - 1);
                          }),
              Contains(ProblemKind::ReducedTooEarly));
}

TEST(VerifyTest, AGradientWithoutACollectiveIsNotReduced) {
  EXPECT_THAT(kinds_after("per-tensor",
                          [](ScheduledProgram& program) {
                            auto& commands = commands_of(program);
                            commands.erase(find_action<Communicate>(commands));
                          }),
              Contains(ProblemKind::NotReduced));
}

TEST(VerifyTest, ACollectiveThatRunsTwiceReducesTwice) {
  EXPECT_THAT(kinds_after("per-tensor",
                          [](ScheduledProgram& program) {
                            auto& commands = commands_of(program);
                            const auto found = find_action<Communicate>(commands);
                            Command again = *found;
                            again.id = CommandId{1000};
                            commands.insert(found + 1, again);
                          }),
              Contains(ProblemKind::ReducedTwice));
}

TEST(VerifyTest, AMissingUnpackLeavesTheOptimizerWithItsOwnGradient) {
  EXPECT_THAT(
      kinds_after("per-tensor:mode=copy",
                  [](ScheduledProgram& program) {
                    auto& commands = commands_of(program);
                    const auto unpack = std::ranges::find_if(commands, [](const Command& command) {
                      const auto* copy = std::get_if<Copy>(&command.action);
                      return copy != nullptr && copy->direction == CopyDirection::Unpack;
                    });
                    commands.erase(unpack);
                  }),
      Contains(ProblemKind::ReadBeforeReduced));
}

TEST(VerifyTest, AMissingPackSendsWhatLayInTheBucket) {
  EXPECT_THAT(kinds_after("per-tensor:mode=copy",
                          [](ScheduledProgram& program) {
                            auto& commands = commands_of(program);
                            commands.erase(find_action<Copy>(commands));
                          }),
              Contains(ProblemKind::ReducedTooEarly));
}

TEST(VerifyTest, ASumWhereAnAverageIsOwedIsTheWrongReduction) {
  EXPECT_THAT(
      kinds_after("per-tensor",
                  [](ScheduledProgram& program) {
                    auto& commands = commands_of(program);
                    std::get<Communicate>(find_action<Communicate>(commands)->action).reduce =
                        ReduceOp::Sum;
                  }),
      Contains(ProblemKind::WrongReduction));
}

TEST(VerifyTest, AReduceScatterAloneIsTheWrongReduction) {
  EXPECT_THAT(kinds_after("per-tensor",
                          [](ScheduledProgram& program) {
                            auto& commands = commands_of(program);
                            std::get<Communicate>(find_action<Communicate>(commands)->action).kind =
                                Collective::ReduceScatter;
                          }),
              Contains(ProblemKind::WrongReduction));
}

TEST(VerifyTest, AWaitForAnEventThatNobodyRecordsIsReported) {
  EXPECT_THAT(kinds_after("per-tensor",
                          [](ScheduledProgram& program) {
                            auto& commands = commands_of(program);
                            commands.erase(find_action<RecordEvent>(commands));
                          }),
              Contains(ProblemKind::UnrecordedEvent));
}

TEST(VerifyTest, AnOpThatIsMissingIsReported) {
  EXPECT_THAT(kinds_after("per-tensor",
                          [](ScheduledProgram& program) {
                            auto& commands = commands_of(program);
                            commands.erase(find_action<RunOp>(commands));
                          }),
              Contains(ProblemKind::OpOrder));
}

TEST(VerifyTest, UnknownReferencesAreReported) {
  EXPECT_THAT(kinds_after("per-tensor",
                          [](ScheduledProgram& program) {
                            commands_of(program).front().stream = StreamId{7};
                          }),
              Contains(ProblemKind::BadReference));
  EXPECT_THAT(
      kinds_after("per-tensor",
                  [](ScheduledProgram& program) {
                    auto& commands = commands_of(program);
                    std::get<Communicate>(find_action<Communicate>(commands)->action).bucket =
                        BucketId{99};
                  }),
      Contains(ProblemKind::BadReference));
}

TEST(VerifyTest, MembersThatOverlapAreABadLayout) {
  EXPECT_THAT(kinds_after("one-bucket",
                          [](ScheduledProgram& program) {
                            program.buckets.front().members.back().offset = Bytes(4);
                          }),
              Contains(ProblemKind::BadLayout));
}

// Rank 1 launches its two collectives in the other order: each waits for the other.
TEST(VerifyTest, RanksThatDisagreeOnTheOrderAreAMismatch) {
  ScheduledProgram program = plan("per-tensor");
  program.roles.front().ranks = {Rank{0}};
  RankProgram other = program.roles.front();
  other.ranks = {Rank{1}};
  const auto first = find_action<Communicate>(other.commands, 0);
  const auto second = find_action<Communicate>(other.commands, 1);
  ASSERT_NE(second, other.commands.end());
  // Swap the launches as a whole: both buckets after the last producer, in reverse order.
  std::swap(std::get<Communicate>(first->action).bucket,
            std::get<Communicate>(second->action).bucket);
  program.roles.push_back(other);
  EXPECT_FALSE(verify(program.program, program).empty());
}

TEST(VerifyTest, TwoRolesWithTheSameSequenceAreFine) {
  ScheduledProgram program = plan("per-tensor");
  program.roles.front().ranks = {Rank{0}};
  RankProgram other = program.roles.front();
  other.ranks = {Rank{1}};
  program.roles.push_back(other);
  EXPECT_TRUE(verify(program.program, program).empty());
}

TEST(VerifyTest, RandomLegalSchedulesPass) {
  for (std::uint64_t seed = 0; seed < dovetail::testing::cases(500U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Program program = dovetail::testing::random_chain(random, 20, 2);
    const auto problems = verify(
        program, lower(program, dovetail::testing::random_schedule(random, program)).program);
    ASSERT_TRUE(problems.empty()) << problems.front().message;
  }
}

// Removing any wait, record, collective, copy or op from a legal plan makes it illegal, except a
// wait that another one implies.
TEST(VerifyTest, RemovingAnyCommandIsNoticed) {
  std::size_t removed = 0;
  std::size_t noticed = 0;
  for (std::uint64_t seed = 0; seed < dovetail::testing::cases(60U); ++seed) {
    Random random(seed);
    const Program program = dovetail::testing::random_chain(random, 8, 2);
    const ScheduledProgram legal =
        lower(program, dovetail::testing::random_schedule(random, program)).program;
    for (std::size_t i = 0; i < legal.roles.front().commands.size(); ++i) {
      ScheduledProgram broken = legal;
      auto& commands = commands_of(broken);
      const bool wait = std::holds_alternative<WaitEvent>(commands[i].action);
      const bool record = std::holds_alternative<RecordEvent>(commands[i].action);
      commands.erase(commands.begin() + static_cast<std::ptrdiff_t>(i));
      const bool illegal = !verify(program, broken).empty();
      if (!wait && !record) {
        EXPECT_TRUE(illegal) << "seed " << seed << " command " << i;
      }
      ++removed;
      noticed += illegal ? 1 : 0;
    }
  }
  EXPECT_GT(removed, dovetail::testing::cases(500u));
  EXPECT_GT(static_cast<double>(noticed), 0.9 * static_cast<double>(removed));
}

}  // namespace
}  // namespace dovetail::schedule

// What the roles of a pipeline issue (rules AS).
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "schedule/verify/verify.h"
#include "tests/schedule/lower/lower_words.h"
#include "tests/schedule/lower/pipeline_programs.h"

namespace dovetail::schedule {
namespace {

Schedule piped(const Program& program, PipelineKind kind, std::int32_t micro_steps) {
  Schedule schedule = schedule_of(program, "per-tensor");
  schedule.pipeline.kind = kind;
  schedule.merge.micro_steps = micro_steps;
  return schedule;
}

// Role 0 runs F F B B, role 1 F B F B. Streams: 1 comm0, 2 from role 0 to 1, 3 back. Bucket 0 holds
// the sum of g1, bucket 1 that of g0.
TEST(LowerPipelineTest, AS2EachRoleIssuesItsStageAndItsMessages) {
  const Program program = LayerChain(2, 2).take();
  const ScheduledProgram result = lower(program, piped(program, PipelineKind::OneFOneB, 2)).program;
  ASSERT_EQ(result.roles.size(), 2u);
  EXPECT_EQ(words(result, 0),
            "0:record0 3:wait0 "
            "0:F0@0 0:record1 2:wait1 2:a0@0.send.0-1 2:record2 "
            "0:F0 0:record3 2:wait3 2:a0.send.0-1 2:record4 "
            "3:d0@0.recv.1-0 3:record5 0:wait5 0:B0@0 0:g0.accumulate@0 "
            "3:d0.recv.1-0 3:record6 0:wait6 0:B0 0:g0.accumulate@1 "
            "0:record7 1:wait7 1:all-reduce1 1:record8 0:wait8 0:U0 0:wait4 ");
  EXPECT_EQ(words(result, 1),
            "0:record9 2:wait9 "
            "2:a0@0.recv.0-1 2:record10 0:wait10 0:F1@0 0:B1@0 "
            "0:record11 3:wait11 3:d0@0.send.1-0 3:record12 0:g1.accumulate@0 "
            "2:a0.recv.0-1 2:record13 0:wait13 0:F1 0:B1 "
            "0:record14 3:wait14 3:d0.send.1-0 3:record15 0:g1.accumulate@1 "
            "0:record16 1:wait16 1:all-reduce0 1:record17 0:wait17 0:U1 0:wait15 ");
  EXPECT_EQ(result.streams[2].name, "p2p0-1");
  EXPECT_EQ(result.streams[3].name, "p2p1-0");
}

TEST(LowerPipelineTest, RolesHaveConsecutiveRanksAndIdsOfTheirOwn) {
  const Program program = LayerChain(4, 4).take();
  const ScheduledProgram result = lower(program, piped(program, PipelineKind::OneFOneB, 4)).program;
  ASSERT_EQ(result.roles.size(), 4u);
  std::set<CommandId> commands;
  std::size_t all = 0;
  for (std::int32_t p = 0; p < 4; ++p) {
    const RankProgram& role = result.roles[static_cast<std::size_t>(p)];
    EXPECT_EQ(role.ranks, (std::vector<Rank>{Rank{2 * p}, Rank{2 * p + 1}}));
    for (const Command& command : role.commands) commands.insert(command.id);
    all += role.commands.size();
  }
  EXPECT_EQ(commands.size(), all);
}

// The messages that one side of a stream moves, by name of what is moved: "a0@0 a0 ".
std::string moved(const ScheduledProgram& result, std::size_t role, const std::string& stream) {
  std::string names;
  for (const Command& command : result.roles[role].commands) {
    const auto run = op_run_by(command);
    const auto index = static_cast<std::size_t>(command.stream.value);
    if (!run || result.streams[index].name != stream) continue;
    const std::string& name = result.program.op(*run).name;
    names += name.substr(0, name.find('.')) + ' ';
  }
  return names;
}

TEST(LowerPipelineTest, RI6BothSidesOfAStreamMoveTheSameMessagesInTheSameOrder) {
  struct Case {
    PipelineKind kind;
    std::int32_t layers, stages;
  };
  for (const Case& at : {Case{PipelineKind::Sequential, 2, 2}, Case{PipelineKind::OneFOneB, 4, 4},
                         Case{PipelineKind::Interleaved, 4, 2}}) {
    const Program program = LayerChain(at.layers, at.stages).take();
    const ScheduledProgram result = lower(program, piped(program, at.kind, 4)).program;
    std::size_t streams = 0;
    for (std::int32_t a = 0; a < at.stages; ++a) {
      for (std::int32_t b = 0; b < at.stages; ++b) {
        const std::string stream = "p2p" + std::to_string(a) + "-" + std::to_string(b);
        const std::string sent = moved(result, static_cast<std::size_t>(a), stream);
        EXPECT_EQ(sent, moved(result, static_cast<std::size_t>(b), stream)) << stream;
        if (!sent.empty()) ++streams;
      }
    }
    EXPECT_EQ(streams, 2 * static_cast<std::size_t>(at.stages - 1)) << to_string(at.kind);
  }
}

// How many collectives of gradients the role issues before its last op of backward.
std::int64_t before_backward_ends(const ScheduledProgram& result, std::size_t role) {
  std::int64_t early = 0;
  std::int64_t all = 0;
  for (const Command& command : result.roles[role].commands) {
    if (bucket_collective(command) != nullptr) ++all;
    const auto run = op_run_by(command);
    if (run && result.program.op(*run).name.front() == 'B') early = all;
  }
  return early;
}

// Two layers per stage, so that one gradient is ready before the stage's last backward op.
TEST(LowerPipelineTest, AS3AI8OnlyTheFirstStageCommunicatesBesideItsBackward) {
  const Program program = LayerChain(8, 4, 2).take();
  const ScheduledProgram result = lower(program, piped(program, PipelineKind::OneFOneB, 8)).program;
  EXPECT_EQ(before_backward_ends(result, 0), 1);
  for (std::size_t role = 1; role < 4; ++role) {
    EXPECT_EQ(before_backward_ends(result, role), 0) << role;
    EXPECT_EQ(count(result, Collective::AllReduce, role), 2) << role;
  }
}

// Two chunks per role: the sum of chunk 1 is complete before chunk 0's last backwards.
TEST(LowerPipelineTest, AS9EachChunkIsReducedBesideTheBackwardOfTheNext) {
  const Program program = LayerChain(4, 2).take();
  const ScheduledProgram result =
      lower(program, piped(program, PipelineKind::Interleaved, 4)).program;
  EXPECT_EQ(before_backward_ends(result, 0), 1);
  EXPECT_EQ(before_backward_ends(result, 1), 1);
}

TEST(LowerPipelineTest, ABucketOfTwoStagesIsRefused) {
  const Program program = LayerChain(2, 2).take();
  Schedule schedule = schedule_of(program, "one-bucket");
  ASSERT_GT(schedule.buckets.size(), 1U);  // the policy itself ends a bucket where a stage ends
  for (std::size_t i = 1; i < schedule.buckets.size(); ++i) {
    const std::vector<Slice>& more = schedule.buckets[i].gradients;
    schedule.buckets[0].gradients.insert(schedule.buckets[0].gradients.end(), more.begin(),
                                         more.end());
  }
  schedule.buckets.resize(1);
  schedule.pipeline.kind = PipelineKind::OneFOneB;
  schedule.merge.micro_steps = 2;
  EXPECT_THROW(lower(program, schedule), InputError);
}

TEST(LowerPipelineTest, StagesShardTheirUpdatesEachForItself) {
  const Program program = LayerChain(2, 2).take();
  Schedule schedule = piped(program, PipelineKind::OneFOneB, 2);
  for (Bucket& bucket : schedule.buckets) bucket.collective = Collective::ReduceScatter;
  const ScheduledProgram result = lower(program, schedule).program;
  for (std::size_t role = 0; role < 2; ++role) {
    EXPECT_EQ(count(result, Collective::ReduceScatter, role), 1);
    EXPECT_EQ(count(result, Collective::AllGather, role), 1);
  }
  EXPECT_EQ(result.buckets[0].shards, 2);
}

}  // namespace
}  // namespace dovetail::schedule

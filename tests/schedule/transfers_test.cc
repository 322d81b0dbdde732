// What travels, who meets in it and what opens its launch, as lower leaves it in a ScheduledProgram.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/transfers.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/schedule/verify/verify_programs.h"

namespace dovetail::schedule::verify_test {
namespace {

// "all-reduce 96 B b0 behind c12", one line each; "inline" without a launch.
std::vector<std::string> transfers_of(const ScheduledProgram& plan) {
  std::vector<std::string> lines;
  for (const RankProgram& role : plan.roles) {
    for (const Command& command : role.commands) {
      if (!command.transfer) continue;
      const Transfer& transfer = plan.transfers[static_cast<std::size_t>(command.transfer->value)];
      std::string line = std::string(to_string(transfer.kind)) + ' ' + to_string(transfer.bytes);
      if (transfer.bucket) line += " b" + std::to_string(transfer.bucket->value);
      line += command.launch ? " behind c" + std::to_string(command.launch->value) : " inline";
      lines.push_back(line);
    }
  }
  return lines;
}

TEST(TransfersTest, EveryCollectiveIsATransferBehindItsRecord) {
  const Program program = training({8, 16});
  Schedule schedule = buckets_of(program, {{"l1"}, {"l0"}});
  schedule.buckets[1].stream = InlineStream{};
  const ScheduledProgram plan = lower(program, schedule).program;
  // c0 c1 forward, c2 loss, c3 l1.backward, c4 record, c5 wait, c6 all-reduce, c7 record.
  const std::vector<std::string> expected = {"all-reduce 64 B b0 behind c4",
                                             "all-reduce 32 B b1 inline"};
  EXPECT_EQ(transfers_of(plan), expected);
  ASSERT_EQ(plan.transfers.size(), 2U);
  for (std::size_t i = 0; i < plan.transfers.size(); ++i) {
    EXPECT_EQ(plan.transfers[i].id.value, static_cast<std::int32_t>(i));
  }
}

// A reduce-scatter and the all-reduce of its shards over the replicas are enqueued together.
TEST(TransfersTest, CollectivesBehindOneRecordAreLaunchedTogether) {
  Program program = training({8, 16}, 4);
  program.groups[0].instance_size = 2;
  program.groups.push_back({GroupId{1}, "across", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2});
  const std::vector<Reduction> owed = program.reductions;
  for (Reduction reduction : owed) {
    reduction.group = GroupId{1};
    program.reductions.push_back(reduction);
  }
  Schedule schedule = buckets_of(program, {{"l1", "l0"}});
  schedule.buckets[0].collective = Collective::ReduceScatter;
  schedule.buckets[0].replicas = GroupId{1};
  const ScheduledProgram plan = lower(program, schedule).program;
  std::vector<std::optional<CommandId>> launches;
  std::vector<Bytes> bytes;
  for (const Command& command : plan.roles[0].commands) {
    if (!command.transfer) continue;
    launches.push_back(command.launch);
    bytes.push_back(plan.transfers[static_cast<std::size_t>(command.transfer->value)].bytes);
  }
  ASSERT_EQ(launches.size(), 3U);  // scatter, shards over the replicas, gather
  EXPECT_TRUE(launches[0].has_value());
  EXPECT_EQ(launches[0], launches[1]);
  EXPECT_NE(launches[1], launches[2]);
  EXPECT_EQ(bytes[0], Bytes(96));
  EXPECT_EQ(bytes[1], Bytes(48));
}

// Two roles of two ranks: they reduce among themselves, and meet in a send.
TEST(TransfersTest, RolesThatMeetNameOneTransferAndOthersDoNot) {
  TrainingBuilder build(4);
  Program& program = build.program;
  program.stages = 2;
  program.groups[0].instance_size = 2;
  program.groups.push_back({GroupId{1}, "pairs", {Rank{0}, Rank{2}, Rank{1}, Rank{3}}, 2});
  const TensorId moved = build.tensor("x", TensorKind::Activation, 4);
  const CollectiveWork send{.kind = Collective::SendRecv,
                            .group = GroupId{1},
                            .bytes = Bytes(16),
                            .purpose = Purpose::Pipeline};
  const CollectiveWork sum{.kind = Collective::AllReduce, .group = kDp, .bytes = Bytes(16)};
  const auto communicate = [&](const std::string& name, const CollectiveWork& work) {
    build.op(name, Phase::Forward, {moved}, {moved});
    program.ops.back().work = work;
    return action_of(program.ops.back());
  };
  ScheduledProgram plan;
  plan.streams = {{kComputeStream, "compute"}, {StreamId{1}, "p2p0-1"}};
  std::int32_t next = 0;
  for (std::int32_t role = 0; role < 2; ++role) {
    RankProgram& rank_program = plan.roles.emplace_back();
    rank_program.ranks = {Rank{2 * role}, Rank{2 * role + 1}};
    const std::string suffix = std::to_string(role);
    for (const auto& [name, work] : {std::pair("sum", sum), std::pair("send", send)}) {
      const bool sends = work.kind == Collective::SendRecv;
      rank_program.commands.push_back(
          {CommandId{next++}, StreamId{sends ? 1 : 0}, communicate(name + suffix, work)});
    }
  }
  plan.program = program;
  link_transfers(plan);
  std::vector<TransferId> found;
  for (const RankProgram& role : plan.roles) {
    for (const Command& command : role.commands) found.push_back(command.transfer.value());
  }
  ASSERT_EQ(found.size(), 4U);
  EXPECT_NE(found[0], found[2]);  // each role reduces over its own ranks
  EXPECT_EQ(found[1], found[3]);  // the send and its receive
  EXPECT_EQ(plan.transfers.size(), 3U);
}

}  // namespace
}  // namespace dovetail::schedule::verify_test

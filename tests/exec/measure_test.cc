// Ranks that agree on their plans and gather their results.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/measure.h"

#include "base/error.h"
#include "exec/exchange.h"
#include "exec/plan_hash.h"
#include "tests/exec/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace dovetail::exec {
namespace {

using schedule::BucketMode;
using schedule::Command;
using schedule::Communicate;
using schedule::DType;
using schedule::GemmWork;
using schedule::InlineStream;
using schedule::MemoryWork;
using schedule::RecordEvent;
using schedule::ReduceOp;
using schedule::ScheduledProgram;
using schedule::TimedWork;
using schedule::WaitEvent;
using testing::ThreadRanks;
using testing::two_buckets;

TEST(ExchangeTest, EveryRankSeesEveryRanksNumbers) {
  ThreadRanks ranks(3);
  ranks.run([&](Rank rank) {
    // Rank r says r numbers: none, 10, 20 21.
    std::vector<std::int64_t> mine;
    for (std::int64_t i = 0; i < rank.value; ++i) mine.push_back(10 * rank.value + i);
    const std::vector<std::vector<std::int64_t>> all = share(ranks.exchange(rank), mine);
    EXPECT_THAT(all, ::testing::ElementsAre(::testing::IsEmpty(), ::testing::ElementsAre(10),
                                            ::testing::ElementsAre(20, 21)));
    EXPECT_EQ(rank_0_says(ranks.exchange(rank), 7 + rank.value), 7);
  });
}

TEST(ExchangeTest, OneRankTalksToItself) {
  const Exchange exchange = alone();
  EXPECT_THAT(share(exchange, std::vector<std::int64_t>{5, 6}),
              ::testing::ElementsAre(::testing::ElementsAre(5, 6)));
  EXPECT_EQ(rank_0_says(exchange, 3), 3);
}

TEST(PlanHashTest, EqualPlansHaveEqualHashes) {
  EXPECT_EQ(plan_hash(two_buckets({})), plan_hash(two_buckets({})));
}

TEST(PlanHashTest, EveryFieldCounts) {
  const std::vector<std::function<void(ScheduledProgram&)>> changes = {
      [](ScheduledProgram&) {},
      [](ScheduledProgram& plan) { plan.policy += "x"; },
      [](ScheduledProgram& plan) { plan.program.name += "x"; },
      [](ScheduledProgram& plan) { plan.program.world_size = 3; },
      [](ScheduledProgram& plan) { plan.program.tensors[2].shape = {1001}; },
      [](ScheduledProgram& plan) { plan.program.tensors[2].dtype = DType::F16; },
      [](ScheduledProgram& plan) { std::get<GemmWork>(plan.program.ops[0].work).k = 17; },
      [](ScheduledProgram& plan) {
        std::get<MemoryWork>(plan.program.ops[4].work).bytes = kib(13);
      },
      [](ScheduledProgram& plan) { plan.program.ops[0].work = TimedWork{{Duration(1)}}; },
      [](ScheduledProgram& plan) { plan.program.ops[4].reads.clear(); },
      [](ScheduledProgram& plan) { plan.program.groups[0].ranks.pop_back(); },
      [](ScheduledProgram& plan) { plan.program.reductions[0].op = ReduceOp::Sum; },
      [](ScheduledProgram& plan) { plan.streams[1].name = "comm1"; },
      [](ScheduledProgram& plan) { plan.buckets[0].size += Bytes(4); },
      [](ScheduledProgram& plan) { plan.buckets[0].mode = BucketMode::Copy; },
      [](ScheduledProgram& plan) { plan.buckets[1].members[0].offset = Bytes(4); },
      [](ScheduledProgram& plan) { plan.roles[0].ranks.pop_back(); },
      [](ScheduledProgram& plan) { plan.roles[0].commands.pop_back(); },
      [](ScheduledProgram& plan) { plan.roles[0].commands[0].stream = StreamId{1}; },
      [](ScheduledProgram& plan) { plan.roles[0].commands[0].action = WaitEvent{EventId{0}}; },
      [](ScheduledProgram& plan) { plan.roles[0].commands[0].action = RecordEvent{EventId{0}}; },
  };
  std::set<std::uint64_t> hashes;
  for (const auto& change : changes) {
    ScheduledProgram plan = two_buckets({});
    change(plan);
    hashes.insert(plan_hash(plan));
  }
  EXPECT_EQ(hashes.size(), changes.size());
}

TEST(PlanHashTest, AL5RanksWithDifferentPlansStopBeforeTheFirstStep) {
  ThreadRanks ranks(3);
  ranks.run([&](Rank rank) {
    const BucketMode mode = rank == Rank{2} ? BucketMode::Copy : BucketMode::View;
    const ScheduledProgram plan = two_buckets({.ranks = 3, .mode = mode});
    try {
      require_same_plan(ranks.exchange(rank), plan);
      FAIL() << "nobody noticed";
    } catch (const DeviceError& error) {
      EXPECT_STREQ(
          error.what(),
          "rank 2 holds another plan than rank 0 (by hand for two-layers); start all ranks "
          "with the same files");
    }
  });
}

TEST(MeasureTest, RankZeroGetsOneTracePerPlanAndEveryRankTheCheck) {
  const ScheduledProgram plan = two_buckets({});
  ThreadRanks ranks(2);
  ranks.run([&](Rank rank) {
    cpu::CpuBackend backend(plan, ranks.ports(rank));
    const Lane lane = {.plan = &plan, .backend = &backend};
    traces::Provenance provenance;
    provenance.backend = "cpu/test";
    const Measured measured =
        measure(ranks.exchange(rank), std::span(&lane, 1), {.warmup = 1, .steps = 2}, provenance);
    ASSERT_EQ(measured.checks.size(), 1U);
    EXPECT_EQ(measured.checks[0].wrong, 0) << measured.checks[0].first_wrong;
    // 2 ranks x 3 steps x both gradients twice.
    EXPECT_EQ(measured.checks[0].checked, 2 * 3 * 2 * (testing::kNumel1 + testing::kNumel2));
    ASSERT_EQ(measured.traces.size(), rank == Rank{0} ? 1U : 0U);
    if (rank != Rank{0}) return;
    const traces::Trace& trace = measured.traces[0];
    EXPECT_EQ(trace.provenance.backend, "cpu/test");
    EXPECT_EQ(trace.provenance.workload, "two-layers");
    EXPECT_EQ(trace.steps, 2);
    EXPECT_THAT(trace.ranks, ::testing::ElementsAre(Rank{0}, Rank{1}));
  });
}

TEST(MeasureTest, AWrongElementOnOneRankIsKnownToAll) {
  ScheduledProgram plan = two_buckets({.stream = InlineStream{}});
  std::erase_if(plan.roles[0].commands,
                [](const Command& command) { return bucket_collective(command) != nullptr; });
  ThreadRanks ranks(2);
  ranks.run([&](Rank rank) {
    cpu::CpuBackend backend(plan, ranks.ports(rank));
    const Lane lane = {.plan = &plan, .backend = &backend};
    const Measured measured =
        measure(ranks.exchange(rank), std::span(&lane, 1), {.warmup = 0, .steps = 1}, {});
    EXPECT_GT(measured.checks[0].wrong, 0);
    EXPECT_THAT(measured.checks[0].first_wrong,
                ::testing::StartsWith("rank 0 step 0 l2.weight.grad"));
  });
}

}  // namespace
}  // namespace dovetail::exec

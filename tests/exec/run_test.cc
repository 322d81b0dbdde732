// The cpu backend under the run loop: legal plans give exact gradients, broken ones are found out,
// and the timings respect the order of streams and events.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/run.h"

#include "base/error.h"
#include "exec/cpu/backend.h"
#include "exec/measured_trace.h"
#include "tests/exec/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace dovetail::exec {
namespace {

using schedule::BucketMode;
using schedule::Collective;
using schedule::Command;
using schedule::CommStream;
using schedule::Communicate;
using schedule::DType;
using schedule::InlineStream;
using schedule::kComputeStream;
using schedule::RecordEvent;
using schedule::ScheduledProgram;
using schedule::StreamChoice;
using schedule::WaitEvent;
using schedule::WaitPoint;
using testing::find_command;
using testing::PlanOptions;
using testing::run_on_threads;
using testing::run_with_late_collectives;
using testing::sum_of_checks;
using testing::ThreadRanks;
using testing::two_buckets;
using testing::without_waits;
using namespace std::chrono_literals;

constexpr RunOptions kShort = {.warmup = 1, .steps = 3};

// Per rank and step: both gradients in their buffers, and both as the optimizer read them.
constexpr std::int64_t kCheckedPerStep = 2 * (testing::kNumel1 + testing::kNumel2);

template <class Kind>
CommandId the_only(const ScheduledProgram& plan, BucketId bucket) {
  return find_command(plan, [&](const Command& command) {
    const auto* kind = std::get_if<Kind>(&command.action);
    return kind != nullptr && kind->bucket == bucket;
  });
}

TEST(RunTest, EveryLegalPlanReducesEveryElementExactly) {
  for (const std::int64_t ranks : {1, 2, 4}) {
    for (const BucketMode mode : {BucketMode::View, BucketMode::Copy}) {
      for (const StreamChoice& stream :
           {StreamChoice{CommStream{}}, StreamChoice{InlineStream{}}}) {
        for (const WaitPoint wait : {WaitPoint::FirstUse, WaitPoint::EndOfBackward}) {
          const ScheduledProgram plan =
              two_buckets({.ranks = ranks, .mode = mode, .stream = stream, .wait = wait});
          const CheckResult check = sum_of_checks(run_on_threads(plan, kShort));
          EXPECT_EQ(check.wrong, 0) << check.first_wrong;
          EXPECT_EQ(check.checked, ranks * 4 * kCheckedPerStep);
        }
      }
    }
  }
}

TEST(RunTest, ReduceScatterAndAllGatherGiveTheSameResult) {
  // 280 and 4000 bytes plus 8 of padding: 72 and 1002 floats, both even.
  const ScheduledProgram plan =
      two_buckets({.padding = Bytes(8), .collective = Collective::ReduceScatter});
  const CheckResult check = sum_of_checks(run_on_threads(plan, kShort));
  EXPECT_EQ(check.wrong, 0) << check.first_wrong;
}

TEST(RunTest, AScatteredBucketMustBeDivisible) {
  const ScheduledProgram plan =
      two_buckets({.padding = Bytes(4), .collective = Collective::ReduceScatter});
  EXPECT_THROW(run_on_threads(plan, kShort), InputError);
}

TEST(RunTest, AMissingWaitIsFoundByWhatTheOptimizerRead) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the plan races on purpose";
#endif
  const ScheduledProgram plan = without_waits(two_buckets({}));
  // The optimizer runs before any bucket arrives; each rank reads its own data.
  const CheckResult check = sum_of_checks(run_with_late_collectives(plan, kShort));
  EXPECT_GT(check.wrong, 0);
  EXPECT_THAT(check.first_wrong, ::testing::HasSubstr("as the optimizer read it: expected"));
  EXPECT_THAT(check.first_wrong, ::testing::StartsWith("rank 0 step 0 l"));
}

TEST(RunTest, UnpackingBeforeTheWaitIsFoundInWhatTheOptimizerReads) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the plan races on purpose";
#endif
  const ScheduledProgram plan = without_waits(two_buckets({.mode = BucketMode::Copy}));
  const CheckResult check = sum_of_checks(run_with_late_collectives(plan, kShort));
  // Nothing ever repairs the gradient, so both views of it are wrong in nearly every element.
  EXPECT_GT(check.wrong, check.checked * 9 / 10);
  EXPECT_THAT(
      check.first_wrong,
      ::testing::HasSubstr("rank 0 step 0 l2.weight.grad[0] as the optimizer read it: expected"));
}

TEST(RunTest, ACollectiveMissingFromThePlanIsFound) {
  ScheduledProgram plan = two_buckets({.stream = InlineStream{}});
  std::erase_if(plan.roles[0].commands, [](const Command& command) {
    const auto* run = bucket_collective(command);
    return run != nullptr && run->bucket == BucketId{1};
  });
  const CheckResult check = sum_of_checks(run_on_threads(plan, kShort));
  EXPECT_GT(check.wrong, 0);
  EXPECT_THAT(check.first_wrong, ::testing::HasSubstr("l1.weight.grad"));
}

TEST(RunTest, EachStreamExecutesItsCommandsInOrder) {
  const ScheduledProgram plan = two_buckets({.mode = BucketMode::Copy});
  for (const RankResult& result : run_on_threads(plan, kShort)) {
    std::map<StreamId, Timing> last;
    for (const Timing& timing : result.timings) {
      EXPECT_LE(timing.start_ns, timing.end_ns);
      const auto previous = last.find(timing.stream);
      if (previous != last.end()) {
        EXPECT_GE(timing.start_ns, previous->second.end_ns);
        const bool same_step = timing.step == previous->second.step;
        EXPECT_TRUE(!same_step || timing.command > previous->second.command);
      }
      last[timing.stream] = timing;
    }
  }
}

TEST(RunTest, ACollectiveStartsAfterItsRecordAndAWaitEndsAfterItsEvent) {
  const ScheduledProgram plan = two_buckets({});
  for (const RankResult& result : run_on_threads(plan, kShort, 2ms)) {
    std::map<std::tuple<std::int32_t, CommandId, StreamId>, Timing> at;
    for (const Timing& timing : result.timings) {
      at[{timing.step, timing.command, timing.stream}] = timing;
    }
    const CommandId collective = the_only<Communicate>(plan, BucketId{1});
    const StreamId comm{1};
    for (std::int32_t step = 0; step < kShort.steps; ++step) {
      // Around the launch of bucket 1: record on compute, wait, collective, record on comm.
      const Timing& ready = at.at({step, CommandId{collective.value - 2}, kComputeStream});
      const Timing& moved = at.at({step, collective, comm});
      const Timing& done = at.at({step, CommandId{collective.value + 1}, comm});
      const CommandId wait = find_command(plan, [](const Command& command) {
        const auto* action = std::get_if<WaitEvent>(&command.action);
        return action != nullptr && action->event == EventId{3};
      });
      const Timing& stood = at.at({step, wait, kComputeStream});
      EXPECT_GE(moved.start_ns, ready.start_ns);
      EXPECT_GE(done.start_ns, moved.end_ns);
      EXPECT_GE(stood.end_ns, done.start_ns);
      EXPECT_GE(moved.end_ns - moved.start_ns, 2'000'000);  // the transport sleeps 2 ms
    }
  }
}

TEST(RunTest, TheTraceHoldsWhatHappenedAndNothingOverlaps) {
  const ScheduledProgram plan = two_buckets({.mode = BucketMode::Copy});
  std::vector<std::vector<Timing>> timings;
  int stood = 0;  // waits of the compute stream whose event was not there yet
  for (RankResult& result : run_on_threads(plan, kShort, 2ms)) {
    for (const Timing& timing : result.timings) {
      const Command& command =
          plan.roles[0].commands.at(static_cast<std::size_t>(timing.command.value));
      const bool is_wait =
          std::holds_alternative<WaitEvent>(command.action) && command.stream == kComputeStream;
      stood += is_wait && timing.end_ns > timing.start_ns ? 1 : 0;
    }
    timings.push_back(result.timings);
  }
  const traces::Trace trace = measured_trace(plan, timings, {});
  EXPECT_EQ(trace.provenance.origin, traces::Origin::Measured);
  EXPECT_EQ(trace.provenance.policy, "by hand");
  EXPECT_EQ(trace.steps, kShort.steps);
  std::map<std::string, int> count;
  Instant earliest = Instant::max();
  for (std::size_t i = 0; i < trace.spans.size(); ++i) {
    const traces::Span& span = trace.spans[i];
    const traces::CommandInfo& info = trace.command(span.command);
    ++count[std::string(traces::to_string(info.kind))];
    earliest = std::min(earliest, span.start);
    EXPECT_EQ(span.transfer_start.has_value(), info.kind == traces::SpanKind::Collective);
    EXPECT_LE(span.start, span.transfer_start.value_or(span.start));
    EXPECT_TRUE(info.kind != traces::SpanKind::Wait || span.start < span.end);
    if (i == 0) continue;
    const traces::Span& before = trace.spans[i - 1];
    const bool same_track = before.rank == span.rank && before.stream == span.stream;
    EXPECT_TRUE(!same_track || before.end <= span.start);
  }
  EXPECT_EQ(earliest, Instant{});
  // 2 ranks x 3 steps x (6 ops, 2 packs and 2 unpacks, 2 collectives, 2 launches).
  EXPECT_EQ(count["compute"], 36);
  EXPECT_EQ(count["copy"], 24);
  EXPECT_EQ(count["collective"], 12);
  EXPECT_EQ(count["enqueue"], 12);
  EXPECT_EQ(count["wait"], stood);
}

TEST(RunTest, OnlyAWaitThatStoodIsInTheTrace) {
  // Bucket 0 was there when the compute stream came to it at 100; bucket 1 let it stand 300..450.
  const ScheduledProgram plan = two_buckets({});
  const auto wait_for = [&](EventId event) {
    return find_command(plan, [&](const Command& command) {
      const auto* action = std::get_if<WaitEvent>(&command.action);
      return action != nullptr && action->event == event && command.stream == kComputeStream;
    });
  };
  const Timing passed = {wait_for(EventId{1}), kComputeStream, 0, 100, 100};
  const Timing stood = {wait_for(EventId{3}), kComputeStream, 0, 300, 450};
  const traces::Trace trace =
      measured_trace(plan, std::vector<std::vector<Timing>>{{passed, stood}, {}}, {});
  ASSERT_EQ(trace.spans.size(), 1U);
  EXPECT_EQ(trace.spans[0].command, stood.command);
  EXPECT_EQ(trace.spans[0].start, Instant(Duration(200)));
  EXPECT_EQ(trace.spans[0].end, Instant(Duration(350)));
}

TEST(RunTest, TransferStartsWhenTheLastRankArrives) {
  // Two ranks, one collective: rank 0 stands in it from 100, rank 1 from 250; both leave at 400.
  // Hand calculation: the origin is 100, so the spans are 0..300 and 150..300 and data moves from
  // 150 on both.
  const ScheduledProgram plan = two_buckets({});
  const CommandId collective = the_only<Communicate>(plan, BucketId{0});
  const Timing early = {collective, StreamId{1}, 0, 100, 400};
  const Timing late = {collective, StreamId{1}, 0, 250, 400};
  const traces::Trace trace =
      measured_trace(plan, std::vector<std::vector<Timing>>{{early}, {late}}, {});
  ASSERT_EQ(trace.spans.size(), 2U);
  EXPECT_EQ(trace.spans[0].start, Instant(Duration(0)));
  EXPECT_EQ(trace.spans[1].start, Instant(Duration(150)));
  EXPECT_EQ(trace.spans[0].transfer_start, Instant(Duration(150)));
  EXPECT_EQ(trace.spans[1].transfer_start, Instant(Duration(150)));
  EXPECT_EQ(trace.spans[1].end, Instant(Duration(300)));
}

TEST(RunTest, PlansTakeTurnsInOneWorkspace) {
  const ScheduledProgram view = two_buckets({});
  const ScheduledProgram copy = two_buckets({.mode = BucketMode::Copy, .padding = Bytes(8)});
  ThreadRanks ranks(2);
  ThreadRanks other(2);
  std::vector<std::vector<RankResult>> results(2);
  ranks.run([&](Rank rank) {
    auto workspace = std::make_shared<cpu::Workspace>();
    cpu::Ports ports = ranks.ports(rank);
    cpu::Ports other_ports = other.ports(rank);
    ports.workspace = workspace;
    other_ports.workspace = workspace;
    cpu::CpuBackend first(view, ports);
    cpu::CpuBackend second(copy, other_ports);
    const std::vector<Lane> lanes = {{&view, &first}, {&copy, &second}};
    results[static_cast<std::size_t>(rank.value)] =
        run_interleaved(lanes, rank, {.warmup = 1, .steps = 2, .rounds = 3});
  });
  for (const std::vector<RankResult>& of_rank : results) {
    for (const RankResult& result : of_rank) {
      EXPECT_EQ(result.check.wrong, 0) << result.check.first_wrong;
      EXPECT_EQ(result.check.checked, 9 * kCheckedPerStep);  // 3 rounds of 1 + 2 steps
      std::set<std::int32_t> steps;
      for (const Timing& timing : result.timings) steps.insert(timing.step);
      EXPECT_THAT(steps, ::testing::ElementsAre(0, 1, 2, 3, 4, 5));
    }
    // Turns are taken: the first plan's second round starts after the second plan's first round.
    const auto start_of = [](const RankResult& result, std::int32_t step) {
      for (const Timing& timing : result.timings) {
        if (timing.step == step) return timing.start_ns;
      }
      return std::int64_t{0};
    };
    EXPECT_LT(start_of(of_rank[0], 1), start_of(of_rank[1], 0));
    EXPECT_LT(start_of(of_rank[1], 1), start_of(of_rank[0], 2));
  }
}

TEST(RunTest, ARoundIsWhatItsTurnsSay) {
  const ScheduledProgram plan = two_buckets({.ranks = 1});
  const ScheduledProgram other = two_buckets({.ranks = 1, .mode = BucketMode::Copy});
  ThreadRanks ranks(1);
  ranks.run([&](Rank rank) {
    cpu::CpuBackend first(plan, ranks.ports(rank));
    cpu::CpuBackend second(other, ranks.ports(rank));
    const std::vector<Lane> lanes = {{&plan, &first}, {&other, &second}};
    const RunOptions options = {
        .rounds = 2,
        .turns = {{.lane = 1, .warmup = 2, .steps = 1}, {.lane = 0}, {.lane = 1, .steps = 3}}};
    const std::vector<RankResult> results = run_interleaved(lanes, rank, options);
    EXPECT_EQ(executed_by(2, options), 2 * (3 + 1 + 3));
    EXPECT_EQ(steps_of(options.turns, 0), 1);
    EXPECT_EQ(steps_of(options.turns, 1), 4);
    // The order in which they ran, as "lane.step".
    std::map<std::int64_t, std::string> order;
    for (const std::size_t lane : {0U, 1U}) {
      std::set<std::int32_t> seen;
      for (const Timing& timing : results[lane].timings) {
        if (!seen.insert(timing.step).second) continue;
        order[timing.start_ns] = std::to_string(lane) + "." + std::to_string(timing.step);
      }
    }
    std::vector<std::string> names;
    for (const auto& [start, name] : order) names.push_back(name);
    EXPECT_THAT(names, ::testing::ElementsAre("1.0", "0.0", "1.1", "1.2", "1.3", "1.4", "0.1",
                                              "1.5", "1.6", "1.7"));
  });
}

TEST(RunTest, AFailedCollectiveSurfacesOnTheComputeThread) {
  const ScheduledProgram plan = two_buckets({.ranks = 1});
  ThreadRanks ranks(1);
  ranks.run([&](Rank rank) {
    cpu::CpuBackend backend(plan, ranks.ports(rank));
    ranks.cut(rank);
    try {
      run(plan, rank, backend, kShort);
      FAIL() << "nobody noticed";
    } catch (const DeviceError& error) {
      EXPECT_STREQ(error.what(), "rank 0: all-reduce of bucket 0: link cut");
    }
  });
}

TEST(RunTest, OnlyF32GradientsAreReduced) {
  ScheduledProgram plan = two_buckets({.ranks = 1});
  plan.program.tensors[2].dtype = DType::BF16;
  try {
    run_on_threads(plan, kShort);
    FAIL() << "accepted";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "the cpu backend reduces f32; l1.weight.grad is bf16");
  }
}

TEST(RunTest, AWaitThatCanNeverEndIsRefusedBeforeTheFirstStep) {
  ScheduledProgram plan = two_buckets({.ranks = 1});
  std::erase_if(plan.roles[0].commands, [](const Command& command) {
    return std::holds_alternative<RecordEvent>(command.action) && command.stream == StreamId{1};
  });
  EXPECT_THROW(run_on_threads(plan, kShort), InputError);
}

TEST(RunTest, ARankWithoutCommandsIsAnInputError) {
  const ScheduledProgram plan = two_buckets({.ranks = 2});
  EXPECT_THROW(role_of(plan, Rank{2}), InputError);
}

TEST(RunTest, OptionsOutOfRangeAreRefused) {
  const ScheduledProgram plan = two_buckets({.ranks = 1});
  EXPECT_THROW(run_on_threads(plan, {.warmup = 0, .steps = 0}), InputError);
  EXPECT_THROW(run_on_threads(plan, {.warmup = -1, .steps = 1}), InputError);
}

}  // namespace
}  // namespace dovetail::exec

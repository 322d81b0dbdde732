// What the simulated machine does, each case calculated by hand.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/simulate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "schedule/lower/lower.h"
#include "sim/compile.h"
#include "sim/disturbed.h"
#include "tests/support/oracle.h"
#include "tests/support/programs.h"
#include "traces/metrics.h"

namespace dovetail::sim {
namespace {

using testing::Layer;
using testing::us;

models::Costs machine(const schedule::Program& program, const testing::SimpleMachine& simple) {
  return testing::costs_of(simple, program);
}

// Step time of a policy in us, on one step.
double step_us(const schedule::Program& program, const schedule::Schedule& schedule,
               const testing::SimpleMachine& simple) {
  const auto lowered = schedule::lower(program, schedule);
  const traces::Trace trace = simulate(lowered.program, machine(program, simple));
  return to_us(traces::step_times(trace).front());
}

schedule::Schedule policy(const schedule::Program& program, const std::string& text) {
  return schedule::make_schedule(program, schedule::parse_policy(text));
}

// 4 buckets; compute 10 each, communication 15 each on one in-order stream, optimizer 5 each.
schedule::Program four_layers() {
  return testing::chain(std::vector<Layer>(4, {us(0), us(10), Bytes(400), us(5)}));
}
testing::SimpleMachine link_of_15us() { return {.collective = testing::line(us(15), 0)}; }

// Collectives end at 25, 40, 55, 70 (ready 10, 20, 30, 40). One wait for all before the optimizer:
// 70 + 4 * 5 = 90. Source: oracle O4 of the wait policies.
TEST(SimulateTest, O4OneWaitForTheWholeStreamEndsAt90) {
  const auto program = four_layers();
  testing::expect_oracle(
      "O4 step with one wait for the whole stream, us",
      step_us(program, policy(program, "per-tensor:wait=end-of-backward"), link_of_15us()), 90);
}

// Per-bucket events: the updates run at 40..45 (bucket 0 is there since 25), 45..50 (bucket 1 since
// 40), 55..60, 70..75.
TEST(SimulateTest, O4PerBucketEventsEndAt75) {
  const auto program = four_layers();
  testing::expect_oracle("O4 step with one wait per bucket, us",
                         step_us(program, policy(program, "per-tensor"), link_of_15us()), 75);
}

// One bucket: ready at 40, one collective of 60 (4 x 15), then 20 of optimizer: 120.
TEST(SimulateTest, O4OneFusedBucketEndsAt120) {
  const auto program = four_layers();
  const testing::SimpleMachine by_bytes{
      .collective = models::CollectiveTable(models::AlphaBeta{.ns_per_byte = 15'000.0 / 400})};
  testing::expect_oracle("O4 step with one fused bucket, us",
                         step_us(program, policy(program, "one-bucket"), by_bytes), 120);
}

// Inline collectives: each layer takes 10 + 15 on the compute stream, then the optimizer: 4 * 25
// + 20.
TEST(SimulateTest, TheNaiveProgramAddsEverythingUp) {
  const auto program = four_layers();
  EXPECT_EQ(step_us(program, policy(program, "naive"), link_of_15us()), 120);
}

// No overlap: 40 of backward, 60 of communication; the updates follow their collectives: bucket 3
// ends at 100, its update at 105.
TEST(SimulateTest, WithoutOverlapCommunicationFollowsBackward) {
  const auto program = four_layers();
  EXPECT_EQ(step_us(program, policy(program, "no-overlap-per-tensor"), link_of_15us()), 105);
  EXPECT_EQ(step_us(program, policy(program, "no-overlap"), link_of_15us()), 40 + 15 + 20);
}

// A collective waits for its slowest rank: rank 1 is ready at 10 + 7 = 17, so it ends at 32; the
// update ends at 37.
TEST(SimulateTest, ACollectiveStartsWhenItsLastRankArrives) {
  const auto program = testing::chain(
      {{us(0), us(10), Bytes(400), us(5)}}, 2,
      [](std::int32_t rank, std::size_t op) { return rank == 1 && op == 1 ? us(7) : Duration{}; });
  const auto lowered = schedule::lower(program, policy(program, "per-tensor"));
  const traces::Trace trace = simulate(lowered.program, machine(program, link_of_15us()));
  for (const traces::Span& span : trace.spans) {
    if (trace.command(span.command).kind != traces::SpanKind::Collective) continue;
    EXPECT_EQ(to_us(span.start), span.rank == Rank{0} ? 10 : 17);
    ASSERT_TRUE(span.transfer_start.has_value());
    EXPECT_EQ(to_us(*span.transfer_start), 17);
    EXPECT_EQ(to_us(span.end), 32);
  }
  EXPECT_EQ(to_us(traces::step_times(trace).front()), 37);
}

// Copy mode, 1 ns per byte, 4000 bytes: backward 10, pack 4, collective 15, unpack 4, update 5.
TEST(SimulateTest, CopyModePaysForPackAndUnpack) {
  const auto program = testing::chain({{us(0), us(10), Bytes(4000), us(5)}});
  EXPECT_EQ(step_us(program, policy(program, "per-tensor:mode=copy"),
                    {.collective = testing::line(us(15), 0), .copy_ns_per_byte = 1}),
            38);
}

// Contention: layer 1's collective (15) begins at 10. The next op (10) runs at half rate beside it:
// after 15 us it has done 7.5, and the rest takes 2.5. So backward ends at 10 + 15 + 2.5 = 27.5;
// the second collective (15) ends at 42.5, its update at 47.5.
TEST(SimulateTest, ComputeProgressesAtAReducedRateBesideACollective) {
  const auto program = testing::chain(std::vector<Layer>(2, {us(0), us(10), Bytes(400), us(5)}));
  testing::SimpleMachine simple = link_of_15us();
  simple.contention.compute_slowdown = 2;
  const auto lowered = schedule::lower(program, policy(program, "per-tensor:wait=end-of-backward"));
  const traces::Trace trace = simulate(lowered.program, machine(program, simple));
  const auto last = std::ranges::max_element(trace.spans, {}, &traces::Span::end);
  EXPECT_EQ(to_us(last->end), 27.5 + 15 + 5 + 5);
}

// The same where the collective holds one of two multiprocessors.
TEST(SimulateTest, ACollectiveHoldsMultiprocessors) {
  const auto program = testing::chain(std::vector<Layer>(2, {us(0), us(10), Bytes(400), us(5)}));
  testing::SimpleMachine simple = link_of_15us();
  simple.contention = {.multiprocessors = models::Multiprocessors{
                           .count = 2, .ctas = 1, .all_reduce_ctas = 1, .network_ctas = 1}};
  EXPECT_EQ(step_us(program, policy(program, "per-tensor:wait=end-of-backward"), simple),
            27.5 + 15 + 5 + 5);
}

// 64 KiB have two blocks; one of them moves the bus traffic of two ranks, as much, in 40 us. Two collectives end at 10 + 80,
// two updates at 100.
TEST(SimulateTest, FewThreadBlocksAreSlow) {
  const auto program = testing::chain(std::vector<Layer>(2, {us(0), us(10), kib(64), us(5)}));
  testing::SimpleMachine simple = link_of_15us();
  simple.contention = {.multiprocessors = models::Multiprocessors{
                           .count = 4,
                           .ctas = 2,
                           .all_reduce_ctas = 2,
                           .network_ctas = 2,
                           .all_reduce_cta_rate = BytesPerSecond(65536 / 40e-6)}};
  EXPECT_EQ(step_us(program, policy(program, "per-tensor:ctas=1,wait=end-of-backward"), simple),
            100);
}

// 2^42 ns are 2^62 units of progress. Without contention nothing is counted in units.
TEST(SimulateTest, WhatLastsTooLongForProgressInUnitsIsRefused) {
  const auto program =
      testing::chain({{us(0), Duration(std::int64_t{1} << 42), Bytes(400), us(5)}});
  testing::SimpleMachine simple = link_of_15us();
  EXPECT_GT(step_us(program, policy(program, "per-tensor"), simple), 4398046511.0);
  simple.contention.compute_slowdown = 2;
  EXPECT_THROW(step_us(program, policy(program, "per-tensor"), simple), InputError);
}

// A hundred steps of two ops of eleven days each are counted in nanoseconds; a thousand may not be.
TEST(SimulateTest, WhatWouldOverflowTheClockIsRefused) {
  const auto program =
      testing::chain(std::vector<Layer>(2, {us(0), kLongestTime, Bytes(400), us(5)}));
  const auto lowered = schedule::lower(program, policy(program, "per-tensor"));
  const models::Costs costs = machine(program, link_of_15us());
  EXPECT_NO_THROW(compile(lowered.program, costs, 100));
  EXPECT_THROW(compile(lowered.program, costs, 1000), InputError);
}

// The other direction: a collective of 15 beside 10 us of compute progresses at half rate: 5 done
// after 10 us, 10 left: it ends at 10 + 10 + 10 = 30. The second begins there, nothing runs beside
// it: 45, then two updates.
TEST(SimulateTest, ACollectiveProgressesAtAReducedRateBesideCompute) {
  const auto program = testing::chain(std::vector<Layer>(2, {us(0), us(10), Bytes(400), us(5)}));
  testing::SimpleMachine simple = link_of_15us();
  simple.contention.collective_slowdown = 2;
  EXPECT_EQ(step_us(program, policy(program, "per-tensor:wait=end-of-backward"), simple), 55);
}

// Rank 1 is away from 12 to 16, rank 0 from 18 to 22, and no buffer goes on without them. The collective of
// 15 that begins at 10 stands still for 8: it ends at 33. While it does, it takes nothing from the rank that
// is there: by 22 each rank has done 1 + 4 + 1 of its op of 10, and the rest takes 8. So backward ends at 30;
// the second collective lasts from 33 to 48, then two updates.
TEST(SimulateTest, ACollectiveThatStandsStillTakesNothingFromCompute) {
  const auto program = testing::chain(std::vector<Layer>(2, {us(0), us(10), Bytes(400), us(5)}));
  testing::SimpleMachine simple = link_of_15us();
  simple.contention.compute_slowdown = 2;
  models::Costs costs = machine(program, simple);
  costs.distinct_ranks = 2;
  const auto lowered = schedule::lower(program, policy(program, "per-tensor:wait=end-of-backward"));
  traces::Disturbances away(2);
  for (traces::CoreRecord& record : away) record.watched = std::chrono::seconds(1);
  away[0].taken = {{.start = us(18), .length = us(4)}};
  away[1].taken = {{.start = us(12), .length = us(4)}};
  EXPECT_EQ(play_with_absences(lowered.program, costs, away, {}, {}), us(58));
}

// A collective of 15 us takes 3 us of its rank's processor: 12 us of work get done beside it. The
// op of 10 ends 12.5 us after the collective began (10 / (1 - 3/15)).
TEST(SimulateTest, ACollectivesProcessorTimeIsTakenFromCompute) {
  const auto program = testing::chain(std::vector<Layer>(2, {us(0), us(10), Bytes(400), us(0)}));
  testing::SimpleMachine simple = link_of_15us();
  simple.contention.collective_cpu = us(3);
  const auto lowered = schedule::lower(program, policy(program, "per-tensor"));
  const traces::Trace trace = simulate(lowered.program, machine(program, simple));
  const auto span = std::ranges::find_if(trace.spans, [&](const traces::Span& candidate) {
    return trace.command(candidate.command).name == "l0.backward";
  });
  ASSERT_NE(span, trace.spans.end());
  EXPECT_NEAR(to_us(span->end), 22.5, 0.01);
}

// A collective of 80 us takes 2 us of the processor: compute runs at 1 - 2/80 = 0.975 beside it. One of
// 2 us on another stream takes all of the processor while it is in flight; afterwards it is 0.975
// again, not what is left beside the short one. l1.backward: 10 / 0.975 = 10.256 us. l0.backward: next
// to nothing (1/64) until 12.256, then the rest of its 60 us by 12.256 + 59.97 / 0.975 = 73.76.
TEST(SimulateTest, AShortCollectiveSlowsComputeOnlyWhileItIsInFlight) {
  const auto program = testing::chain({{us(0), us(60), Bytes(400), us(0)},
                                       {us(0), us(10), Bytes(4), us(0)},
                                       {us(0), us(0), Bytes(800), us(0)}});
  testing::SimpleMachine simple;
  simple.collective =
      testing::table_at({{Bytes(4), us(2)}, {Bytes(400), us(1)}, {Bytes(800), us(80)}});
  simple.contention.collective_cpu = us(2);
  schedule::Schedule schedule = policy(program, "per-tensor");
  schedule.buckets.at(1).stream = schedule::CommStream{1};
  const auto lowered = schedule::lower(program, schedule);
  const traces::Trace trace = simulate(lowered.program, machine(program, simple));
  const auto end = [&](const std::string& name) {
    const auto span = std::ranges::find_if(trace.spans, [&](const traces::Span& candidate) {
      return trace.command(candidate.command).name == name;
    });
    EXPECT_NE(span, trace.spans.end()) << name;
    return to_us(span->end);
  };
  EXPECT_NEAR(end("l1.backward"), 10.256, 0.01);
  EXPECT_NEAR(end("l0.backward"), 73.76, 0.02);
}

// A pause of 2 us before a collective refunds 2 of the 5 us that a lone one saves: alone 10, queued
// 15, so 13.
TEST(SimulateTest, AShortPauseGivesPartOfTheLoneTime) {
  const step::Transfer node{.isolated = 10, .back_to_back = 15};
  EXPECT_EQ(node.duration(0), 15);
  EXPECT_EQ(node.duration(2), 13);
  EXPECT_EQ(node.duration(5), 10);
  EXPECT_EQ(node.duration(500), 10);
  const step::Transfer hidden_latency{.isolated = 15, .back_to_back = 10};
  EXPECT_EQ(hidden_latency.duration(0), 10);
  EXPECT_EQ(hidden_latency.duration(2), 12);
  EXPECT_EQ(hidden_latency.duration(500), 15);
}

// Host-bound: every op costs 20 us to issue but only 1 us to run. 6 ops a step, so each step takes
// 120 us, whatever the bucket.
TEST(SimulateTest, AJobThatIsBoundByItsHostDoesNotCareAboutBuckets) {
  const auto program = testing::chain(std::vector<Layer>(2, {us(1), us(1), Bytes(400), us(1)}));
  testing::SimpleMachine simple{.collective = testing::line(us(1), 0)};
  simple.host = {.kind = models::HostModel::Kind::Async, .run_op = us(20)};
  const auto last_step = [&](const std::string& text) {
    const auto lowered = schedule::lower(program, policy(program, text));
    const StepGraph graph = compile(lowered.program, machine(program, simple), 3).graph;
    Workspace workspace;
    play_in_order(graph, workspace);
    return summarize(graph, workspace.timeline).step_ns;
  };
  EXPECT_EQ(last_step("per-tensor"), 120'000);
  EXPECT_EQ(last_step("one-bucket"), 120'000);
}

TEST(SimulateTest, TheSummaryAgreesWithTheReportOfTheTrace) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto program = testing::random_chain(random, 15, random.between(1, 3));
    testing::SimpleMachine simple = testing::random_machine(random);
    if (random.between(0, 1) == 0) simple.contention.compute_slowdown = 1.25;
    const models::Costs costs = machine(program, simple);
    const auto lowered = schedule::lower(program, testing::random_schedule(random, program));
    const StepGraph graph = compile(lowered.program, costs, 1).graph;
    Workspace workspace;
    play(graph, workspace);
    const StepSummary summary = summarize(graph, workspace.timeline);
    const traces::StepReport report = traces::step_report(simulate(lowered.program, costs), 0);
    const Instant end = report.start + report.step_time;
    EXPECT_EQ(summary.step_ns, end.time_since_epoch().count());
    EXPECT_EQ(summary.compute_ns, report.compute_busy.count());
    if (report.transfer) {
      EXPECT_EQ(summary.communication_ns, report.transfer->count());
      EXPECT_EQ(summary.exposed_ns, report.exposed_transfer->count());
    }
  }
}

}  // namespace
}  // namespace dovetail::sim

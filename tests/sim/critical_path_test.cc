// The chain that determines a step, on programs whose chain is known.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/critical_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "schedule/lower/lower.h"
#include "tests/support/programs.h"

namespace dovetail::sim {
namespace {

using testing::Layer;
using testing::us;
using traces::LinkKind;

Explained explain(const schedule::Program& program, const std::string& policy,
                  const testing::SimpleMachine& simple, std::int32_t steps = 1) {
  const auto lowered =
      schedule::lower(program, schedule::make_schedule(program, schedule::parse_policy(policy)));
  return simulate_and_explain(lowered.program, testing::costs_of(simple, program),
                              {.steps = steps});
}

// "0 compute l3.backward 10 | 10 transfer 15 ...": start, kind, op and length of each link in us.
std::string links(const Explained& explained, std::size_t step = 0) {
  std::ostringstream out;
  const auto& chain = explained.path.steps.at(step);
  for (const traces::PathLink& link : chain) {
    if (&link != chain.data()) out << " | ";
    out << to_us(link.start - chain.front().start) << " r" << link.rank.value << ' '
        << to_string(link.kind);
    if (link.kind == LinkKind::Compute) out << ' ' << explained.trace.command(link.command).name;
    if (link.kind == LinkKind::Transfer) {
      out << ' ' << explained.trace.command(link.command).bucket.value_or(BucketId{-1}).value;
    }
    out << ' ' << to_us(link.end - link.start);
  }
  return out.str();
}

// 4 layers; backward 10 each, one bucket each, updates 5.
schedule::Program four_equal_layers() {
  return testing::chain(std::vector<Layer>(4, {us(0), us(10), Bytes(400), us(5)}));
}

// Collectives of 15: 10..25, 25..40, 40..55, 55..70. Only the first backward op counts, then the link is
// never idle, and the last update follows.
TEST(CriticalPathTest, WhereTheLinkIsTheBottleneckTheChainRunsThroughIt) {
  EXPECT_EQ(
      links(explain(four_equal_layers(), "per-tensor", {.collective = testing::line(us(15), 0)})),
      "0 r0 compute l3.backward 10 | 10 r0 transfer 0 15 | 25 r0 transfer 1 15 | "
      "40 r0 transfer 2 15 | 55 r0 transfer 3 15 | 70 r0 compute l0.update 5");
}

// Collectives of 2: the last ends at 42, when the first update (40..45) still runs. The link is not on the chain.
TEST(CriticalPathTest, WhereComputeIsTheBottleneckNoTransferIsOnTheChain) {
  EXPECT_EQ(
      links(explain(four_equal_layers(), "per-tensor", {.collective = testing::line(us(2), 0)})),
      "0 r0 compute l3.backward 10 | 10 r0 compute l2.backward 10 | "
      "20 r0 compute l1.backward 10 | 30 r0 compute l0.backward 10 | "
      "40 r0 compute l3.update 5 | 45 r0 compute l2.update 5 | 50 r0 compute l1.update 5 | "
      "55 r0 compute l0.update 5");
}

// Rank 1 needs 17 for backward, rank 0 only 10; the collective takes 15 from 17 on. Rank 0 is named as the
// slowest, of equals: the chain goes over to rank 1 at the collective.
TEST(CriticalPathTest, TheChainGoesOverToTheRankThatCameLast) {
  const auto program = testing::chain(
      {{us(0), us(10), Bytes(400), us(5)}}, 2,
      [](std::int32_t rank, std::size_t op) { return rank == 1 && op == 1 ? us(7) : Duration{}; });
  EXPECT_EQ(links(explain(program, "per-tensor", {.collective = testing::line(us(15), 0)})),
            "0 r1 compute l0.backward 17 | 17 r0 transfer 0 15 | 32 r0 compute l0.update 5");
}

// Copies at 1 ns per byte: backward 10, pack 4, collective 15, unpack 4, update 5.
TEST(CriticalPathTest, CopiesAreLinksOfTheirOwn) {
  EXPECT_EQ(
      links(explain(testing::chain({{us(0), us(10), Bytes(4000), us(5)}}), "per-tensor:mode=copy",
                    {.collective = testing::line(us(15), 0), .copy_ns_per_byte = 1})),
      "0 r0 compute l0.backward 10 | 10 r0 copy 4 | 14 r0 transfer 0 15 | 29 r0 copy 4 | "
      "33 r0 compute l0.update 5");
}

// An op takes 20 to issue and 1 to run, six ops a step: of the 120 between the ends of two steps 119 are
// the host's, until it has issued the last update.
TEST(CriticalPathTest, WhereTheHostIsTheBottleneckTheChainIsItsOwnWork) {
  const auto program = testing::chain(std::vector<Layer>(2, {us(1), us(1), Bytes(400), us(1)}));
  testing::SimpleMachine simple{.collective = testing::line(us(1), 0)};
  simple.host = {.kind = models::HostModel::Kind::Async, .run_op = us(20)};
  EXPECT_EQ(links(explain(program, "per-tensor", simple, 3), 2),
            "0 r0 host 119 | 119 r0 compute l0.update 1");
}

TEST(CriticalPathTest, TheTableJoinsWhatIsAlike) {
  const Explained found =
      explain(four_equal_layers(), "per-tensor", {.collective = testing::line(us(15), 0)});
  std::ostringstream out;
  traces::print_critical_path(out, found.trace, found.path);
  EXPECT_EQ(out.str(),
            "critical path of step 0: each line begins when the one before has ended\n"
            "      at ms   takes ms    share  what\n"
            "   0.000000   0.010000   13.3 %  rank 0 l3.backward\n"
            "   0.010000   0.060000   80.0 %  rank 0 transfer, buckets 0 to 3\n"
            "   0.070000   0.005000    6.7 %  rank 0 l0.update\n");
}

const traces::Span* span_of(const traces::Trace& trace, const traces::PathLink& link) {
  for (const traces::Span& span : traces::spans_of(trace, link.rank, link.stream)) {
    if (span.command == link.command && span.step == link.step) return &span;
  }
  return nullptr;
}

// Whatever the program: the links cover the window of every step, and those with a span end with it;
// without slow-down a transfer begins when its last rank has come.
TEST(CriticalPathTest, TheLinksCoverEveryStepWithoutAGap) {
  std::size_t transfers = 0;
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto program = testing::random_chain(random, 12, random.between(1, 3));
    testing::SimpleMachine simple = testing::random_machine(random);
    if (random.between(0, 2) == 0) simple.contention.compute_slowdown = 1.25;
    const auto lowered = schedule::lower(program, testing::random_schedule(random, program));
    const Explained found =
        simulate_and_explain(lowered.program, testing::costs_of(simple, program), {.steps = 3});
    const auto windows = traces::step_windows(found.trace);
    ASSERT_EQ(found.path.steps.size(), windows.size());
    for (std::size_t step = 0; step < windows.size(); ++step) {
      Instant at = windows[step].start;
      for (const traces::PathLink& link : found.path.steps[step]) {
        EXPECT_EQ(link.start, at);
        EXPECT_LT(link.start, link.end);
        at = link.end;
        const bool has_span = link.kind == LinkKind::Compute || link.kind == LinkKind::Copy ||
                              link.kind == LinkKind::Transfer;
        if (!has_span) continue;
        const traces::Span* span = span_of(found.trace, link);
        ASSERT_NE(span, nullptr);
        EXPECT_EQ(span->end, link.end);
        if (link.kind != LinkKind::Transfer || link.start == windows[step].start) continue;
        EXPECT_EQ(span->transfer_start, link.start);
        ++transfers;
      }
      EXPECT_EQ(at, windows[step].end);
    }
  }
  EXPECT_GT(transfers, 100U);
}

}  // namespace
}  // namespace dovetail::sim

// Rates: links that are shared, compute beside several collectives, and the engine against the reference.
//
// SPDX-License-Identifier: Apache-2.0
#include "sim/rates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "models/workloads/profile.h"
#include "schedule/lower/lower.h"
#include "schedule/verify/verify.h"
#include "sim/interval.h"
#include "sim/simulate.h"
#include "tests/sim/agreement.h"
#include "tests/sim/role_programs.h"
#include "tests/support/cases.h"
#include "tests/support/programs.h"
#include "traces/metrics.h"

namespace dovetail::sim {
namespace {

using schedule::Collective;
using schedule::CollectiveWork;
using testing::line;
using testing::RolePlan;
using testing::us;

const std::vector<models::LinkLoad> kLink = {{.link = 0, .share = 1}};

std::vector<double> solved(LinkShares& shares, const std::vector<std::vector<Demand>>& transfers) {
  shares.clear();
  for (const std::vector<Demand>& transfer : transfers) shares.add(transfer, 1);
  const std::span<const double> rates = shares.solve();
  return {rates.begin(), rates.end()};
}

TEST(LinkSharesTest, TheExamplesOfTheHeader) {
  LinkShares shares(2);
  EXPECT_EQ(solved(shares, {{{0, 1}}, {{0, 1}}}), (std::vector<double>{0.5, 0.5}));
  EXPECT_EQ(solved(shares, {{{0, 1}}, {{0, 0.2}}}), (std::vector<double>{0.8, 1}));
  EXPECT_EQ(solved(shares, {{{0, 1}, {1, 1}}, {{0, 1}}, {{1, 1}}}),
            (std::vector<double>{0.5, 0.5, 0.5}));
  EXPECT_EQ(solved(shares, {{{0, 1}}, {{1, 1}}, {}}), (std::vector<double>{1, 1, 1}));
}

// a and b fill p at 1/3 each with c; d shares q with a alone and gets what a leaves: 2/3.
TEST(LinkSharesTest, WhatOneLeavesTheNextTakes) {
  LinkShares shares(2);
  const std::vector<double> rates =
      solved(shares, {{{0, 1}, {1, 1}}, {{0, 1}}, {{0, 1}}, {{1, 1}}});
  ASSERT_EQ(rates.size(), 4U);
  for (const std::size_t i : {0, 1, 2}) EXPECT_NEAR(rates[i], 1.0 / 3, 1e-12);
  EXPECT_NEAR(rates[3], 2.0 / 3, 1e-12);
}

// No link is over full, and nobody could move faster without slowing down one that is no faster than it.
TEST(LinkSharesTest, RandomSharesAreMaxMinFair) {
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    const auto links = static_cast<std::size_t>(random.between(1, 5));
    std::vector<std::vector<Demand>> transfers(static_cast<std::size_t>(random.between(1, 7)));
    for (auto& transfer : transfers) {
      for (std::size_t link = 0; link < links; ++link) {
        if (random.between(0, 1) == 0) continue;
        transfer.push_back({static_cast<std::int32_t>(link), 0.05 + 0.95 * random.uniform()});
      }
    }
    LinkShares shares(links);
    const std::vector<double> rates = solved(shares, transfers);
    std::vector<double> used(links);
    const auto most = [&](std::size_t i) {
      double largest = 0;
      for (const Demand& demand : transfers[i]) largest = std::max(largest, demand.amount);
      return largest * rates[i];
    };
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      for (const Demand& demand : transfers[i]) {
        used[static_cast<std::size_t>(demand.resource)] += demand.amount * rates[i];
      }
    }
    for (const double share : used) EXPECT_LE(share, 1 + 1e-9);
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      if (rates[i] >= 1 - 1e-9) continue;
      // One of its links is full, and on it nobody uses more of his most used link.
      bool stopped = false;
      for (const Demand& demand : transfers[i]) {
        bool largest = used[static_cast<std::size_t>(demand.resource)] > 1 - 1e-9;
        for (std::size_t j = 0; j < transfers.size(); ++j) {
          for (const Demand& other : transfers[j]) {
            if (other.resource == demand.resource) largest = largest && most(j) <= most(i) + 1e-9;
          }
        }
        stopped = stopped || largest;
      }
      EXPECT_TRUE(stopped) << "round " << round << " transfer " << i;
    }
  }
}

// Both factors of what is left, and the least that is always left.
TEST(TakenTest, CollectivesAddUp) {
  const models::Contention contention{.compute_slowdown = 1.25,
                                      .collective_slowdown = 1,
                                      .collective_cpu = us(2),
                                      .memory_slowdown = 2};
  Taken taken;
  taken.add(contention, {.rate = 1, .alone = 20'000});
  EXPECT_NEAR(taken.left(models::KernelClass::Gemm), 0.9 * 0.8, 1e-12);
  EXPECT_NEAR(taken.left(models::KernelClass::Memory), 0.9 * 0.5, 1e-12);
  taken.add(contention, {.rate = 0.5, .alone = 20'000});
  EXPECT_NEAR(taken.left(models::KernelClass::Other), 0.85 * 0.7, 1e-12);
  taken.add(contention, {.rate = 1, .alone = 1});
  EXPECT_EQ(taken.left(models::KernelClass::Other), 1.0 / 64);
}

// Multiprocessors are held whole at any rate, memory in proportion to it.
TEST(TakenTest, ACollectiveHoldsMultiprocessorsAndMovesMemory) {
  const models::Contention contention;
  Taken taken;
  taken.add(contention, {.rate = 0.5, .gpu = {.multiprocessors = 0.25, .memory = 0.4}});
  EXPECT_NEAR(taken.left(models::KernelClass::Gemm), 0.75, 1e-12);
  EXPECT_NEAR(taken.left(models::KernelClass::Memory), 0.75 * 0.8, 1e-12);
  taken.add(contention, {.rate = 1, .gpu = {.multiprocessors = 0.5}});
  EXPECT_NEAR(taken.left(models::KernelClass::Other), 0.25, 1e-12);
}

// --------------------------------------------------------------------------------- by hand

// Two layers whose gradients are ready at 10 and 20 us on `streams` streams; the step's end.
double step_us(std::int64_t first_bytes, std::int64_t second_bytes,
               const testing::SimpleMachine& machine, std::int32_t streams = 2) {
  const auto program = testing::chain(
      {{us(0), us(10), Bytes(second_bytes), us(0)}, {us(0), us(10), Bytes(first_bytes), us(0)}});
  schedule::Schedule schedule =
      schedule::make_schedule(program, schedule::parse_policy("per-tensor"));
  schedule.buckets.at(1).stream = schedule::CommStream{streams - 1};
  const auto plan = schedule::lower(program, schedule).program;
  const models::Costs costs = testing::costs_of(machine, program);
  expect_reference(plan, costs, 1);
  return to_us(traces::step_times(simulate(plan, costs)).front());
}

// Alone each takes 40 us, all of it bandwidth. One stream: 10..50, 50..90. Two: the first has the link
// until 20, then each half of it. 30 us are left of the first, 40 of the second: the first is done at
// 80, when 10 us are left of the second, which ends at 90 too. Bandwidth is not made by streams.
TEST(SharedLinkTest, TwoStreamsMoveNoMoreBytesThanOne) {
  const testing::SimpleMachine machine{.collective = line(us(0), 10), .loads = kLink};
  EXPECT_EQ(step_us(4000, 4000, machine, 1), 90);
  EXPECT_EQ(step_us(4000, 4000, machine, 2), 90);
  // Without a shared link the second ends at 60.
  EXPECT_EQ(step_us(4000, 4000, {.collective = line(us(0), 10)}, 2), 60);
}

// 20 us of latency and 20 of bandwidth: each wants half of the link, so both run at full rate.
TEST(SharedLinkTest, LatenciesPassSideBySide) {
  const testing::SimpleMachine machine{.collective = line(us(20), 5), .loads = kLink};
  EXPECT_EQ(step_us(4000, 4000, machine, 1), 90);
  EXPECT_EQ(step_us(4000, 4000, machine, 2), 60);
}

// A link with credit: 4000 bytes take 40 us alone and 60 behind others. The pause is the link's: the second transfer
// begins at 20 while the first is in flight, so it takes 60 us of the link on whatever stream: 10 + 40 + 60.
TEST(SharedLinkTest, AnIdleStreamOnABusyLinkHasNoCredit) {
  const testing::SimpleMachine machine{
      .collective =
          models::CollectiveTable(models::AlphaBeta{us(0), 10}, models::AlphaBeta{us(0), 15}),
      .loads = kLink};
  EXPECT_EQ(step_us(4000, 4000, machine, 1), 110);
  EXPECT_NEAR(step_us(4000, 4000, machine, 2), 110, 0.002);
}

// The small one wants a tenth of the link (0.04 us of 0.4) from 20 to 20.4; the large one has 0.9 then.
TEST(SharedLinkTest, ASmallTransferCostsALargeOneItsBytesOnly) {
  const models::CollectiveTable table = testing::table_at(
      {{Bytes(4), Duration(400)}, {Bytes(40), Duration(760)}, {Bytes(8000), us(80)}});
  // Latency: 400 - 10 x 4 = 360 ns.
  const double step = step_us(8000, 4, {.collective = table, .loads = kLink}, 2);
  EXPECT_NEAR(step, 90.04, 0.002);
}

// R5 of the review: compute of 100 us beside an all-reduce of 80 us that takes 2 us of the processor. A
// 4-byte one on a second stream slows it down only while it is in flight.
TEST(SharedLinkTest, AShortCollectiveLeavesNothingBehind) {
  const auto program = testing::chain({{us(0), us(100), Bytes(40), us(0)},
                                       {us(0), us(1), Bytes(4), us(0)},
                                       {us(0), us(1), Bytes(8000), us(0)}});
  testing::SimpleMachine machine{
      .collective =
          testing::table_at({{Bytes(4), us(2)}, {Bytes(40), us(3)}, {Bytes(8000), us(80)}}),
      .contention = {.collective_cpu = us(2)},
      .loads = kLink};
  schedule::Schedule schedule =
      schedule::make_schedule(program, schedule::parse_policy("per-tensor"));
  const models::Costs costs = testing::costs_of(machine, program);
  const auto end_of = [&](const schedule::Schedule& chosen) {
    const auto plan = schedule::lower(program, chosen).program;
    expect_reference(plan, costs, 1);
    return to_us(traces::step_times(simulate(plan, costs)).front());
  };
  const double one = end_of(schedule);
  schedule.buckets.at(1).stream = schedule::CommStream{1};
  const double two = end_of(schedule);
  EXPECT_LT(std::abs(two - one), 5) << one << " " << two;
}

// A send loads its sender's way out and its receiver's way in: two sends in opposite directions between
// the same two ranks do not slow each other down, two in the same direction do.
TEST(SharedLinkTest, LinksAreFullDuplex) {
  for (const bool opposite : {true, false}) {
    RolePlan roles(2, 1, {"compute", "a", "b"});
    const GroupId pair = roles.group("pair", {Rank{0}, Rank{1}});
    for (const std::int32_t role : {0, 1}) {
      for (const std::int32_t stream : {1, 2}) {
        const std::int32_t root = opposite && stream == 2 ? 1 : 0;
        roles.communicate(role, stream, stream == 1 ? "first" : "second",
                          CollectiveWork{.kind = Collective::SendRecv,
                                         .group = pair,
                                         .bytes = Bytes(4000),
                                         .purpose = schedule::Purpose::Pipeline,
                                         .root = root});
      }
    }
    models::Costs costs = testing::role_costs(roles.plan(), line(us(0), 10));
    for (models::CollectiveCost& cost : costs.collectives) cost.loads = kLink;
    expect_reference(roles.plan(), costs, 1);
    const traces::Trace trace = simulate(roles.plan(), costs);
    EXPECT_EQ(to_us(traces::step_times(trace).front()), opposite ? 40 : 80);
  }
}

// One op of 100 us that strays from 90 to 130 and a collective of 50 us behind it that does not: the step
// strays as the op does.
TEST(IntervalTest, TheStepStraysAsItsOpsDo) {
  const auto program = testing::chain({{us(0), us(100), Bytes(40), us(0)}});
  models::Costs costs = testing::costs_of({.collective = line(us(50), 0)}, program);
  const auto plan = schedule::lower(program, schedule::make_schedule(
                                                 program, schedule::parse_policy("per-tensor")))
                        .program;
  EXPECT_FALSE(step_interval(plan, costs).has_value());
  for (const schedule::Op& op : program.ops) {
    models::OpCost cost = costs.ops.cost(op);
    cost.spread = {.p10 = 0.9, .p90 = 1.3};
    costs.ops.set(op, cost);
  }
  const std::optional<StepInterval> interval = step_interval(plan, costs, {.draws = 400});
  ASSERT_TRUE(interval.has_value());
  EXPECT_NEAR(to_us(interval->p10), 140, 2);
  EXPECT_NEAR(to_us(interval->median), 150, 3);
  EXPECT_NEAR(to_us(interval->p90), 180, 6);
  EXPECT_EQ(step_interval(plan, costs, {.draws = 400}), interval);
}

// --------------------------------------------------------------------------------- memory

TEST(MemoryLevelTest, TheExamplesOfTheHeader) {
  EXPECT_DOUBLE_EQ(memory_level(std::vector{0.38}, true), 0.62);
  EXPECT_DOUBLE_EQ(memory_level(std::vector{0.76, 0.52}, true), 1.0 / 3);
  EXPECT_DOUBLE_EQ(memory_level(std::vector{1.5}, false), 1);
  EXPECT_TRUE(std::isinf(memory_level(std::vector{0.38, 0.26}, false)));
}

// One layer whose backward streams for 100 us, beside an all-reduce of 100 us in flight from its start: launched by
// hand, so the graph is two nodes. `traffic`: of the all-reduce.
std::pair<std::int64_t, std::int64_t> ends_beside_streaming(double traffic) {
  StepGraph graph;
  graph.slots = {{.kind = step::SlotKind::Compute}, {.kind = step::SlotKind::Transfers}};
  graph.contention = {{.multiprocessors = models::Multiprocessors{.count = 100}}};
  graph.lane_sets = {{0}};
  graph.shares_memory = true;
  graph.begin_step();
  graph.append({.work = step::Work::fixed(100'000), .kernel = models::KernelClass::Memory}, {});
  graph.append({.kind = step::NodeKind::Transfer, .slot = 1},
               {.isolated = 100'000, .back_to_back = 100'000, .gpu = {.memory = traffic}}, {}, {});
  graph.link();
  Workspace workspace;
  play(graph, workspace);
  return {workspace.timeline.end_of(0), workspace.timeline.end_of(1)};
}

// At 0.4 it has what it wants and leaves 0.6: the op ends at 100 + 0.4 x 100 = 140. At 0.8 both have a half: the
// transfer moves at 5/8 and ends at 160, and the op, which has done half of its 160 us of memory, at 180: together 180 us of
// bytes. Twice the link with the same bytes is 50 us at 1.6, which is no faster than memory lets it: 160 and 180.
TEST(MemoryShareTest, BothGiveWayAndBytesAreKept) {
  const auto expect = [](double traffic, std::int64_t op_us, std::int64_t transfer_us) {
    const auto [op, transfer] = ends_beside_streaming(traffic);
    EXPECT_NEAR(static_cast<double>(op) / 1e3, static_cast<double>(op_us), 0.01) << traffic;
    EXPECT_NEAR(static_cast<double>(transfer) / 1e3, static_cast<double>(transfer_us), 0.01)
        << traffic;
  };
  expect(0.4, 140, 100);
  expect(0.8, 180, 160);
}

// ----------------------------------------------------------------------------- thread blocks

struct Delayed {
  std::int64_t product_us = 100;
  std::int64_t transfer_us = 40;
  std::int64_t begins_us = 20;  // the transfer
  std::int64_t delay_us = 30;
  std::int64_t previous_us = 0;  // another one, from 0 on the same stream; 0: none
  models::KernelClass kernel = models::KernelClass::Gemm;
};
// When the transfer ends.
double end_of_delayed(const Delayed& at) {
  constexpr std::int64_t kUs = 1000;
  StepGraph graph;
  graph.slots = {{.kind = step::SlotKind::Compute}, {.kind = step::SlotKind::Transfers}};
  graph.contention = {{.start_delay = us(at.delay_us)}};
  graph.lane_sets = {{0}};
  graph.begin_step();
  graph.append({.work = step::Work::fixed(at.product_us * kUs), .kernel = at.kernel}, {});
  const step::Node node{.kind = step::NodeKind::Transfer, .slot = 1};
  const auto lasting = [](std::int64_t ns, std::optional<NodeId> previous) {
    return step::Transfer{.previous = previous, .isolated = ns, .back_to_back = ns};
  };
  step::Node second = node;
  second.release = at.begins_us * kUs;
  std::optional<NodeId> previous;
  std::vector<step::Edge> edges;
  if (at.previous_us > 0) {
    previous = graph.append(node, lasting(at.previous_us * kUs, std::nullopt), {}, {});
    edges = {{.from = *previous}};
  }
  const NodeId last = graph.append(second, lasting(at.transfer_us * kUs, previous), {}, edges);
  graph.link();
  Workspace workspace;
  play(graph, workspace);
  return static_cast<double>(workspace.timeline.end_of(last)) / kUs;
}

TEST(StartDelayTest, ALoneCollectiveWaitsForBlocksOfAProduct) {
  EXPECT_EQ(end_of_delayed({}), 20 + 30 + 40);
  // In the instant in which the product begins, too.
  EXPECT_EQ(end_of_delayed({.begins_us = 0}), 30 + 40);
  // Not beyond the product's end, nor for other ops, nor behind it.
  EXPECT_EQ(end_of_delayed({.product_us = 30}), 30 + 40);
  EXPECT_EQ(end_of_delayed({.kernel = models::KernelClass::Memory}), 20 + 40);
  EXPECT_EQ(end_of_delayed({.begins_us = 100}), 100 + 40);
  // Nothing that takes no time.
  EXPECT_EQ(end_of_delayed({.transfer_us = 0}), 20);
}

// The first waits from 0 to 30 and ends at 40. One that follows at once, at 40, has its blocks: 40 + 40. One that begins
// 5 us behind it waits 5 us at most: 45 + 5 + 40.
TEST(StartDelayTest, OneThatFollowsAnotherHasItsBlocks) {
  EXPECT_EQ(end_of_delayed({.begins_us = 0, .previous_us = 10}), 40 + 40);
  EXPECT_EQ(end_of_delayed({.begins_us = 45, .previous_us = 10}), 45 + 5 + 40);
}

// ------------------------------------------------------------------------------- no paradox

// Sizes of 64 bytes to 1 MiB whose times rise by random factors, with bumps; queued times apart from lone ones.
std::vector<models::CollectivePoint> random_points(Random& random) {
  std::vector<models::CollectivePoint> points;
  double ns = static_cast<double>(random.between(500, 50'000));
  for (std::int64_t bytes = 64; bytes <= 1 << 20; bytes *= random.between(0, 1) == 0 ? 4 : 8) {
    const Duration lone(std::max<std::int64_t>(1, std::llround(ns)));
    const Duration queued(std::max<std::int64_t>(1, std::llround(ns * (0.7 + random.uniform()))));
    points.push_back({.bytes = Bytes(bytes), .isolated = lone, .back_to_back = queued});
    ns *= 0.8 + 5 * random.uniform();
  }
  return points;
}

// From the first start of a transfer to the last end of one lie at least all their bytes over the largest rate.
TEST(NoParadoxTest, NoPlanMovesBytesFasterThanItsTableEverShows) {
  const int machines = testing::few_cases(10'000);
  for (int seed = 0; seed < machines; ++seed) {
    Random random(static_cast<std::uint64_t>(seed));
    const std::vector<models::CollectivePoint> points = random_points(random);
    double byte_ns = 1e18;
    for (const models::CollectivePoint& point : points) {
      const auto least = static_cast<double>(std::min(point.isolated, *point.back_to_back).count());
      byte_ns = std::min(byte_ns, least / static_cast<double>(point.bytes.count()));
    }
    const auto random_us = [&] { return us(random.between(0, 20)); };
    std::vector<testing::Layer> layers;
    double bytes = 0;
    for (std::int64_t i = random.between(2, 8); i > 0; --i) {
      const std::int64_t size = 4 * random.between(1, points.back().bytes.count() / 4);
      bytes += static_cast<double>(size);
      layers.push_back({random_us(), random_us(), Bytes(size), random_us()});
    }
    const schedule::Program program = testing::chain(layers);
    schedule::Schedule schedule =
        schedule::make_schedule(program, schedule::parse_policy("per-tensor"));
    const std::int64_t streams = random.between(1, 8);
    for (schedule::Bucket& bucket : schedule.buckets) {
      bucket.stream =
          schedule::CommStream{static_cast<std::int32_t>(random.between(0, streams - 1))};
    }
    testing::SimpleMachine machine{.collective = models::CollectiveTable(points), .loads = kLink};
    if (random.between(0, 1) == 0) machine.contention.compute_slowdown = 1.3;
    const models::Costs costs = testing::costs_of(machine, program);
    const StepGraph graph = compile(schedule::lower(program, schedule).program, costs, 1).graph;
    Workspace workspace;
    play(graph, workspace);
    std::int64_t first = workspace.timeline.end.back();
    std::int64_t last = 0;
    for (const step::Transfer& transfer : graph.transfers) {
      first = std::min(first, workspace.timeline.start_of(transfer.node));
      last = std::max(last, workspace.timeline.end_of(transfer.node));
    }
    // Rates are rounded to 2^-20, each time to 1 ns.
    ASSERT_GE(static_cast<double>(last - first) * (1 + 1e-4) + 20, bytes * byte_ns)
        << "seed " << seed << ", " << streams << " streams";
  }
}

// Ten small gradients and all-reduces of 0.9 ms beside 10 ms of backward.
TEST(NoParadoxTest, AFactorOfAlmostOneIsAlmostNone) {
  const auto step = [](const std::string& factor) {
    std::string gradients;
    for (int i = 0; i < 10; ++i) {
      gradients += (i == 0 ? "" : ", ") + (R"({"name": "g)" + std::to_string(i)) +
                   R"(", "numel": 1000, "dtype": "float32", "ready_us": )" +
                   std::to_string(100 * (i + 1)) + "}";
    }
    const models::Profile profile = models::read_profile(
        JsonFile("p.json", R"({"name": "p", "world_size": 2, "profile": {"forward_us": 1000,
          "backward_us": 10000, "optimizer_us": 1000, "gradients": [)" +
                               gradients + R"(]},
          "all_reduce_alone": [{"bytes": 4, "us": 900}, {"bytes": 1000000, "us": 2000}],
          "compute_slowdown_while_communicating": {"forward": )" +
                               factor + R"(, "backward": )" + factor + "}}"));
    const schedule::Program program = models::profile_program(profile);
    const auto plan = schedule::lower(program, schedule::make_schedule(
                                                   program, schedule::parse_policy("per-tensor")))
                          .program;
    return to_us(
        traces::step_times(simulate(plan, models::profile_costs(profile, program))).front());
  };
  const double none = step("1");
  EXPECT_NEAR(step("1.0001"), none, 1e-4 * none + 0.1);
  // 1 % of noise in the factor.
  for (int percent = 0; percent < 20; ++percent) {
    const double less = step(std::to_string(1 + 0.01 * percent));
    EXPECT_LE(step(std::to_string(1.01 + 0.01 * percent)), 1.1 * less) << percent;
  }
}

// ------------------------------------------------------------------------------- growth

// Events that the engine handles per node, at four sizes each: a change of rate is one event, so the
// number may depend on how much is in flight together, but not on how long the step is.
double events_per_node(const schedule::ScheduledProgram& plan, const models::Costs& costs) {
  const StepGraph graph = compile(plan, costs, 2).graph;
  Workspace workspace;
  play(graph, workspace);
  EXPECT_GT(workspace.events, 0);
  return static_cast<double>(workspace.events) / graph.size();
}

TEST(GrowthTest, EventsGrowWithMicroSteps) {
  std::vector<double> counts;
  std::vector<double> nodes;
  for (const std::int32_t k : {16, 32, 64, 128}) {
    testing::PipelinePlan pipeline;
    pipeline.shape = {.kind = schedule::PipelineKind::OneFOneB, .stages = 4, .micro_steps = k};
    pipeline.message = Bytes(3000);
    pipeline.gradients = Bytes(4000);
    pipeline.time = [](schedule::Phase phase, std::int32_t, std::int32_t) {
      return us(phase == schedule::Phase::Forward ? 10 : 20);
    };
    const auto plan = testing::pipeline_plan(pipeline);
    testing::SimpleMachine machine{
        .collective = line(us(2), 1), .contention = {.compute_slowdown = 1.2}, .loads = kLink};
    models::Costs costs = testing::costs_of(machine, plan.program);
    costs.distinct_ranks = 1;
    counts.push_back(events_per_node(plan, costs));
    nodes.push_back(compile(plan, costs, 2).graph.size());
  }
  for (std::size_t i = 1; i < counts.size(); ++i) {
    EXPECT_LT(nodes[i], 2.1 * nodes[i - 1]);
    EXPECT_LT(counts[i], 1.1 * counts[i - 1] + 0.1);
  }
}

TEST(GrowthTest, EventsPerNodeGrowWithWhatIsInFlightTogetherOnly) {
  for (const std::int32_t streams : {1, 2, 4, 8}) {
    std::vector<double> counts;
    for (const std::size_t layers : {50, 100, 200, 400}) {
      const auto program =
          testing::chain(std::vector<testing::Layer>(layers, {us(1), us(10), Bytes(4000), us(1)}));
      schedule::Schedule schedule =
          schedule::make_schedule(program, schedule::parse_policy("per-tensor"));
      for (std::size_t i = 0; i < schedule.buckets.size(); ++i) {
        schedule.buckets[i].stream = schedule::CommStream{static_cast<std::int32_t>(i) % streams};
      }
      const auto plan = schedule::lower(program, schedule).program;
      models::Costs costs = testing::costs_of(
          {.collective = line(us(3), 2), .contention = {.compute_slowdown = 1.2}, .loads = kLink},
          program);
      costs.distinct_ranks = 1;
      counts.push_back(events_per_node(plan, costs));
    }
    for (const double count : counts) {
      EXPECT_LT(count, 1.1 * counts.front() + 0.1) << streams << " streams";
      EXPECT_LT(count, 3.0 + 2.0 * streams) << streams << " streams";
    }
  }
}

// ------------------------------------------------------------------------- against the reference

TEST(RatesAgreementTest, OnAllGroupingsWithContention) {
  Random random(11);
  std::size_t compared = 0;
  for (int i = 0; i < 24; ++i) {
    SCOPED_TRACE("program " + std::to_string(i));
    schedule::Program program = testing::random_chain(random, 5, 2);
    testing::SimpleMachine machine = testing::random_machine(random);
    testing::contend(random, machine);
    models::Costs costs = testing::costs_of(machine, program);
    testing::draw_kernels(random, program, costs);
    for (const auto& ends : testing::all_groupings(program.reductions.size())) {
      const auto plan =
          schedule::lower(program,
                          schedule::partition(program, ends, schedule::parse_policy("exact")))
              .program;
      expect_reference(plan, costs, 1);
      ++compared;
    }
  }
  EXPECT_GT(compared, 80U);
}

TEST(RatesAgreementTest, OnRandomSchedulesWithSeveralStreams) {
  std::size_t links = 0, memory = 0, delays = 0;
  for (std::uint64_t seed = 0; seed < 250; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    schedule::Program program = testing::random_chain(random, 12, random.between(1, 3));
    testing::SimpleMachine machine = testing::random_machine(random);
    testing::contend(random, machine);
    models::Costs costs = testing::costs_of(machine, program);
    testing::draw_kernels(random, program, costs);
    const auto lowered =
        schedule::lower(program, testing::random_schedule(random, program, 4)).program;
    const StepGraph graph = compile(lowered, costs, 1).graph;
    links += graph.shares_links ? 1U : 0U;
    memory += graph.shares_memory ? 1U : 0U;
    delays += machine.contention.start_delay > Duration{} ? 1U : 0U;
    expect_reference(lowered, costs, static_cast<std::int32_t>(random.between(1, 4)));
  }
  EXPECT_GT(links, 60U);
  EXPECT_GT(memory, 20U);
  EXPECT_GT(delays, 40U);
}

TEST(RatesAgreementTest, OnRandomGridsWithSeveralTransfersInFlight) {
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto plan = testing::random_grid(random, 3);
    testing::SimpleMachine machine = testing::random_machine(random);
    testing::contend(random, machine);
    machine.loads = kLink;
    expect_reference(plan, testing::costs_of(machine, plan.program), 1);
  }
}

TEST(RatesAgreementTest, OnRandomPipelinesWithContention) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const auto plan = testing::pipeline_plan(testing::random_pipeline(random));
    testing::SimpleMachine machine = testing::random_machine(random);
    testing::contend(random, machine);
    expect_reference(plan, testing::costs_of(machine, plan.program),
                     static_cast<std::int32_t>(random.between(1, 4)));
  }
}

}  // namespace
}  // namespace dovetail::sim

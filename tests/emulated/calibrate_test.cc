// What a calibration and a backend of several ranks ask of the libraries: no time is looked at here.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/transfers.h"
#include "exec/clock.h"
#include "exec/cpu/job.h"
#include "tests/emulated/fixture.h"
#include "tests/emulated/job.h"
#include "tests/exec/programs.h"

#include <gmock/gmock.h>

#include <cstring>
#include <deque>
#include <functional>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

namespace dovetail::emulated {
namespace {

using calibrate::Lab;
using calibrate::ProbeGroup;
using calibrate::Spacing;
using calibrate::TransferProbe;
using exec::cuda::BackendOptions;
using schedule::Collective;
using schedule::ScheduledProgram;
using Measure = std::function<void(const Lab&)>;

class CalibrateOnDeviceTest : public EmulatedTest {
 protected:
  enum class Keep { Yes, No };
  // On every rank, with plans and buffers that are small enough for a processor.
  static void measure(std::int32_t ranks, Keep keep, const Measure& body) {
    configure({.devices = ranks, .seed = 5});
    on_ranks(ranks, [&](exec::launch::Session& session) {
      BackendOptions options;
      if (keep == Keep::Yes) options.kept = dovetail_cuda_module()->keep_communicators(options);
      std::deque<ScheduledProgram> plans;
      const calibrate::MakeBackend make = [&](const ScheduledProgram& plan) {
        plans.push_back(plan);
        return make_backend(plans.back(), options, session);
      };
      const exec::Exchange exchange = exec::cpu::exchange_of(session);
      body({.exchange = exchange, .make_backend = make, .options = small(), .ranks = ranks});
    });
  }
  static const calibrate::Options& small() {
    static const calibrate::Options kOptions = {
        .steps = 1,
        .largest = kib(64),
        .transfer_steps = 1,
        .budget = std::chrono::hours(1),  // for all sizes, on any machine
        .further_largest = kib(16),
        .further_budget = std::chrono::hours(1),
        .head_start = kib(4)};
    return kOptions;
  }
};

// Five sizes on two ranks: a communicator for each rank, not for each rank and size.
TEST_F(CalibrateOnDeviceTest, SizesShareTheirCommunicators) {
  measure(2, Keep::Yes,
          [](const Lab& lab) { EXPECT_EQ(calibrate::measure_collectives(lab).size(), 5U); });
  EXPECT_EQ(counts().communicators, 2);
  measure(2, Keep::No, [](const Lab& lab) { calibrate::measure_collectives(lab); });
  EXPECT_EQ(counts().communicators, 10);
}

// Plans of four ranks may shard, or form two stages of two replicas: their tables are measured.
TEST_F(CalibrateOnDeviceTest, EveryKindAndGroupThatPlansNeedIsMeasured) {
  measure(4, Keep::Yes, [](const Lab& lab) {
    schedule::Program workload;
    workload.world_size = 4;
    std::set<std::tuple<Collective, std::int64_t>> found;
    for (const models::CollectiveSeries& series :
         calibrate::measure_further(lab, workload, {0, 0, 0, 0})) {
      const auto& sizes = std::get<std::vector<models::CollectivePoint>>(series.times);
      EXPECT_EQ(sizes.size(), 2U);  // 4 and 16 KiB
      for (const auto& size : sizes) EXPECT_GT(size.isolated, Duration{});
      found.emplace(series.collective, series.ranks);
    }
    EXPECT_EQ(found, (std::set<std::tuple<Collective, std::int64_t>>{{Collective::AllReduce, 2},
                                                                     {Collective::ReduceScatter, 2},
                                                                     {Collective::ReduceScatter, 4},
                                                                     {Collective::AllGather, 2},
                                                                     {Collective::AllGather, 4},
                                                                     {Collective::SendRecv, 2}}));
  });
  // All ranks; all in pairs, for all-reduces, halves and sends alike.
  EXPECT_EQ(counts().communicators, 4 + 4);
}

TEST_F(CalibrateOnDeviceTest, WhatIsMeasuredIsRight) {
  for (const Spacing spacing : {Spacing::InARow, Spacing::Apart}) {
    TransferProbe probe = {.ranks = 4, .bytes = kib(4), .count = 3};
    probe.group = {.ranks = 2, .spacing = spacing};
    probe.head_start = kib(4);
    configure({.devices = 4, .seed = 7});
    const Outcome halves = run_job(calibrate::halves_plan(probe), {}, {.warmup = 0, .steps = 2});
    EXPECT_EQ(halves.error, "");
    EXPECT_EQ(halves.check.wrong, 0) << halves.check.first_wrong;
    // Ranks, steps, gradients, elements; as they were read and at the end.
    EXPECT_EQ(halves.check.checked, 4 * 2 * 3 * 1024 * 2);
    for (const Collective kind : {Collective::SendRecv, Collective::AllToAll}) {
      const Outcome sent =
          run_job(calibrate::messages_plan(kind, probe), {}, {.warmup = 0, .steps = 2});
      EXPECT_EQ(sent.error, "");
    }
  }
}

// Of three ranks one has no partner.
TEST_F(CalibrateOnDeviceTest, ARankWithoutAPartnerLooksOn) {
  measure(3, Keep::Yes, [](const Lab& lab) {
    schedule::Program workload;
    workload.world_size = 3;
    const auto all = calibrate::measure_further(lab, workload, {0, 0, 0});
    ASSERT_EQ(all.size(), 3U);  // two halves, and sends
    EXPECT_EQ(all.back().collective, Collective::SendRecv);
  });
}

// Only memory of ncclMemAlloc can be used in place within a node.
TEST_F(CalibrateOnDeviceTest, RegisteredBuffersAreOfNccl) {
  const auto plan = exec::testing::in_two_buckets(2);
  BackendOptions options;
  configure({.devices = 2});
  EXPECT_EQ(run_job(plan, options).error, "");
  EXPECT_EQ(counts().registrations, 2);
  EXPECT_EQ(counts().mapped_registrations, 0);
  configure({.devices = 2});
  options.buffers = exec::cuda::Buffers::Registered;
  const Outcome outcome = run_job(plan, options);
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.check.wrong, 0);
  EXPECT_GT(outcome.check.checked, 0);
  EXPECT_EQ(counts().mapped_registrations, 2);
}

// The self-test then leaves out what needs several processes on one GPU.
TEST_F(CalibrateOnDeviceTest, AnExclusiveDeviceIsKnown) {
  configure({});
  EXPECT_TRUE(dovetail_cuda_module()->facts().devices.at(0).is_shareable);
  configure({.is_exclusive = true});
  EXPECT_FALSE(dovetail_cuda_module()->facts().devices.at(0).is_shareable);
}

// Whatever its preparation takes, no rank enqueues before the moment that rank 0 named in this step.
TEST_F(CalibrateOnDeviceTest, RanksBeginAStepAtOneMoment) {
  const auto plan = exec::testing::in_two_buckets(2);
  configure({.devices = 2});
  on_ranks(2, [&](exec::launch::Session& session) {
    std::int64_t moment = 0;
    const exec::Exchange inner = exec::cpu::exchange_of(session);
    BackendOptions options;
    options.device = session.rank().value;
    options.exchange = inner;
    options.exchange.broadcast = [&](const std::string& mine) {
      std::string all = inner.broadcast(mine);
      if (all.size() == sizeof moment) std::memcpy(&moment, all.data(), sizeof moment);
      return all;
    };
    const auto backend = dovetail_cuda_module()->make_backend(plan, options);
    for (std::int32_t step = 0; step < 3; ++step) {
      const std::int64_t before = exec::now_ns();
      moment = 0;
      backend->begin_step(step);
      EXPECT_GT(moment, before - 1'000'000'000);
      EXPECT_GE(exec::now_ns(), moment);
      backend->finish();
    }
  });
}

}  // namespace
}  // namespace dovetail::emulated

// The whole cpu machine on loopback: ranks as threads of a launched job, the ring transport, real
// kernels, exact gradients.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/job.h"

#include "calibrate/calibrate.h"
#include "exec/cpu/gloo.h"
#include "exec/launch/affinity.h"
#include "exec/launch/local_ranks.h"
#include "exec/measure.h"
#include "tests/exec/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <variant>
#include <vector>

namespace dovetail::exec::cpu {
namespace {

using namespace std::chrono_literals;
using schedule::BucketMode;
using schedule::CommStream;
using schedule::InlineStream;
using schedule::ScheduledProgram;
using schedule::StreamChoice;
using schedule::WaitPoint;
using testing::two_buckets;

TEST(JobTest, RanksThatDriveGpusMayUseEveryCore) {
  const std::vector<std::int32_t> all = launch::allowed_cores();
  launch::run_local_ranks({.ranks = 2, .cores = launch::Cores::Any},
                          [&](launch::Session&) { EXPECT_EQ(launch::allowed_cores(), all); });
}

TEST(JobTest, EveryLegalPlanReducesEveryElementExactlyOverTheRing) {
  for (const std::int32_t ranks : {1, 2, 4}) {
    std::vector<ScheduledProgram> plans;
    for (const BucketMode mode : {BucketMode::View, BucketMode::Copy}) {
      for (const StreamChoice& stream :
           {StreamChoice{CommStream{}}, StreamChoice{InlineStream{}}}) {
        for (const WaitPoint wait : {WaitPoint::FirstUse, WaitPoint::EndOfBackward}) {
          plans.push_back(
              two_buckets({.ranks = ranks, .mode = mode, .stream = stream, .wait = wait}));
        }
      }
    }
    launch::run_local_ranks(
        {.ranks = ranks, .network_namespace = {}}, [&](launch::Session& session) {
          const Ports ports = ports_of(session, TransportKind::Ring);
          std::vector<std::unique_ptr<CpuBackend>> backends;
          std::vector<Lane> lanes;
          for (const ScheduledProgram& plan : plans) {
            backends.push_back(std::make_unique<CpuBackend>(plan, ports));
            lanes.push_back({&plan, backends.back().get()});
          }
          const Measured measured =
              measure(exchange_of(session), lanes, {.warmup = 1, .steps = 2, .rounds = 2}, {});
          for (const CheckResult& check : measured.checks) {
            EXPECT_EQ(check.wrong, 0) << check.first_wrong;
            // Per rank 2 rounds of 1 + 2 steps, both gradients and both as the optimizer read them.
            EXPECT_EQ(check.checked, ranks * 6 * 2 * (testing::kNumel1 + testing::kNumel2));
          }
          const bool first = session.rank() == Rank{0};
          EXPECT_EQ(measured.traces.size(), first ? plans.size() : 0U);
        });
  }
}

TEST(JobTest, ScatterAndGatherWorkOverTheRing) {
  const ScheduledProgram plan =
      two_buckets({.padding = Bytes(8), .collective = schedule::Collective::ReduceScatter});
  launch::run_local_ranks({.ranks = 2, .network_namespace = {}}, [&](launch::Session& session) {
    CpuBackend backend(plan, ports_of(session, TransportKind::Ring));
    const Lane lane = {.plan = &plan, .backend = &backend};
    const Measured measured =
        measure(exchange_of(session), std::span(&lane, 1), {.warmup = 1, .steps = 3}, {});
    EXPECT_EQ(measured.checks[0].wrong, 0) << measured.checks[0].first_wrong;
  });
}

TEST(JobTest, GlooReducesExactlyToo) {
  if (!has_gloo()) GTEST_SKIP() << "built without Gloo";
  for (const BucketMode mode : {BucketMode::View, BucketMode::Copy}) {
    const ScheduledProgram plan = two_buckets({.mode = mode});
    launch::run_local_ranks({.ranks = 2, .network_namespace = {}}, [&](launch::Session& session) {
      CpuBackend backend(plan, ports_of(session, TransportKind::Gloo));
      const Lane lane = {.plan = &plan, .backend = &backend};
      const Measured measured =
          measure(exchange_of(session), std::span(&lane, 1), {.warmup = 1, .steps = 3}, {});
      EXPECT_EQ(measured.checks[0].wrong, 0) << measured.checks[0].first_wrong;
    });
  }
}

TEST(JobTest, ACalibrationRunsOverTheRing) {
  calibrate::Options options = calibrate::on_processors();
  options.pause = 1ms;
  options.steps = 3;
  options.transfer_steps = 3;
  options.smallest = kib(1);
  options.largest = mib(1);
  options.budget = std::chrono::hours(1);  // for all sizes, on any machine
  options.further_budget = std::chrono::hours(1);
  options.copies_largest = mib(1);
  options.contention_bytes = kib(256);
  options.contention_time = 20ms;
  options.longest_queue = 100;
  launch::run_local_ranks({.ranks = 2, .network_namespace = {}}, [&](launch::Session& session) {
    const Exchange exchange = exchange_of(session);
    const Ports ports = ports_of(session, TransportKind::Ring);
    const calibrate::MakeBackend make = [&](const ScheduledProgram& plan) {
      return std::make_unique<CpuBackend>(plan, ports);
    };
    const models::Cluster found =
        calibrate::calibrate(
            {.exchange = exchange, .make_backend = make, .options = options, .ranks = 2},
            testing::two_layers(2))
            .cluster;
    ASSERT_EQ(found.collectives.size(), 4U);  // all-reduce, its halves, sends
    std::vector<std::size_t> sizes;
    for (const models::CollectiveSeries& series : found.collectives) {
      const auto& points = std::get<std::vector<models::CollectivePoint>>(series.times);
      sizes.push_back(points.size());
      for (const models::CollectivePoint& point : points) {
        EXPECT_GT(point.isolated, Duration{});
        EXPECT_GT(point.back_to_back, Duration{});
      }
    }
    // 1 KiB to 1 MiB; and 4, 16, 64, 256 and 1024 KiB.
    EXPECT_EQ(sizes, (std::vector<std::size_t>{11, 5, 5, 5}));
    EXPECT_GT(found.host.collective, Duration{});
  });
}

}  // namespace
}  // namespace dovetail::exec::cpu

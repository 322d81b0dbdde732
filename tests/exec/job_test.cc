// The whole cpu machine on loopback: ranks as threads of a launched job, the ring transport, real
// kernels, exact gradients.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/job.h"

#include "calibrate/cpu/calibrate.h"
#include "exec/cpu/gloo.h"
#include "exec/launch/affinity.h"
#include "exec/launch/local_ranks.h"
#include "exec/measure.h"
#include "tests/exec/support.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
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
  const ScheduledProgram plan = two_buckets({});
  launch::run_local_ranks({.ranks = 2, .network_namespace = {}}, [&](launch::Session& session) {
    calibrate::Rig rig(exchange_of(session), ports_of(session, TransportKind::Ring));
    calibrate::Options options;
    options.op_steps = 3;
    options.unit_kernel = {.units = 1, .chains = 1};
    options.arena = mib(4);
    const Duration budget = std::chrono::hours(1);  // for all sizes, on any machine
    options.collectives = {.smallest = kib(1), .largest = mib(1), .budget = budget, .pause = 1ms};
    options.halves.largest = mib(1);
    options.halves.budget = budget;
    options.halves.pause = 1ms;
    options.contention = {.bytes = kib(256), .compute_time = 20ms};
    const calibrate::Calibration result = calibrate::calibrate(rig, plan, options);
    ASSERT_EQ(result.collectives.size(), 11U);
    EXPECT_EQ(result.reduce_scatter.size(), 5U);  // 4, 16, 64, 256 and 1024 KiB
    EXPECT_EQ(result.all_gather.size(), 5U);
    for (const calibrate::CollectiveTimes& time : result.collectives) {
      EXPECT_GT(time.isolated.median, Duration{});
      EXPECT_GT(time.back_to_back, Duration{});
    }
    EXPECT_EQ(result.contention.size(), 2U);
    EXPECT_GT(result.host.launch, Duration{});
  });
}

}  // namespace
}  // namespace dovetail::exec::cpu

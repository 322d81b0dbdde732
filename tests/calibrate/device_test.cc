// Calibrating a GPU backend, on the fake backend: what was put in must come out.
//
// The fake machine: an op of B bytes takes B ps (1 ns per 1000 bytes), a collective of B bytes 5 us
// + B / 10 ns, a copy 1 us + B / 100 ns. Its streams overlap without contention.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/device/calibrate.h"

#include "base/error.h"
#include "calibrate/device/host_timer.h"
#include "calibrate/device/probes.h"
#include "exec/cpu/job.h"
#include "exec/fake/fake_backend.h"
#include "exec/launch/local_ranks.h"
#include "exec/run.h"
#include "tests/exec/ahead.h"
#include "tests/exec/support.h"
#include "verify/verify.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <variant>
#include <vector>

namespace dovetail::calibrate {
namespace {

using schedule::ScheduledProgram;

Duration time_of(const ScheduledProgram& plan, const schedule::Command& command) {
  if (const auto op = schedule::op_run_by(command)) {
    return Duration(plan.program.op(*op).bytes().count() / 1000);
  }
  if (const auto* collective = schedule::bucket_collective(command)) {
    return Duration(5000 + plan.bucket(*collective->bucket).size.count() / 10);
  }
  if (const auto* copy = std::get_if<schedule::Copy>(&command.action)) {
    return Duration(1000 + plan.bucket(copy->bucket).size.count() / 100);
  }
  return {};
}

MakeBackend fake_machine() {
  return [](const ScheduledProgram& plan) {
    return std::make_unique<exec::fake::FakeBackend>(exec::fake::Durations{
        .duration = [&plan](const schedule::Command& command) { return time_of(plan, command); },
        .issue = {}});
  };
}

// A forward and a backward op of 400 us each beside the two layers' tensors.
schedule::Program workload(std::int64_t ranks) {
  schedule::Program program = exec::testing::two_layers(ranks);
  for (schedule::Op& op : program.ops) {
    op.work = schedule::MemoryWork{.bytes = Bytes(400'000'000), .flop = Flop(0)};
  }
  return program;
}

CalibrateOptions options() {
  CalibrateOptions result;
  result.steps = 3;
  result.largest = mib(4);
  return result;
}

TEST(CudaCalibrateTest, OpsTakeWhatTheMachineTakes) {
  const GpuCalibration found = calibrate_gpu(exec::alone(), fake_machine(), workload(1), options());
  ASSERT_EQ(found.ops.size(), 6u);
  for (const OpTime& op : found.ops) EXPECT_EQ(op.time.median, from_us(400));
}

// 4 KiB: 5000 + 409 ns. From 4 KiB to 4 MiB are eleven sizes.
TEST(CudaCalibrateTest, CollectivesBySizeAloneAndInAQueue) {
  const GpuCalibration found = calibrate_gpu(exec::alone(), fake_machine(), workload(1), options());
  ASSERT_EQ(found.collectives.size(), 11u);
  for (const CollectiveTimes& time : found.collectives) {
    EXPECT_EQ(time.isolated.median, Duration(5000 + time.bytes.count() / 10));
    EXPECT_EQ(time.back_to_back, time.isolated.median);
  }
  EXPECT_EQ(found.collectives.front().bytes, kib(4));
  EXPECT_EQ(found.collectives.front().isolated.median, Duration(5409));
}

TEST(CudaCalibrateTest, CopiesAreALineOverBytes) {
  const GpuCalibration found = calibrate_gpu(exec::alone(), fake_machine(), workload(1), options());
  EXPECT_NEAR(found.copies.ns_per_byte, 0.01, 1e-6);
  EXPECT_NEAR(static_cast<double>(found.copies.fixed.count()), 1000, 2);
}

TEST(CudaCalibrateTest, AMachineWithoutContentionHasNone) {
  const GpuCalibration found = calibrate_gpu(exec::alone(), fake_machine(), workload(1), options());
  EXPECT_GT(found.contention.ops, 0);
  EXPECT_GT(found.contention.collectives, 0);
  EXPECT_DOUBLE_EQ(found.contention.compute, 1);
  EXPECT_DOUBLE_EQ(found.contention.collective, 1);
}

// A plan for four ranks that one rank plays, as send-to-self does.
TEST(CudaCalibrateTest, AStandInMeasuresForTheRanksOfTheWorkload) {
  const GpuCalibration found = calibrate_gpu(exec::alone(), fake_machine(), workload(4), options());
  EXPECT_EQ(found.collectives.size(), 11u);
  EXPECT_EQ(found.collectives.front().isolated.median, Duration(5409));
}

// 4 KiB 2^0 .. 2^10: ends 0 and 10, middle 5, quarters 2 and 7, eighths 1, 3, 6, 8, then the rest.
TEST(CudaCalibrateTest, AnyBeginningOfTheSizesCoversTheRange) {
  const std::vector<Bytes> sizes = sizes_in_order(kib(4), mib(4));
  ASSERT_EQ(sizes.size(), 11u);
  EXPECT_EQ(sizes[0], kib(4));
  EXPECT_EQ(sizes[1], mib(4));
  EXPECT_EQ(sizes[2], kib(128));
  EXPECT_EQ(sizes[3], kib(16));
  EXPECT_EQ(sizes[4], kib(512));
  EXPECT_TRUE(sizes_in_order(kib(8), kib(4)).empty());
  EXPECT_EQ(sizes_in_order(kib(4), kib(4)), std::vector<Bytes>{kib(4)});
}

TEST(CudaCalibrateTest, TheBudgetEndsTheSizesAfterTwo) {
  CalibrateOptions short_of_time = options();
  short_of_time.budget = Duration(0);
  const GpuCalibration found =
      calibrate_gpu(exec::alone(), fake_machine(), workload(1), short_of_time);
  ASSERT_EQ(found.collectives.size(), 2u);
  EXPECT_EQ(found.collectives.back().bytes, mib(4));
}

TEST(CudaCalibrateTest, AReplayedGraphCostsTheHostNothingPerCommand) {
  CalibrateOptions graph = options();
  graph.issue = exec::cuda::Issue::Graph;
  const GpuCalibration found = calibrate_gpu(exec::alone(), fake_machine(), workload(1), graph);
  EXPECT_EQ(found.host, HostCosts{});
}

// An idle device executes the start event while the call is still launching (at 100 ns). The call
// returns at 130, the op ends at 154; in a row such an op takes 4: it began at 150, 20 after the
// return.
TEST(CudaCalibrateTest, LatencyIsFromTheCallsReturnToTheOpsStart) {
  const exec::Timing op = {.command = CommandId{0},
                           .stream = schedule::kComputeStream,
                           .step = 0,
                           .start_ns = 100,
                           .end_ns = 154};
  EXPECT_EQ(latency_of(op, 130, Duration(4)), Duration(20));
  EXPECT_EQ(latency_of(op, 160, Duration(4)), Duration(0));
}

// Eight collectives cost the host at most 20 us each; the op before them must keep a device busy for
// longer that moves 5 bytes per ns.
TEST(CudaCalibrateTest, TheDeviceIsBehindTheHostWhenTheQueueBegins) {
  const ScheduledProgram plan = transfer_plan({.ranks = 2, .bytes = kib(4), .count = 8});
  const schedule::Op& first = plan.program.ops.front();
  const auto* work = std::get_if<schedule::MemoryWork>(&first.work);
  ASSERT_NE(work, nullptr);
  EXPECT_GT(work->bytes.count() / 5, 8 * 20'000);
}

// Two hosts, whose clocks are a day apart: 4 KiB take 5409 ns on either.
TEST(CudaCalibrateTest, CollectivesNeedNoCommonClock) {
  constexpr std::int64_t kDay = 86'400'000'000'000;
  exec::launch::run_local_ranks({.ranks = 2}, [](exec::launch::Session& session) {
    const std::int64_t ahead = session.rank().value * kDay;
    const MakeBackend make = [ahead](const ScheduledProgram& plan) {
      return std::make_unique<exec::testing::Ahead>(fake_machine()(plan), ahead);
    };
    const GpuCalibration found =
        calibrate_gpu(exec::cpu::exchange_of(session), make, workload(2), options());
    EXPECT_EQ(found.collectives.front().isolated.median, Duration(5409));
    EXPECT_EQ(found.collectives.front().back_to_back, Duration(5409));
  });
}

// Calls of a backend on a clock of their own: each op takes the host as long as this table says.
class CountedCalls final : public exec::Backend {
 public:
  CountedCalls(const ScheduledProgram& plan, std::int64_t& clock)
      : inner_(fake_machine()(plan)), plan_(plan), clock_(clock) {}
  void barrier() override { inner_->barrier(); }
  void begin_step(std::int32_t step) override { inner_->begin_step(step); }
  void run_op(const schedule::Command& command, const schedule::RunOp& action) override {
    // Backward ops are three launches, others one.
    const bool is_backward = plan_.program.op(action.op).phase == schedule::Phase::Backward;
    clock_ += is_backward ? 9'000 : 3'000;
    inner_->run_op(command, action);
  }
  void communicate(const schedule::Command& command, const schedule::Communicate& action) override {
    clock_ += 15'000;
    inner_->communicate(command, action);
  }
  void copy(const schedule::Command& command, const schedule::Copy& action) override {
    inner_->copy(command, action);
  }
  void scale(const schedule::Command& command, const schedule::Scale& action) override {
    inner_->scale(command, action);
  }
  void release(const schedule::Command& command, const schedule::Release& action) override {
    inner_->release(command, action);
  }
  void record(const schedule::Command& command, const schedule::RecordEvent& action) override {
    inner_->record(command, action);
  }
  void wait(const schedule::Command& command, const schedule::WaitEvent& action) override {
    inner_->wait(command, action);
  }
  std::vector<exec::Timing> finish() override { return inner_->finish(); }
  exec::CheckResult check_values() override { return inner_->check_values(); }

 private:
  std::unique_ptr<exec::Backend> inner_;
  const ScheduledProgram& plan_;
  std::int64_t& clock_;
};

// The workload has two ops in each phase: forward 3 us each, backward 9, optimizer 3, 5 us on average. One
// small kernel, which was measured before, would say 3.
TEST(CudaCalibrateTest, IssuingAnOpCostsTheMeanOverTheWorkloadsOwn) {
  std::int64_t clock = 0;
  CalibrateOptions counted = options();
  counted.now = [&clock] { return clock; };
  const MakeBackend make = [&clock](const ScheduledProgram& plan) {
    return std::make_unique<CountedCalls>(plan, clock);
  };
  const GpuCalibration found = calibrate_gpu(exec::alone(), make, workload(1), counted);
  EXPECT_EQ(found.host.run_op, from_us(5));
  EXPECT_EQ(found.host.collective, from_us(15));
}

TEST(CudaCalibrateTest, TimedWorkIsRefused) {
  schedule::Program program = workload(1);
  program.ops[0].work = schedule::TimedWork{.by_rank = {from_us(5)}};
  EXPECT_THROW(calibrate_gpu(exec::alone(), fake_machine(), program, options()), InputError);
}

// Ops inside the queue take half as long again; the fake streams do not slow each other down, so
// the duration itself depends on whether the plan has collectives.
TEST(CudaCalibrateTest, ContentionIsTheRatioOfTheOpsBesideTheQueue) {
  const MakeBackend slowed = [](const ScheduledProgram& plan) {
    const bool busy = plan.buckets.size() > 8;  // neither one collective nor a queue of eight
    return std::make_unique<exec::fake::FakeBackend>(exec::fake::Durations{
        .duration =
            [&plan, busy](const schedule::Command& command) {
              const Duration alone = time_of(plan, command);
              if (!busy) return alone;
              return schedule::bucket_collective(command) != nullptr ? 2 * alone : 3 * alone / 2;
            },
        .issue = {}});
  };
  CalibrateOptions small = options();
  small.contention_bytes = mib(1);  // 109.9 us; 1600 us of computing, so 19 of them
  const GpuCalibration found = calibrate_gpu(exec::alone(), slowed, workload(1), small);
  EXPECT_NEAR(found.contention.compute, 1.5, 1e-3);
  EXPECT_NEAR(found.contention.collective, 2, 1e-3);
}

TEST(CudaProbesTest, PlansAreLegalAndCarryTheThreadBlocks) {
  const ScheduledProgram transfers =
      transfer_plan({.ranks = 2, .bytes = kib(64), .count = 3, .max_ctas = 16});
  EXPECT_TRUE(schedule::verify(transfers.program, transfers).empty());
  std::int64_t collectives = 0;
  for (const schedule::Command& command : exec::role_of(transfers, Rank{0}).commands) {
    const auto* action = schedule::bucket_collective(command);
    if (action == nullptr) continue;
    ++collectives;
    EXPECT_EQ(action->max_ctas, 16);
    EXPECT_EQ(transfers.bucket(*action->bucket).size, kib(64));
  }
  EXPECT_EQ(collectives, 3);
  const ScheduledProgram beside =
      contention_plan(workload(2), {.ranks = 2, .bytes = kib(64), .count = 5});
  EXPECT_TRUE(schedule::verify(beside.program, beside).empty());
  EXPECT_EQ(beside.buckets.size(), 5u);
}

TEST(HostTimerTest, NotesWhatACallCostsTheHost) {
  exec::fake::FakeBackend inner({.duration =
                                     [](const schedule::Command&) {
                                       std::this_thread::sleep_for(std::chrono::milliseconds(2));
                                       return Duration(1);
                                     },
                                 .issue = {}});
  HostTimer timer(inner);
  const ScheduledProgram plan = chain_plan(1, 3, kib(4));
  const exec::RankResult result = run(plan, Rank{0}, timer, {.warmup = 0, .steps = 1});
  EXPECT_EQ(result.timings.size(), 3u);
  ASSERT_EQ(timer.run_op_ns.size(), 3u);
  for (const std::int64_t ns : timer.run_op_ns) EXPECT_GE(ns, 2'000'000);
  EXPECT_EQ(timer.issued_ns.size(), 3u);
}

}  // namespace
}  // namespace dovetail::calibrate

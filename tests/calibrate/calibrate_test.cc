// Calibrating any backend, on the fake one: what was put in must come out.
//
// The fake machine: an op of B bytes takes B ps (1 ns per 1000 bytes), a collective of B bytes 5 us
// + B / 10 ns, a copy 1 us + B / 100 ns. Its streams overlap without contention.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/calibrate.h"

#include "base/error.h"
#include "calibrate/host_timer.h"
#include "calibrate/lone_starts.h"
#include "calibrate/ops.h"
#include "calibrate/probes.h"
#include "exec/cpu/job.h"
#include "exec/fake/fake_backend.h"
#include "exec/launch/local_ranks.h"
#include "exec/run.h"
#include "schedule/verify/verify.h"
#include "tests/exec/ahead.h"
#include "tests/exec/support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
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

Options options() {
  Options result;
  result.steps = 3;
  result.largest = mib(4);
  return result;
}

models::Cluster calibrated(std::int64_t ranks, const Options& how,
                           const MakeBackend& machine = fake_machine()) {
  const exec::Exchange alone = exec::alone();
  return calibrate({.exchange = alone, .make_backend = machine, .options = how, .ranks = ranks},
                   workload(ranks))
      .cluster;
}

const std::vector<models::CollectivePoint>& all_reduces(const models::Cluster& cluster) {
  return std::get<std::vector<models::CollectivePoint>>(cluster.collectives.front().times);
}

TEST(FakeCalibrateTest, OpsTakeWhatTheMachineTakes) {
  const models::Cluster found = calibrated(1, options());
  ASSERT_EQ(found.kernels.size(), 1u);  // six ops alike
  EXPECT_EQ(found.kernels[0].time, from_us(400));
  EXPECT_EQ(found.kernels[0].op, "");
}

// On processors each op has caches of its own to find.
TEST(FakeCalibrateTest, OpsOnTheHostItselfAreToldApart) {
  Options inline_host = options();
  inline_host.backend = models::BackendKind::Cpu;
  const models::Cluster found = calibrated(1, inline_host);
  ASSERT_EQ(found.kernels.size(), 6u);
  EXPECT_EQ(found.kernels[2].op, workload(1).ops[2].name);
  EXPECT_EQ(found.kernels[2].time, from_us(400));
  EXPECT_EQ(found.host.kind, models::HostModel::Kind::Inline);
}

// 4 KiB: 5000 + 409 ns. From 4 KiB to 4 MiB are eleven sizes.
TEST(FakeCalibrateTest, CollectivesBySizeAloneAndInAQueue) {
  const models::Cluster found = calibrated(1, options());
  ASSERT_EQ(all_reduces(found).size(), 11u);
  for (const models::CollectivePoint& time : all_reduces(found)) {
    EXPECT_EQ(time.isolated, Duration(5000 + time.bytes.count() / 10));
    EXPECT_EQ(time.back_to_back, time.isolated);
  }
  EXPECT_EQ(all_reduces(found).front().bytes, kib(4));
  EXPECT_EQ(all_reduces(found).front().isolated, Duration(5409));
}

TEST(FakeCalibrateTest, CopiesAreALineOverBytes) {
  const models::Cluster found = calibrated(1, options());
  EXPECT_NEAR(found.copy->ns_per_byte, 0.01, 1e-6);
  EXPECT_NEAR(static_cast<double>(found.copy->fixed.count()), 1000, 2);
}

TEST(FakeCalibrateTest, AMachineWithoutContentionHasNone) {
  const models::Cluster found = calibrated(1, options());
  EXPECT_GT(found.quality->figures.at("contention_ops"), 0);
  EXPECT_GT(found.quality->figures.at("contention_collectives"), 0);
  EXPECT_DOUBLE_EQ(found.contention.compute_slowdown, 1);
  EXPECT_DOUBLE_EQ(found.contention.collective_slowdown, 1);
}

// A plan for four ranks that one rank plays, as send-to-self does.
TEST(FakeCalibrateTest, AStandInMeasuresForTheRanksOfTheWorkload) {
  const models::Cluster found = calibrated(4, options());
  EXPECT_EQ(all_reduces(found).size(), 11u);
  EXPECT_EQ(all_reduces(found).front().isolated, Duration(5409));
}

TEST(FakeCalibrateTest, TheBudgetEndsTheSizesAfterTwo) {
  Options short_of_time = options();
  short_of_time.budget = Duration(0);
  const models::Cluster found = calibrated(1, short_of_time);
  ASSERT_EQ(all_reduces(found).size(), 2u);
  EXPECT_EQ(all_reduces(found).back().bytes, kib(8));
}

TEST(FakeCalibrateTest, AReplayedGraphCostsTheHostNothingPerCommand) {
  Options graph = options();
  graph.host = HostWork::Replayed;
  EXPECT_EQ(calibrated(1, graph).host, models::HostModel{});
}

// Eight collectives cost the host at most 20 us each; the op before them must keep a device busy for
// longer that moves 5 bytes per ns.
TEST(FakeCalibrateTest, TheDeviceIsBehindTheHostWhenTheQueueBegins) {
  const ScheduledProgram plan = transfer_plan({.ranks = 2, .bytes = kib(4), .count = 8});
  const schedule::Op& first = plan.program.ops.front();
  const auto* work = std::get_if<schedule::MemoryWork>(&first.work);
  ASSERT_NE(work, nullptr);
  EXPECT_GT(work->bytes.count() / 5, 8 * 20'000);
}

// Two hosts, whose clocks are a day apart: 4 KiB take 5409 ns on either.
TEST(FakeCalibrateTest, CollectivesNeedNoCommonClock) {
  constexpr std::int64_t kDay = 86'400'000'000'000;
  exec::launch::run_local_ranks({.ranks = 2}, [](exec::launch::Session& session) {
    const std::int64_t ahead = session.rank().value * kDay;
    const MakeBackend make = [ahead](const ScheduledProgram& plan) {
      return std::make_unique<exec::testing::Ahead>(fake_machine()(plan), ahead);
    };
    const exec::Exchange exchange = exec::cpu::exchange_of(session);
    const Options how = options();
    const Calibration found = calibrate(
        {.exchange = exchange, .make_backend = make, .options = how, .ranks = 2}, workload(2));
    EXPECT_EQ(all_reduces(found.cluster).front().isolated, Duration(5409));
    EXPECT_EQ(all_reduces(found.cluster).front().back_to_back, Duration(5409));
  });
}

// The fake machine with calls that may be overridden.
class Wrapped : public exec::Backend {
 public:
  explicit Wrapped(const ScheduledProgram& plan) : inner_(fake_machine()(plan)), plan_(plan) {}
  void barrier() override { inner_->barrier(); }
  void begin_step(std::int32_t step) override { inner_->begin_step(step); }
  void run_op(const schedule::Command& command, const schedule::RunOp& action) override {
    inner_->run_op(command, action);
  }
  void communicate(const schedule::Command& command, const schedule::Communicate& action) override {
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

 protected:
  [[nodiscard]] const ScheduledProgram& plan() const { return plan_; }

 private:
  std::unique_ptr<exec::Backend> inner_;
  const ScheduledProgram& plan_;
};

// Calls on a clock of their own: each op takes the host as long as this table says.
class CountedCalls final : public Wrapped {
 public:
  CountedCalls(const ScheduledProgram& plan, std::int64_t& clock) : Wrapped(plan), clock_(clock) {}
  void run_op(const schedule::Command& command, const schedule::RunOp& action) override {
    // Backward ops are three launches, others one.
    const bool is_backward = plan().program.op(action.op).phase == schedule::Phase::Backward;
    clock_ += is_backward ? 9'000 : 3'000;
    Wrapped::run_op(command, action);
  }
  void communicate(const schedule::Command& command, const schedule::Communicate& action) override {
    clock_ += 15'000;
    Wrapped::communicate(command, action);
  }

 private:
  std::int64_t& clock_;
};

// A device whose queue holds 100 ops: a call takes 5 us, and to a full queue as much longer as it takes the device to
// end its oldest op.
class LimitedQueue final : public Wrapped {
 public:
  LimitedQueue(const ScheduledProgram& plan, std::int64_t& clock) : Wrapped(plan), clock_(clock) {}
  void run_op(const schedule::Command& command, const schedule::RunOp& action) override {
    constexpr std::size_t kRoom = 100;
    clock_ += 5'000;
    while (!ends_.empty() && ends_.front() <= clock_) ends_.pop_front();
    if (ends_.size() == kRoom) {
      clock_ = ends_.front();
      ends_.pop_front();
    }
    const std::int64_t begin = ends_.empty() ? clock_ : ends_.back();
    ends_.push_back(begin + time_of(plan(), command).count());
    Wrapped::run_op(command, action);
  }
  std::vector<exec::Timing> finish() override {
    if (!ends_.empty()) clock_ = std::max(clock_, ends_.back());
    ends_.clear();
    return Wrapped::finish();
  }

 private:
  std::int64_t& clock_;
  std::deque<std::int64_t> ends_;  // of ops in the queue
};

// 300 ops of 400 us. In a row they fill the queue within 500 us, and from then on each call waits for an op to end: the
// median call takes 400 us, which is the device's time. In bursts of 85, a kernel and two events each, with rests behind
// them, each takes the 5 us of the call.
TEST(FakeCalibrateTest, IssuingIsMeasuredWhileTheQueueHasRoom) {
  std::int64_t clock = 0;
  const MakeBackend make = [&clock](const ScheduledProgram& plan) {
    return std::make_unique<LimitedQueue>(plan, clock);
  };
  const schedule::MemoryWork work = {.bytes = Bytes(400'000'000), .flop = Flop(0)};
  const ScheduledProgram row = chain_plan(1, 300, work);
  LimitedQueue queue(row, clock);
  HostTimer timer(queue, {.now = [&clock] { return clock; }});
  exec::run(row, Rank{0}, timer, {.warmup = 0, .steps = 1});
  EXPECT_EQ(quantiles_of(timer.run_op_ns).median, from_us(400));

  Options limited = options();
  limited.now = [&clock] { return clock; };
  limited.rest = [&clock](Duration time) { clock += time.count(); };
  const exec::Exchange alone = exec::alone();
  const Lab lab = {.exchange = alone, .make_backend = make, .options = limited, .ranks = 1};
  const std::vector<models::MeasuredKernel> kernels(300, {.work = work, .time = from_us(400)});
  EXPECT_EQ(measure_issue(lab, row.program, kernels), from_us(5));
  // Were each of these calls for five kernels, one would cost a fifth.
  const schedule::KernelsWork five = {.kernels = std::vector<schedule::Kernel>(5, work)};
  const std::vector<models::MeasuredKernel> blocks(300, {.work = five, .time = from_us(400)});
  EXPECT_EQ(measure_issue(lab, row.program, blocks), from_us(1));
}

// The workload has two ops in each phase: forward 3 us each, backward 9, optimizer 3, 5 us on average. One
// small kernel, which was measured before, would say 3.
TEST(FakeCalibrateTest, IssuingAnOpCostsTheMeanOverTheWorkloadsOwn) {
  std::int64_t clock = 0;
  Options counted = options();
  counted.now = [&clock] { return clock; };
  const MakeBackend make = [&clock](const ScheduledProgram& plan) {
    return std::make_unique<CountedCalls>(plan, clock);
  };
  const models::Cluster found = calibrated(1, counted, make);
  EXPECT_EQ(found.host.run_op, from_us(5));
  EXPECT_EQ(found.host.collective, from_us(15));
}

// A step of eight all-reduces and two ops takes 8 * 15 + 2 * 3 = 126 us of this clock, a size 5 steps, two of which
// warm up: 630 us. The first is taken to last 1 ms per step, every other one twice as long as the one before: at
// least 1260 us must be left, which holds for the second and the third.
TEST(FakeCalibrateTest, SizesStopWhereTheBudgetHasNoRoomForTheNext) {
  std::int64_t clock = 0;
  Options counted = options();
  counted.now = [&clock] { return clock; };
  counted.transfer_steps = 3;
  counted.budget = from_us(3000);
  const MakeBackend make = [&clock](const ScheduledProgram& plan) {
    return std::make_unique<CountedCalls>(plan, clock);
  };
  EXPECT_EQ(all_reduces(calibrated(1, counted, make)).size(), 3u);
}

TEST(FakeCalibrateTest, TimedWorkIsRefused) {
  schedule::Program program = workload(1);
  program.ops[0].work = schedule::TimedWork{.by_rank = {from_us(5)}};
  const exec::Exchange alone = exec::alone();
  const MakeBackend machine = fake_machine();
  const Options how = options();
  EXPECT_THROW(calibrate({.exchange = alone, .make_backend = machine, .options = how}, program),
               InputError);
}

// Ops inside the queue take half as long again; the fake streams do not slow each other down, so
// the duration itself depends on whether the plan has collectives.
TEST(FakeCalibrateTest, ContentionIsTheRatioOfTheOpsBesideTheQueue) {
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
  Options small = options();
  small.contention_bytes = mib(1);  // 109.9 us; 1600 us of computing, so 19 of them
  const models::Cluster found = calibrated(1, small, slowed);
  EXPECT_NEAR(found.contention.compute_slowdown, 1.5, 1e-3);
  EXPECT_NEAR(found.contention.collective_slowdown, 2, 1e-3);
}

// Beside the queue each op takes four times as long. Expectation: the ops alone take 1600 us, so the queue is first of
// 23 collectives of 109.857 us, 2527 us, and would end while the second of four ops runs, which last until 6400. Once
// made longer by 6400 / 2527 and a fifth it is of 70, 7690 us. 100 ms are 21 times as many of them as 1600 us would
// need (4806 us); in each all four ops run beside it.
TEST(FakeCalibrateTest, TheQueueOutlastsOpsThatItSlowsDown) {
  const MakeBackend slowed = [](const ScheduledProgram& plan) {
    const bool busy = plan.buckets.size() > 8;  // neither one collective nor a queue of eight
    return std::make_unique<exec::fake::FakeBackend>(exec::fake::Durations{
        .duration =
            [&plan, busy](const schedule::Command& command) {
              const bool is_slow = busy && schedule::op_run_by(command).has_value();
              return (is_slow ? 4 : 1) * time_of(plan, command);
            },
        .issue = {}});
  };
  Options small = options();
  small.contention_bytes = mib(1);
  const models::Cluster found = calibrated(1, small, slowed);
  EXPECT_NEAR(found.contention.compute_slowdown, 4, 1e-3);
  EXPECT_DOUBLE_EQ(found.quality->figures.at("contention_ops"), 4 * 21);
}

// Beside ops a collective waits 30 us, and what is larger than 64 KiB takes twice as long besides. All ops are products, or
// none is.
LoneStarts lone_starts_beside(const schedule::Work& work, models::BackendKind backend) {
  schedule::Program program = workload(1);
  std::map<OpId, double> alone_ns;
  for (schedule::Op& op : program.ops) {
    op.work = work;
    if (op.phase != schedule::Phase::Optimizer) alone_ns[op.id] = 300e3;
  }
  const MakeBackend machine = [](const ScheduledProgram& plan) {
    const bool beside = plan.program.name.ends_with(" beside transfers");
    return std::make_unique<exec::fake::FakeBackend>(exec::fake::Durations{
        .duration =
            [&plan, beside](const schedule::Command& command) {
              const Duration alone = time_of(plan, command);
              const auto* collective = schedule::bucket_collective(command);
              if (!beside || collective == nullptr) return alone;
              const bool is_large = plan.bucket(*collective->bucket).size > kib(64);
              return from_us(30) + (is_large ? 2 : 1) * alone;
            },
        .issue = {}});
  };
  const exec::Exchange alone = exec::alone();
  Options how = options();
  how.backend = backend;
  return measure_lone_starts({.exchange = alone, .make_backend = machine, .options = how}, program,
                             alone_ns, mib(1));
}

// 3 x 5000 x 5000 numbers of 4 bytes: 300 us. The large one is of 128 KiB, 18.1 us, so that it is a small part of the step.
TEST(LoneStartsTest, TheWaitAndTheSlowDownBesideProducts) {
  const schedule::GemmWork product{.m = 5000, .n = 5000, .k = 5000};
  const LoneStarts found = lone_starts_beside(product, models::BackendKind::Cuda);
  EXPECT_EQ(found.start_delay, from_us(30));
  ASSERT_TRUE(found.beside_gemm);
  EXPECT_NEAR(*found.beside_gemm, 2, 1e-3);
  EXPECT_FALSE(found.beside_memory);
  // On processors rates are those beside a queue.
  EXPECT_FALSE(lone_starts_beside(product, models::BackendKind::Cpu).beside_gemm);
}

// Beside these no thread block has to be waited for: (30 + 2 x 18.107) / 18.107.
TEST(LoneStartsTest, BesideMemoryAllOfItIsASlowDown) {
  const schedule::MemoryWork pass{.bytes = Bytes(300'000'000), .flop = Flop(0)};
  const LoneStarts found = lone_starts_beside(pass, models::BackendKind::Cuda);
  EXPECT_EQ(found.start_delay, Duration{});
  EXPECT_FALSE(found.beside_gemm);
  ASSERT_TRUE(found.beside_memory);
  EXPECT_NEAR(*found.beside_memory, 3.657, 1e-3);
}

// 10 .. 20 product, 20 .. 40 memory. Of 30 .. 41 a tenth may have nothing beside it; 15 .. 25 has two classes, 50 .. 60 none.
TEST(LoneStartsTest, ACollectiveHasTheClassThatIsBesideAllOfIt) {
  const std::vector<ClassedOp> ops = {{10, 20, models::KernelClass::Gemm},
                                      {20, 40, models::KernelClass::Memory}};
  const auto beside = [&ops](std::int64_t from, std::int64_t to) {
    return class_beside(ops, {.start_ns = from, .end_ns = to});
  };
  EXPECT_EQ(beside(10, 15), models::KernelClass::Gemm);
  EXPECT_EQ(beside(30, 41), models::KernelClass::Memory);
  EXPECT_EQ(beside(15, 25), std::nullopt);
  EXPECT_EQ(beside(50, 60), std::nullopt);
}

TEST(ProbesTest, PlansAreLegalAndCarryTheThreadBlocks) {
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
  const ScheduledProgram plan = chain_plan(1, 3, moving(kib(4)));
  const exec::RankResult result = run(plan, Rank{0}, timer, {.warmup = 0, .steps = 1});
  EXPECT_EQ(result.timings.size(), 3u);
  ASSERT_EQ(timer.run_op_ns.size(), 3u);
  for (const std::int64_t ns : timer.run_op_ns) EXPECT_GE(ns, 2'000'000);
}

}  // namespace
}  // namespace dovetail::calibrate

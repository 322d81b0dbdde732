// Kernels of a device, from a backend that reports them to the trace on rank 0.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/device_work.h"

#include "base/json_reader.h"
#include "exec/fake/fake_backend.h"
#include "exec/measure.h"
#include "exec/measured_trace.h"
#include "tests/exec/support.h"
#include "traces/metrics.h"
#include "traces/trace_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

namespace dovetail::exec {
namespace {

using schedule::Command;
using schedule::Communicate;
using schedule::RunOp;
using schedule::ScheduledProgram;
using ::testing::ElementsAre;
using testing::two_buckets;

constexpr std::int64_t kOrigin = 5000;

CommandId run_of(const ScheduledProgram& plan, OpId op) {
  return testing::find_command(plan, [&](const Command& command) {
    const auto run = op_run_by(command);
    return run && *run == op;
  });
}
CommandId reduce_of(const ScheduledProgram& plan, BucketId bucket) {
  return testing::find_command(plan, [&](const Command& command) {
    const auto* run = bucket_collective(command);
    return run != nullptr && run->bucket == bucket;
  });
}

// The timing of one command of 1 us, at the origin, and the trace of it.
traces::Trace trace_of(const ScheduledProgram& plan, std::size_t ranks) {
  const Timing timing = {.command = run_of(plan, testing::kForward1),
                         .stream = schedule::kComputeStream,
                         .step = 0,
                         .start_ns = kOrigin,
                         .end_ns = kOrigin + 1000};
  const std::vector<std::vector<Timing>> by_rank(ranks, std::vector<Timing>{timing});
  EXPECT_EQ(origin_ns(by_rank), kOrigin);
  return measured_trace(plan, by_rank, {});
}

// What stands on a stream of this name on a rank: "NAME START..END".
std::vector<std::string> on_stream(const traces::Trace& trace, const std::string& name, Rank rank) {
  std::vector<std::string> spans;
  for (const traces::StreamInfo& stream : trace.streams) {
    if (stream.name != name) continue;
    for (const traces::Span& span : traces::spans_of(trace, rank, stream.id)) {
      spans.push_back(trace.command(span.command).name + " " +
                      std::to_string(span.start.time_since_epoch().count()) + ".." +
                      std::to_string(span.end.time_since_epoch().count()));
    }
  }
  return spans;
}

TEST(DeviceWorkTest, TravelsAsBytes) {
  const std::vector<DeviceWork> works = {
      {.command = CommandId{3}, .step = 1, .start_ns = 10, .end_ns = 25, .name = "gelu kernel"},
      {.command = CommandId{4}, .step = 1, .start_ns = 25, .end_ns = 25, .name = ""}};
  EXPECT_EQ(decode_device_work(encode(works)), works);
  EXPECT_EQ(decode_device_work(encode({})), std::vector<DeviceWork>());
}

TEST(DeviceWorkTest, KernelsStandOnAStreamBesideThatOfTheirCommand) {
  const ScheduledProgram plan = two_buckets({});
  traces::Trace trace = trace_of(plan, 1);
  const CommandId forward = run_of(plan, testing::kForward1);
  const CommandId reduce = reduce_of(plan, BucketId{0});
  add_device_work(plan,
                  std::vector<std::vector<DeviceWork>>{
                      {{.command = reduce, .start_ns = 5400, .end_ns = 5900, .name = "nccl"},
                       {.command = forward, .start_ns = 5500, .end_ns = 5600, .name = "bias"},
                       {.command = forward, .start_ns = 5100, .end_ns = 5500, .name = "gemm"}}},
                  kOrigin, trace);
  EXPECT_THAT(on_stream(trace, "compute kernels", Rank{0}),
              ElementsAre("gemm 100..500", "bias 500..600"));
  EXPECT_THAT(on_stream(trace, "comm0 kernels", Rank{0}), ElementsAre("nccl 400..900"));
  // The kernel says of which bucket it is.
  const auto nccl = std::find_if(trace.commands.begin(), trace.commands.end(),
                                 [](const auto& command) { return command.name == "nccl"; });
  ASSERT_NE(nccl, trace.commands.end());
  EXPECT_EQ(nccl->kind, traces::SpanKind::Kernel);
  EXPECT_EQ(nccl->bucket, BucketId{0});
}

TEST(DeviceWorkTest, OverlappingKernelsGoToASecondStream) {
  const ScheduledProgram plan = two_buckets({});
  traces::Trace trace = trace_of(plan, 1);
  const CommandId forward = run_of(plan, testing::kForward1);
  add_device_work(plan,
                  std::vector<std::vector<DeviceWork>>{
                      {{.command = forward, .start_ns = 5100, .end_ns = 5500, .name = "a"},
                       {.command = forward, .start_ns = 5400, .end_ns = 5600, .name = "b"},
                       {.command = forward, .start_ns = 5500, .end_ns = 5700, .name = "c"}}},
                  kOrigin, trace);
  EXPECT_THAT(on_stream(trace, "compute kernels", Rank{0}),
              ElementsAre("a 100..500", "c 500..700"));
  EXPECT_THAT(on_stream(trace, "compute kernels 2", Rank{0}), ElementsAre("b 400..600"));
}

TEST(DeviceWorkTest, AKernelOfManyStepsAndRanksIsNamedOnce) {
  const ScheduledProgram plan = two_buckets({});
  traces::Trace trace = trace_of(plan, 2);
  const std::size_t commands = trace.commands.size();
  const DeviceWork work = {.command = run_of(plan, testing::kForward1),
                           .start_ns = 5100,
                           .end_ns = 5200,
                           .name = "gemm"};
  DeviceWork later = work;
  later.start_ns += 1000;
  later.end_ns += 1000;
  add_device_work(plan, std::vector<std::vector<DeviceWork>>{{work, later}, {work}}, kOrigin,
                  trace);
  EXPECT_EQ(trace.commands.size(), commands + 1);
  EXPECT_EQ(on_stream(trace, "compute kernels", Rank{0}).size(), 2U);
  EXPECT_EQ(on_stream(trace, "compute kernels", Rank{1}).size(), 1U);
}

// The clocks of device and host differ by microseconds, so a kernel may seem to begin too early.
TEST(DeviceWorkTest, WhatBeginsBeforeTheTraceIsCutAndStillAValidTrace) {
  const ScheduledProgram plan = two_buckets({});
  traces::Trace trace = trace_of(plan, 1);
  const CommandId forward = run_of(plan, testing::kForward1);
  add_device_work(plan,
                  std::vector<std::vector<DeviceWork>>{
                      {{.command = forward, .start_ns = 4990, .end_ns = 5200, .name = "gemm"},
                       {.command = forward, .start_ns = 4000, .end_ns = 4100, .name = "early"}}},
                  kOrigin, trace);
  EXPECT_THAT(on_stream(trace, "compute kernels", Rank{0}), ElementsAre("gemm 0..200"));
  EXPECT_EQ(traces::read_trace(JsonFile("trace", traces::to_json(trace))), trace);
}

// A fake machine whose every op is one kernel that takes its whole time.
class Profiled final : public Backend {
 public:
  Profiled() : fake_({.duration = [](const Command&) { return from_us(10); }, .issue = {}}) {}
  void barrier() override { fake_.barrier(); }
  void begin_step(std::int32_t step) override { fake_.begin_step(step); }
  void run_op(const Command& command, const RunOp& action) override {
    ran_.push_back(command.id);
    fake_.run_op(command, action);
  }
  void communicate(const Command& command, const Communicate& action) override {
    fake_.communicate(command, action);
  }
  void copy(const Command& command, const schedule::Copy& action) override {
    fake_.copy(command, action);
  }
  void scale(const Command& command, const schedule::Scale& action) override {
    fake_.scale(command, action);
  }
  void release(const Command& command, const schedule::Release& action) override {
    fake_.release(command, action);
  }
  void record(const Command& command, const schedule::RecordEvent& action) override {
    fake_.record(command, action);
  }
  void wait(const Command& command, const schedule::WaitEvent& action) override {
    fake_.wait(command, action);
  }
  std::vector<Timing> finish() override {
    works_.clear();
    const std::vector<Timing> timings = fake_.finish();
    for (const Timing& timing : timings) {
      if (std::find(ran_.begin(), ran_.end(), timing.command) == ran_.end()) continue;
      works_.push_back({.command = timing.command,
                        .start_ns = timing.start_ns,
                        .end_ns = timing.end_ns,
                        .name = "kernel"});
    }
    return timings;
  }
  std::vector<DeviceWork> device_work() override { return works_; }
  CheckResult check_values() override { return {}; }

 private:
  fake::FakeBackend fake_;
  std::vector<CommandId> ran_;
  std::vector<DeviceWork> works_;
};

TEST(DeviceWorkTest, MeasuredStepsHaveKernelsAndTheSameStepTimesAsWithoutThem) {
  const ScheduledProgram plan = two_buckets({.ranks = 1});
  Profiled profiled;
  const Lane lane = {.plan = &plan, .backend = &profiled};
  const RunOptions options = {.warmup = 1, .steps = 2};
  const Measured measured = measure(alone(), std::span(&lane, 1), options, {});
  ASSERT_EQ(measured.traces.size(), 1U);
  const traces::Trace& trace = measured.traces[0];
  // Six ops per step; the step of the warm-up is left out.
  EXPECT_EQ(on_stream(trace, "compute kernels", Rank{0}).size(), 2U * 6U);
  fake::FakeBackend plain({.duration = [](const Command&) { return from_us(10); }, .issue = {}});
  const Lane other = {.plan = &plan, .backend = &plain};
  const Measured bare = measure(alone(), std::span(&other, 1), options, {});
  EXPECT_EQ(traces::step_times(trace), traces::step_times(bare.traces.at(0)));
}

}  // namespace
}  // namespace dovetail::exec

// Traces of other profilers than PyTorch's: read, or named with the way on.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "recordings/diagnose/diagnosis.h"
#include "recordings/diagnose/words.h"
#include "tests/recordings/kineto/made_events.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::diagnose {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// jax 0.10.2's format with NCCL's kernels: four steps of 21.586 ms, the last of three all-reduces exposed for 3 ms.
TEST(JaxTest, ATraceOfAGpuIsRead) {
  const JobTrace job =
      imports::load_job({testing::trace_file("reported/jax-gpu.trace.json.gz")}, {});
  ASSERT_EQ(job.ranks.size(), 1U);
  ASSERT_EQ(job.ranks[0].line.steps.size(), 4U);
  EXPECT_EQ(job.ranks[0].trace.devices.at(0).name, "NVIDIA H100 80GB HBM3");
  const Diagnosis diagnosis = diagnose(job);
  EXPECT_EQ(diagnosis.findings.front().kind, FindingKind::Exposed);
  for (const StepCauses& step : diagnosis.ranks[0].causes) {
    EXPECT_NEAR(to_us(step.exposed), 3002, 5);
    EXPECT_NEAR(to_us(step.by[static_cast<std::size_t>(Cause::Link)]), 3000, 5);
  }
  EXPECT_THAT(brief(diagnosis).left, HasSubstr("a network that takes no time"));
  EXPECT_THAT(brief(diagnosis).why_nothing, HasSubstr("dovetail import hlo"));
}

TEST(JaxTest, ATraceOfAHostAloneIsNamed) {
  const JobTrace job =
      imports::load_job({testing::trace_file("reported/jax-cpu.trace.json.gz")}, {});
  EXPECT_THAT(headline(diagnose(job)), HasSubstr("JAX's profiler recorded the host alone"));
}

// "device" is a process, its streams and modules are lines.
std::string xla_line(int device, int line, const std::string& name) {
  return R"({"ph":"M","pid":)" + std::to_string(device) + R"(,"tid":)" + std::to_string(line) +
         R"(,"name":"thread_name","args":{"name":")" + name + R"("}},)";
}
std::string xla_event(int device, int line, const std::string& name, double start, double duration,
                      int correlation) {
  return R"({"ph":"X","pid":)" + std::to_string(device) + R"(,"tid":)" + std::to_string(line) +
         R"(,"ts":)" + std::to_string(start) + R"(,"dur":)" + std::to_string(duration) +
         R"(,"name":")" + name + R"(","args":{"correlation_id":")" + std::to_string(correlation) +
         R"("}},)";
}

// Two devices in one file are two ranks. Without a line of steps the executions of the longest module are steps. The second device
// computes half a millisecond longer: the first waits for it.
TEST(JaxTest, EachDeviceIsARankAndModulesAreSteps) {
  std::string text = R"({"displayTimeUnit":"ns","traceEvents":[)";
  for (int device = 1; device <= 2; ++device) {
    text += R"({"ph":"M","pid":)" + std::to_string(device) +
            R"(,"name":"process_name","args":{"name":"/device:GPU:)" + std::to_string(device - 1) +
            R"x( (NVIDIA H100)"}},)x";
    text += xla_line(device, 13, "Stream #13(Compute)") +
            xla_line(device, 20, "Stream #20(Compute)") + xla_line(device, 100, "XLA Modules") +
            xla_line(device, 101, "XLA Ops");
  }
  text += R"({"ph":"M","pid":9,"name":"process_name","args":{"name":"/host:CPU"}},)";
  int correlation = 0;
  for (int step = 0; step < 3; ++step) {
    const double at = 1000 + step * 3540;
    for (int device = 1; device <= 2; ++device) {
      const double compute = device == 1 ? 2000 : 2500;
      text += xla_event(9, 5, "cuLaunchKernelEx", at - 20, 4, ++correlation);
      text += xla_event(device, 13, "gemm", at, compute, correlation);
      text += xla_event(device, 101, "gemm_fusion", at, compute, 0);  // says it again
      text += xla_event(9, 5, "cuLaunchKernelEx", at - 10, 4, ++correlation);
      text += xla_event(device, 20, "ncclDevKernel_AllReduce_Sum_f32", at + compute + 2,
                        3500 - compute, correlation);
      text += xla_event(device, 100, "jit_step(7)", at, 3502, 0);
    }
  }
  text.back() = ']';
  const std::string path =
      (std::filesystem::temp_directory_path() / "dovetail_two_devices.json").string();
  write_file(path, text + "}");
  const JobTrace job = imports::load_job({path}, {});
  std::filesystem::remove(path);
  ASSERT_EQ(job.ranks.size(), 2U);
  EXPECT_EQ(job.ranks[1].line.steps.size(), 3U);
  EXPECT_EQ(job.matched.size(), 3U);
  const Diagnosis diagnosis = diagnose(job);
  EXPECT_EQ(diagnosis.late.front().rank, 1);
  EXPECT_NEAR(to_us(diagnosis.ranks[0].causes[0].by[static_cast<std::size_t>(Cause::Straggler)]),
              500, 5);
}

TEST(NcclPluginTest, CollectivesAloneAreNamed) {
  const JobTrace job = testing::job_of(
      R"([{"name":"AllReduce","cat":"COLL","ph":"b","id":1,"pid":7,"tid":1,"ts":1.0,"args":{}},)"
      R"({"name":"AllReduce","cat":"COLL","ph":"e","id":1,"pid":7,"tid":1,"ts":9.0}])");
  EXPECT_THAT(headline(diagnose(job)),
              HasSubstr("NCCL's profiler plugin recorded collectives alone"));
}

// One record of 64 begins 400 us before its launch, and launches onto an idle GPU agree with the clock: it moves nothing else.
TEST(OddRecordTest, IsNoClock) {
  testing::MadeEvents events;
  double at = 1000;
  for (int step = 0; step < 4; ++step) {
    events.step(step, at - 20, 9500);
    double free = at;
    for (int k = 0; k < 8; ++k) {
      events.kernel("gemm", 7, free, 1000, events.launch(1, at - 10 + k));
      free += 1001;
    }
    const double early = step == 1 ? 400 : 0;
    events.kernel("ncclDevKernel_AllReduce", 20, at + 3000 - early, 2000 + early,
                  events.launch(1, at + 2990));
    at += 9500;
  }
  const JobTrace job = testing::job_of(events.text());
  EXPECT_FALSE(job.ranks[0].line.clock.is_off());
  EXPECT_THAT(diagnose(job).notes,
              Contains(HasSubstr("1 piece of GPU work begins before its launch")));
  const TracedCollective& odd = job.ranks[0].line.collectives[1];
  const GpuWork& work = job.ranks[0].line.works[static_cast<std::size_t>(odd.work)];
  EXPECT_NEAR(to_us(work.end - work.start), 2000, 15);
}

}  // namespace
}  // namespace dovetail::diagnose

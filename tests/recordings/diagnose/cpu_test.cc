// Ranks without a GPU, and where the time of a host goes.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "recordings/diagnose/diagnosis.h"
#include "recordings/diagnose/host_time.h"
#include "recordings/diagnose/words.h"
#include "tests/recordings/kineto/ddp_step.h"
#include "tests/recordings/kineto/gloo_step.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::diagnose {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using testing::GlooStep;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::period_us;
using ::testing::StartsWith;

JobTrace job_of(const GlooStep& step) { return testing::job_of(testing::trace_of(step)); }

// Forward 4 x 2 ms, backward 4 x 3.065 ms: the last bucket is launched at its end, and all 4 ms of it are waited for.
TEST(CpuRankTest, ThreadsAreStreamsAndTheWaitIsExposed) {
  const JobTrace job = job_of({});
  const RankTimeline& line = job.ranks[0].line;
  ASSERT_TRUE(line.on_cpu);
  EXPECT_EQ(line.collectives.size(), 6U);
  EXPECT_EQ(line.collectives[0].bytes, mib(2));
  const Diagnosis diagnosis = diagnose(job);
  const RankDiagnosis& rank = diagnosis.ranks[0];
  EXPECT_LT(std::abs(rank.replay.error.step), 0.001);
  for (std::size_t s = 0; s < rank.recorded.size(); ++s) {
    const StepFigures& figures = rank.recorded[s].figures;
    EXPECT_NEAR(to_us(figures.comm), 8000, 1);
    EXPECT_NEAR(to_us(figures.exposed), 4000, 50);
    EXPECT_NEAR(to_us(figures.comp), 4 * 5065 + 380, 60);
    EXPECT_EQ(rank.causes[s].by[static_cast<std::size_t>(Cause::Host)], Duration{});
    EXPECT_EQ(rank.causes[s].gpu_waits_for_host, Duration{});
  }
  EXPECT_NEAR(to_us(rank.recorded[0].step), period_us(GlooStep()), 1);
  EXPECT_THAT(headline(diagnosis), HasSubstr("is exposed communication"));
}

// f32 that a hook sends as bf16: a list is of f32 bytes, 33,024 elements a bucket, and so is the table of all-reduces.
TEST(CpuRankTest, AHooksListIsInTheBytesThatDdpCounts) {
  const JobTrace job = testing::gloo_job("ddp_hook", 2);
  const Diagnosis diagnosis = diagnose(job);
  const auto& forecast = diagnosis.ranks[0].forecast;
  ASSERT_TRUE(forecast.workload.has_value()) << forecast.why_none;
  const models::Profile& profile = forecast.workload->profile;
  for (const models::ProfiledGradient& gradient : profile.gradients)
    EXPECT_EQ(gradient.dtype, schedule::DType::F32);
  ASSERT_TRUE(profile.collectives.has_value());
  EXPECT_EQ(profile.collectives->points.front().bytes, Bytes(33'024 * 4));
  ASSERT_TRUE(diagnosis.buckets.has_value());
  EXPECT_EQ(diagnosis.copies->sent_element, Bytes(2));
  std::string said;
  for (const std::string& line : sentences(diagnosis)) said += line + "\n";
  EXPECT_THAT(said, HasSubstr("sends gradients of 4 bytes an element as 2"));
}

// The first line says why there is no forecast: no gradient's all-reduce has a size.
TEST(CpuRankTest, WhyThereIsNoForecastIsSaidFirst) {
  std::string text = testing::trace_of(GlooStep());
  for (const std::string key : {"Input Dims", "In msg nelems", "Out msg nelems"}) {
    for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key))
      text[at] = 'X';
  }
  const Diagnosis diagnosis = diagnose(testing::job_of(text));
  EXPECT_FALSE(diagnosis.buckets.has_value());
  EXPECT_THAT(brief(diagnosis).why_nothing,
              StartsWith("the sizes of its all-reduces are not in the recording"));
}

// With a network that takes no time the step is the one whose all-reduces take none, and buckets are judged as on a GPU.
TEST(CpuRankTest, ChangesGiveWhatTheChangedStepTakes) {
  const GlooStep now;
  GlooStep free = now;
  free.comm_us = {1, 1};
  const Diagnosis diagnosis = diagnose(job_of(now));
  ASSERT_EQ(diagnosis.ranks[0].forecast.what_ifs.front().change, Change::NoNetwork);
  EXPECT_NEAR(to_us(diagnosis.ranks[0].forecast.what_ifs.front().gain.middle),
              period_us(now) - period_us(free), 60);
  ASSERT_TRUE(diagnosis.buckets.has_value());
  for (const BucketSetting& setting : diagnosis.buckets->settings) {
    GlooStep other = now;
    other.buckets.clear();
    other.comm_us.clear();
    std::size_t next = 0;
    for (const std::size_t end : setting.ends) {
      other.buckets.emplace_back();
      for (; next < end; ++next) other.buckets.back().push_back(now.layers - 1 - next);
      other.comm_us.push_back(2000.0 * static_cast<double>(other.buckets.back().size()));
    }
    const double gain = period_us(now) - period_us(other);
    EXPECT_LE(to_us(setting.gain.low), gain + 1) << setting.setting;
    EXPECT_GE(to_us(setting.gain.high), gain - 1) << setting.setting;
  }
}

// Nothing of a GPU is said; a host that takes no time is no change of such a rank.
TEST(CpuRankTest, ACpuRankHasNoHostBesideIt) {
  const Diagnosis found = diagnose(job_of({}));
  for (const WhatIf& what_if : found.ranks[0].forecast.what_ifs) {
    EXPECT_NE(what_if.change, Change::NoHost);
    EXPECT_NE(what_if.change, Change::FusedOptimizer);
  }
}

// Collectives and hardly an operator: nobody can tell what they overlap with, and it is said.
TEST(CpuRankTest, CollectivesWithoutOperatorsAreNoStep) {
  GlooStep step;
  std::string text = testing::trace_of(step);
  for (std::size_t at = text.find("cpu_op"); at != std::string::npos;
       at = text.find("cpu_op", at)) {
    text.replace(at, 6, "other_");
  }
  const Diagnosis diagnosis = diagnose(testing::job_of(text));
  EXPECT_THAT(headline(diagnosis),
              AllOf(HasSubstr("collectives of threads (Gloo)"), HasSubstr("ProfilerActivity.CPU")));
}

// A host that launches work of a device does not compute, though the file has none of that work that can be read, and
// though it meets the other ranks in barriers of Gloo.
TEST(CpuRankTest, ARankWhoseDeviceCannotBeReadIsNone) {
  struct Sign {
    std::string event, headline;
  };
  const std::string end = R"("ts":1500,"dur":9,"pid":9,"tid":77,"args":{"correlation":3}},)";
  for (const Sign& sign :
       {Sign{R"({"ph":"X","cat":"mtia_ccp_events","name":"k",)",
             "no GPU work that can be read: the 1 events of category mtia_ccp_events"},
        Sign{R"({"ph":"X","cat":"mtia_runtime","name":"runOpAsync",)",
             "no GPU work that can be read: the 1 events of category mtia_runtime"},
        Sign{R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel",)",
             "no GPU work in the trace, though 1 kernels were launched"},
        Sign{R"({"ph":"X","cat":"user_annotation","name":"hccl:all_gather",)",
             "no GPU work in the trace, though the host called 1 collectives of hccl"},
        Sign{R"({"ph":"f","cat":"ac2g","id":3,"name":"ac2g",)",
             "no GPU work that can be read, though 1 flows (ac2g)"}}) {
    GlooStep step;
    step.barrier_us = 500;
    std::string text = testing::trace_of(step);
    const std::string place = R"("traceEvents":[)";
    text.insert(text.find(place) + place.size(), sign.event + end);
    const JobTrace job = testing::job_of(text);
    EXPECT_FALSE(job.ranks[0].line.on_cpu);
    const Diagnosis diagnosis = diagnose(job);
    EXPECT_EQ(diagnosis.findings.front().kind, FindingKind::NoGpuWork);
    EXPECT_THAT(headline(diagnosis), StartsWith(sign.headline));
  }
}

// A barrier has no size that could be recorded, and all its time is waiting for a later rank.
TEST(CpuRankTest, ABarrierIsWaiting) {
  GlooStep step;
  step.barrier_us = 3000;
  const JobTrace job = job_of(step);
  const RankTrace& rank = job.ranks[0];
  ASSERT_EQ(rank.line.collectives.size(), 9U);
  EXPECT_EQ(to_string(rank.line.collectives[2].kind), "barrier");
  EXPECT_EQ(rank.transfer[2], Duration{});
  const Diagnosis diagnosis = diagnose(job);
  EXPECT_THAT(diagnosis.unknowns, Each(Not(HasSubstr("record_shapes"))));
  const StepCauses& causes = diagnosis.ranks[0].causes[0];
  EXPECT_NEAR(to_us(causes.by[static_cast<std::size_t>(Cause::Straggler)]), 3000, 20);
}

// An operator of c10d is the caller of a collective of its own kind. Taken in order alone a lone c10d::broadcast_ became that
// of the first all-reduce, which then seemed to be late by the whole forward pass.
TEST(CpuRankTest, ACallerIsOfItsCollectivesKind) {
  GlooStep step;
  step.calls_others = true;
  step.barrier_us = 500;
  const JobTrace job = job_of(step);
  const RankTrace& rank = job.ranks[0];
  for (const imports::TracedCollective& collective : rank.line.collectives) {
    ASSERT_NE(collective.call, kNone);
    const bool is_barrier = collective.kind == imports::CollectiveKind::Barrier;
    EXPECT_EQ(rank.trace.name_of(rank.trace.events[static_cast<std::size_t>(collective.call)]),
              is_barrier ? "c10d::barrier" : "c10d::allreduce_");
  }
  EXPECT_LT(diagnose(job).ranks[0].replay.recorded.unexplained, std::chrono::microseconds(100));
}

// Sizes that a trace with shapes lacks are not got by recording shapes.
TEST(CpuRankTest, ShapesThatWereRecordedAreNotAskedFor) {
  std::string text = testing::trace_of(GlooStep());
  for (std::size_t at = text.find("Input Dims"); at != std::string::npos;
       at = text.find("Input Dims", at)) {
    text.replace(at, 10, "Lost  Dims");
  }
  EXPECT_THAT(diagnose(testing::job_of(text)).unknowns,
              Contains(HasSubstr("record with record_shapes=True")));
  text.insert(1, R"("record_shapes":1,)");
  EXPECT_THAT(diagnose(testing::job_of(text)).unknowns,
              AllOf(Each(Not(HasSubstr("record_shapes"))),
                    Contains(HasSubstr("the size of 6 of 6 collectives"))));
}

// --- where the host's time goes -----------------------------------------------------------------------

// Parts add up to the step, and each part to what it is spent in.
TEST(HostTimeTest, PartsAddUpToTheStep) {
  for (const JobTrace& job :
       {testing::resnet50(), job_of({}), testing::job_of(testing::trace_of(testing::DdpStep()))}) {
    const HostTime host = host_time(job.ranks[0]);
    Duration sum{};
    for (const HostPartTime& part : host.parts) {
      EXPECT_NEAR(to_us(part.in_calls + part.in_operators + part.python), to_us(part.time), 0.01);
      sum += part.time;
    }
    EXPECT_NEAR(to_us(sum), to_us(host.step), 0.01);
  }
}

// Of the CPU step: the optimizer's annotation 320 us, backward 4 x 3.065 ms less the pauses that end it, forward the 8 ms before.
TEST(HostTimeTest, PartsAreThoseOfTheStep) {
  const HostTime host = host_time(job_of({}).ranks[0]);
  EXPECT_NEAR(to_us(host.part(HostPart::Optimizer).time), 320, 1);
  EXPECT_NEAR(to_us(host.part(HostPart::Backward).time), 4 * 3065, 20);
  EXPECT_NEAR(to_us(host.part(HostPart::Forward).time), 8010, 20);
  EXPECT_NEAR(to_us(host.part(HostPart::Waiting).time), 4000, 50);
  ASSERT_FALSE(host.operators.empty());
  EXPECT_EQ(host.operators.front().name, "aten::mm");
  EXPECT_NEAR(to_us(host.operators.front().time), 4 * 2992, 1);
}

// ResNet-50's host: no synchronise, 9 launches of the optimizer, most time in forward, little of it Python.
TEST(HostTimeTest, AHostBoundStepSaysWhere) {
  const Diagnosis diagnosis = diagnose(testing::resnet50());
  const HostTime& host = diagnosis.ranks[0].host;
  EXPECT_NEAR(to_us(host.step) / 1e3, 222.4, 0.1);
  EXPECT_NEAR(to_us(host.part(HostPart::Forward).time) / 1e3, 104.6, 0.1);
  EXPECT_NEAR(to_us(host.part(HostPart::Backward).time) / 1e3, 84.8, 0.1);
  EXPECT_EQ(host.part(HostPart::Optimizer).launches, 9);
  EXPECT_THAT(host_lines(diagnosis.ranks[0], {}).front(),
              StartsWith("the host's 222.4 ms a step: forward and before backward 104.6 ms"));
  EXPECT_THAT(host_lines(diagnosis.ranks[0], {})[1], HasSubstr("an estimate"));
  EXPECT_THAT(headline(diagnosis), Not(HasSubstr("Python")));
}

}  // namespace
}  // namespace dovetail::diagnose

// What a step really waits for: on streams of a GPU, and in the thread of a step that computes on a CPU.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "recordings/diagnose/diagnosis.h"
#include "recordings/diagnose/words.h"
#include "recordings/timeline/side_work.h"
#include "tests/recordings/kineto/made_events.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::diagnose {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using testing::MadeEvents;
using ::testing::Not;

// Two steps of 10 ms. Compute on stream 7: 0.1 to 4, then it stands still for an all-reduce of 3 ms (4 to 7), then 7.005 to 9.
// On stream 33 something else runs from 2 to `side_end`. What lies behind it differs.
enum class Side { Nobodys, AwaitedByCompute, AwaitedByHost };
std::string with_side_work(Side side, const std::string& name, bool is_copy, double side_end) {
  MadeEvents events;
  for (int n = 0; n < 2; ++n) {
    const double at = 1000 + n * 10'000;
    events.step(n + 3, at, 10'000);
    events.kernel("gemm", 7, at + 100, 3900, events.launch(1, at + 10));
    const int aside = events.launch(2, at + 20, "cudaMemcpyAsync");
    if (is_copy) {
      events.copy(name, 33, at + 2000, side_end - 2000, aside);
    } else {
      events.kernel(name, 33, at + 2000, side_end - 2000, aside);
    }
    events.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 20, at + 4000, 3000,
                  events.launch(1, at + 30));
    double next = at + 7005;
    if (side == Side::AwaitedByCompute) next = at + side_end + 5;
    if (side == Side::AwaitedByHost) {
      events.synchronize(1, at + 50, at + side_end + 2);
      next = at + side_end + 15;
      events.kernel("gemm", 7, next, 1995, events.launch(1, at + side_end + 5));
    } else {
      events.kernel("gemm", 7, next, 1995, events.launch(1, at + 40));
    }
    events.synchronize(1, at + side_end + 60, next + 2000);
  }
  return events.text();
}

Duration exposed_in_first_step(const std::string& trace) {
  const JobTrace job = testing::job_of(trace);
  return diagnose(job).ranks[0].causes[0].exposed;
}

// The all-reduce of 3 ms stands exposed whatever is copied to the host or augmented beside it.
TEST(WaitsTest, WhatNobodyWaitsForHidesNothing) {
  for (const bool is_copy : {true, false}) {
    const std::string name = is_copy ? "Memcpy DtoH (Device -> Pinned)" : "dali::Warp<float>";
    const std::string trace = with_side_work(Side::Nobodys, name, is_copy, 6500);
    EXPECT_EQ(exposed_in_first_step(trace), std::chrono::microseconds(3000)) << name;
    const JobTrace job = testing::job_of(trace);
    EXPECT_THAT(diagnose(job).notes, Contains(HasSubstr("it hides no communication"))) << name;
  }
}

// Compute goes on when the other stream has ended, at 7.5 ms: until then it would have waited anyway.
TEST(WaitsTest, WhatComputeOrItsHostWaitsForHides) {
  for (const Side side : {Side::AwaitedByCompute, Side::AwaitedByHost}) {
    const std::string trace = with_side_work(side, "Memcpy HtoD (Pinned -> Device)", true, 7500);
    EXPECT_EQ(exposed_in_first_step(trace), Duration{}) << static_cast<int>(side);
  }
}

// A loader's kernels that take longer than the step: the stream of backward is the one that computes.
TEST(WaitsTest, TheStreamOfBackwardComputes) {
  MadeEvents events;
  events.step(1, 0, 10'000);
  events.op("autograd::engine::evaluate_function: MmBackward0", 50, 100);
  events.kernel("gemm", 7, 200, 2000, events.launch(1, 60));
  events.kernel("dali::Warp<float>", 33, 200, 9000, events.launch(2, 70));
  events.kernel("ncclDevKernel_AllReduce", 20, 2200, 3000, events.launch(1, 160));
  events.kernel("update", 7, 5205, 500, events.launch(1, 170));
  const JobTrace job = testing::job_of(events.text());
  const imports::RankTimeline& line = job.ranks[0].line;
  EXPECT_EQ(line.streams[static_cast<std::size_t>(line.compute_stream)].id, 7);
  EXPECT_EQ(figures_of(line, line.steps[0]).exposed, std::chrono::microseconds(3000));
}

// Copies that record_param_comms launches itself are one all-gather; those of aten::copy_ around a kernel are none.
TEST(WaitsTest, CopyEnginesCommunicateWithinTheOperatorOfACollective) {
  MadeEvents events;
  events.step(1, 0, 10'000);
  events.kernel("gemm", 7, 100, 1000, events.launch(1, 10));
  events.op("record_param_comms", 20, 40,
            R"("Collective name":"_allgather_base","dtype":"Float","In msg nelems":1024,)"
            R"("Out msg nelems":4096,"Group size":4)");
  for (const double start : {1100.0, 1600.0, 2100.0}) {
    events.copy("Memcpy DtoD (Device -> Device)", 20, start, 500,
                events.launch(1, 22 + start / 1000, "cudaMemcpyAsync"));
  }
  events.op("record_param_comms", 80, 40, R"("Collective name":"allreduce","Group size":4)");
  events.op("aten::copy_", 82, 10);
  events.copy("Memcpy DtoD (Device -> Device)", 7, 2605, 100,
              events.launch(1, 84, "cudaMemcpyAsync"));
  events.kernel("ncclDevKernel_AllReduce", 20, 2705, 300, events.launch(1, 95));
  events.kernel("gemm", 7, 3010, 1000, events.launch(1, 130));
  const JobTrace job = testing::job_of(events.text());
  const imports::RankTimeline& line = job.ranks[0].line;
  ASSERT_EQ(line.collectives.size(), 2U);
  EXPECT_EQ(line.collectives[0].kind, CollectiveKind::AllGather);
  EXPECT_EQ(line.collectives[0].bytes, Bytes(16384));
  const GpuWork& gather = line.works[static_cast<std::size_t>(line.collectives[0].work)];
  EXPECT_EQ(gather.end - gather.start, std::chrono::microseconds(1500));
  EXPECT_EQ(line.collectives[1].kind, CollectiveKind::AllReduce);
}

// --- on a CPU ------------------------------------------------------------------------------------------

// Computes for 5 ms, waits in wait_tensor for an all-reduce that ends at 9 ms, computes again: 4 ms are exposed.
TEST(WaitsTest, AnOperatorThatWaitsIsAWait) {
  for (const std::string name : {"_c10d_functional::wait_tensor", "c10d_functional::wait_tensor"}) {
    MadeEvents events;
    events.backend = "gloo";
    for (int n = 0; n < 2; ++n) {
      const double at = n * 12'000;
      events.step(n + 1, at, 12'000);
      events.op("aten::mm", at + 10, 990);
      events.op("_c10d_functional::all_reduce", at + 1000, 30);
      events.op("c10d::allreduce_", at + 1005, 20);
      events.event("user_annotation", "gloo:all_reduce", 5, at + 1040, 7960);
      events.op("aten::mm", at + 1040, 3960);
      events.op(name, at + 5000, 4005);
      events.op("aten::mm", at + 9010, 2900);
    }
    const JobTrace job = testing::job_of(events.text());
    const Diagnosis diagnosis = diagnose(job);
    for (const StepCauses& step : diagnosis.ranks[0].causes) {
      EXPECT_NEAR(to_us(step.exposed), 4000, 12) << name;
      EXPECT_LT(step.by[static_cast<std::size_t>(Cause::Host)], std::chrono::microseconds(20));
    }
  }
}

// FSDP2 on Gloo: within an operator of autograd its hook gathers and waits without one of its own, while Gloo's thread copies. Of
// 12 ms the gather takes 4 (2 to 6) and the reduction, an all-reduce of Gloo's that a reduce-scatter called, 3 (8 to 11). All stand exposed,
// and none of it is the host's.
TEST(WaitsTest, WhatAHookOfFsdpWaitsForIsTheNetworks) {
  MadeEvents events;
  events.backend = "gloo";
  for (int n = 0; n < 2; ++n) {
    const double at = n * 12'000;
    events.step(n + 1, at, 12'000);
    events.op("aten::mm", at + 10, 1900);
    events.op("autograd::engine::evaluate_function: AddmmBackward0", at + 1950, 5900);
    events.event("user_annotation", "FSDP::all_gather (1)", 1, at + 1960, 4050);
    events.op("c10d::_allgather_base_", at + 1980, 20);
    events.event("user_annotation", "gloo:all_gather", 5, at + 2000, 4000);
    events.op("aten::copy_", at + 2100, 3800, "", 5);  // of the gather
    events.op("aten::mm", at + 6015, 1800);
    events.op("RegisterPostBackwardFunctionBackward", at + 7900, 3120);
    events.event("user_annotation", "FSDP::post_backward_reduce (1)", 1, at + 7910, 3100);
    events.op("c10d::_reduce_scatter_base_", at + 7980, 20);
    events.event("user_annotation", "gloo:all_reduce", 5, at + 8000, 3000);
    events.op("aten::mm", at + 11'020, 900);
  }
  const JobTrace job = testing::job_of(events.text());
  const imports::TracedCollective& reduction = job.ranks[0].line.collectives[1];
  ASSERT_NE(reduction.call, kNone);
  EXPECT_EQ(job.ranks[0].trace.name_of(
                job.ranks[0].trace.events[static_cast<std::size_t>(reduction.call)]),
            "c10d::_reduce_scatter_base_");
  const Diagnosis diagnosis = diagnose(job);
  for (const StepCauses& step : diagnosis.ranks[0].causes) {
    EXPECT_NEAR(to_us(step.exposed), 7000, 60);
    EXPECT_LT(step.by[static_cast<std::size_t>(Cause::Host)], std::chrono::microseconds(50));
  }
}

// Recorded: what a CPU's rank of FSDP2 and HSDP waits for is its collectives. It was called the host's, for half and three quarters
// of the exposed time.
TEST(WaitsTest, ShardedRanksOnACpuWaitForTheirCollectives) {
  for (const auto& [way, ranks] :
       std::vector<std::pair<std::string, std::size_t>>{{"fsdp2", 2}, {"hsdp", 4}}) {
    Duration exposed{};
    Duration host{};
    const Diagnosis diagnosis = diagnose(testing::gloo_job(way, ranks));
    for (const RankDiagnosis& rank : diagnosis.ranks) {
      for (const StepCauses& step : rank.causes) {
        exposed += step.exposed;
        host += step.by[static_cast<std::size_t>(Cause::Host)];
      }
    }
    EXPECT_LT(host * 20, exposed) << way;
  }
}

// The second stage of a pipeline waits for a receive, which Gloo tells of in the thread that called it: between operators, or in
// c10d::recv_ itself.
TEST(WaitsTest, AReceiveOfTheStepsOwnThreadIsAWait) {
  for (const bool in_operator : {false, true}) {
    MadeEvents events;
    events.backend = "gloo";
    events.rank = 1;
    events.world = 2;
    for (int n = 0; n < 2; ++n) {
      const double at = n * 12'000;
      events.step(n + 1, at, 12'000);
      events.op("aten::slice", at + 10, 20);
      events.op("c10d::recv_", at + 40, in_operator ? 5900 : 20);
      events.event("user_annotation", "gloo:recv", 1, at + (in_operator ? 5930 : 55),
                   in_operator ? 70 : 5945);
      events.op("aten::mm", at + 6010, 2900);
      events.op("c10d::send", at + 8920, 20);
      events.event("user_annotation", "gloo:send", 1, at + 8935, 1000);  // hidden
      events.op("aten::mm", at + 8945, 2900);
    }
    const Diagnosis diagnosis = diagnose(testing::job_of(events.text()));
    for (const StepCauses& step : diagnosis.ranks[0].causes) {
      EXPECT_NEAR(to_us(step.exposed), 5960, 30) << in_operator;
      EXPECT_LT(step.by[static_cast<std::size_t>(Cause::Host)], std::chrono::microseconds(20));
    }
  }
}

// --- FSDP2 in its own words ----------------------------------------------------------------------------

std::string all_that_is_said(const Diagnosis& diagnosis) {
  const Brief told = brief(diagnosis);
  std::string text = told.set + "\n" + told.why_nothing + "\n" + told.gives + "\n" + told.left +
                     "\n" + headline(diagnosis) + "\n";
  for (const std::string& line : sentences(diagnosis)) text += line + "\n";
  for (const std::string& line : diagnosis.unknowns) text += line + "\n";
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    for (const StepCauses& step : rank.causes) {
      for (const ExposedCollective& one : step.collectives) text += of_which(rank, one) + "\n";
    }
  }
  return text;
}

TEST(FsdpWordsTest, FsdpIsToldInNoWordsOfDdp) {
  for (const std::string id : {"torch", "fsdp", "megatron"}) {
    for (const JobTrace& job : {testing::h100_job("fsdp2"), testing::gloo_job("fsdp2", 2),
                                testing::gloo_job("hsdp", 4)}) {
      const Diagnosis diagnosis = diagnose(job, frameworks::framework(id));
      EXPECT_FALSE(diagnosis.buckets);
      EXPECT_FALSE(diagnosis.ranks[0].forecast.workload.has_value());
      const std::string said = all_that_is_said(diagnosis);
      for (const char* const of_ddp :
           {"bucket_cap_mb", "bucket closed", ", bucket ", "no_sync()"}) {
        EXPECT_THAT(said, Not(HasSubstr(of_ddp))) << id;
      }
      EXPECT_THAT(said, HasSubstr("FSDP2: "));
      if (id == "megatron") {
        EXPECT_TRUE(brief(diagnosis).set.empty());
        EXPECT_THAT(brief(diagnosis).why_nothing, HasSubstr("the trace is a step of FSDP"));
      }
    }
  }
}

TEST(FsdpWordsTest, DdpIsToldInNoWordsOfFsdp) {
  for (const JobTrace& job : {testing::h100_job("ddp"), testing::resnet50()}) {
    const std::string said = all_that_is_said(diagnose(job));
    for (const char* const of_fsdp :
         {"fully_shard", "reshard_after_forward", "FSDP", "group closed"}) {
      EXPECT_THAT(said, Not(HasSubstr(of_fsdp)));
    }
  }
}

// Two ranks over sockets gather each of six blocks twice, and backward waits for that: 4.7 ms a gather of which most stands exposed.
TEST(FsdpWordsTest, KeepingParametersIsPricedByTheReplay) {
  const Diagnosis diagnosis = diagnose(testing::h100_job("fsdp2"));
  const auto advice = sharding_advice(diagnosis);
  ASSERT_TRUE(advice.has_value());
  EXPECT_EQ(advice->change, Change::KeepParameters);
  EXPECT_TRUE(advice->is_told());
  EXPECT_EQ(brief(diagnosis).set, "fully_shard(block, reshard_after_forward=False)");
  EXPECT_THAT(brief(diagnosis).gives, HasSubstr("a rank keeps 36.1 MiB more of parameters"));
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    Duration gathered{};  // a step, in backward
    for (std::size_t c = 0; c < rank.sharding->gathers_in_backward.size(); ++c) {
      if (rank.sharding->gathers_in_backward[c] == 0) continue;
      const StepCauses& step = rank.causes[1];
      for (const ExposedCollective& one : step.collectives) {
        if (one.collective == static_cast<std::int32_t>(c)) gathered += one.exposed;
      }
    }
    const Gain gain = rank.what_if(Change::KeepParameters)->gain;
    EXPECT_LE(gain.middle, gathered * 11 / 10);
    EXPECT_GE(gain.middle, gathered / 3);
  }
  // With a free network two ranks of FSDP2 still have their host, over 40 ms a step.
  EXPECT_THAT(brief(diagnosis).left, HasSubstr("a step set the pace"));
}

// Without annotations (FSDP1) nobody knows the groups.
TEST(FsdpWordsTest, Fsdp1HasNoGroupsToTell) {
  MadeEvents events;
  for (int n = 0; n < 2; ++n) {
    const double at = 1000 + n * 10'000;
    events.step(n + 3, at, 10'000);
    events.event("user_annotation", "FullyShardedDataParallel.forward", 1, at + 5, 4000);
    events.kernel("gemm", 7, at + 100, 3900, events.launch(1, at + 10));
    events.kernel("ncclDevKernel_AllGather_RING_LL", 20, at + 4000, 3000,
                  events.launch(1, at + 30));
    events.kernel("gemm", 7, at + 7005, 1995, events.launch(1, at + 40));
  }
  const Diagnosis diagnosis = diagnose(testing::job_of(events.text()));
  EXPECT_THAT(brief(diagnosis).why_nothing, HasSubstr("this trace does not tell them"));
  EXPECT_THAT(all_that_is_said(diagnosis), Not(HasSubstr("bucket_cap_mb")));
}

}  // namespace
}  // namespace dovetail::diagnose

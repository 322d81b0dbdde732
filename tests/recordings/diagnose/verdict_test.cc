// A verdict agrees with its table, and no time is below zero: on all traces, wherever the GPU's clock is and however late
// the host wakes up. Made traces and their times by hand: tests/recordings/kineto/made_trace.h.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "models/workloads/profile.h"
#include "recordings/diagnose/diagnosis.h"
#include "recordings/diagnose/what_if.h"
#include "recordings/diagnose/words.h"
#include "tests/recordings/kineto/made_trace.h"
#include "tests/recordings/kineto/traces.h"
#include "tests/support/cases.h"

namespace dovetail::diagnose {
namespace {

using ::testing::HasSubstr;
using testing::MadeTrace;
using ::testing::StartsWith;

JobTrace job_made(const MadeTrace& made) { return testing::job_of(testing::text(made)); }

// The same trace from a GPU whose clock is `us` ahead.
JobTrace shifted(const std::string& file, std::int64_t us) {
  Recording trace = imports::read_kineto(testing::trace_file(file), {});
  for (RecordedEvent& event : trace.events) {
    const bool is_gpu = event.kind == EventKind::Kernel || event.kind == EventKind::Memcpy ||
                        event.kind == EventKind::Memset;
    if (is_gpu) event.start_ns += us * 1000;
  }
  std::ranges::stable_sort(trace.events, {}, [](const RecordedEvent& event) {
    return std::tuple(event.start_ns, -event.duration_ns);
  });
  std::vector<Recording> traces;
  traces.push_back(std::move(trace));
  return imports::make_job(std::move(traces), {});
}

Duration usual(const RankDiagnosis& rank, Duration (*value)(const StepCauses&)) {
  std::vector<Duration> values;
  for (const StepCauses& step : rank.causes) values.push_back(value(step));
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void expect_nothing_negative(const Diagnosis& diagnosis, const std::string& name) {
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    for (std::size_t s = 0; s < rank.recorded.size(); ++s) {
      const StepFigures& figures = rank.recorded[s].figures;
      for (const Duration time :
           {rank.recorded[s].step, figures.cpu_step, figures.span, figures.comp, figures.comm,
            figures.overlap, figures.exposed, figures.idle, rank.causes[s].exposed,
            rank.causes[s].gpu_waits_for_host}) {
        EXPECT_GE(time, Duration{}) << name;
      }
      for (const Duration time : rank.causes[s].by) EXPECT_GE(time, Duration{}) << name;
    }
  }
  for (const Finding& finding : diagnosis.findings) {
    EXPECT_GE(finding.amount, Duration{}) << name;
    EXPECT_GE(finding.whole, Duration{}) << name;
    EXPECT_GE(finding.without_network, Duration{}) << name;
  }
}

Duration waiting_for_others(const StepCauses& step) {
  return step.by[static_cast<std::size_t>(Cause::Straggler)] +
         step.by[static_cast<std::size_t>(Cause::Bubble)];
}

// What is exposed for another reason than the host's and late ranks' is what a free network gives, but for what the
// GPU would then wait for the host, whose own time the step cannot beat: 3 % of the step may be due to the replay. No other host
// gives more than the GPU waits for the host.
void expect_verdict_is_its_tables(const Diagnosis& diagnosis, const std::string& name) {
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    if (!rank.replay.error.is_trustworthy()) continue;
    for (const WhatIf& what_if : rank.forecast.what_ifs) {
      if (what_if.change == Change::NoHost) {
        EXPECT_LE(what_if.gain.middle,
                  usual(rank,
                        [](const StepCauses& step) {
                          return step.gpu_waits_for_host +
                                 step.by[static_cast<std::size_t>(Cause::Host)];
                        }))
            << name;
      }
      if (what_if.change != Change::NoNetwork) continue;
      const Duration of_network = usual(rank, [](const StepCauses& step) {
        return step.exposed - step.by[static_cast<std::size_t>(Cause::Host)] -
               waiting_for_others(step);
      });
      const Duration for_host =
          usual(rank, [](const StepCauses& step) { return step.gpu_waits_for_host; });
      const Duration exposed = usual(rank, [](const StepCauses& step) { return step.exposed; });
      const Duration may_differ = usual_step(rank.recorded) * 3 / 100;
      const Duration host =
          rank.host.step - rank.host.part(HostPart::Waiting).time;  // without what it waits for
      EXPECT_GE(what_if.gain.middle,
                std::min(of_network - for_host, usual_step(rank.recorded) - host) - may_differ)
          << name;
      EXPECT_LE(what_if.gain.middle, exposed + may_differ) << name;
    }
  }
}

Diagnosis consistent(const JobTrace& job, const std::string& name) {
  Diagnosis diagnosis = diagnose(job);
  expect_nothing_negative(diagnosis, name);
  expect_verdict_is_its_tables(diagnosis, name);
  return diagnosis;
}

Duration gain_without_network(const Diagnosis& diagnosis) {
  for (const WhatIf& what_if : diagnosis.ranks.front().forecast.what_ifs) {
    if (what_if.change == Change::NoNetwork) return what_if.gain.middle;
  }
  return Duration::min();
}

// 21.648 ms a step, of which 3.006 ms are exposed; the host wakes up late for nothing that the network does.
TEST(VerdictTest, ClocksAndLateHostsChangeNoVerdict) {
  for (const int offset : {-1000, -300, -60, -6, 0, 6, 15, 60, 300, 1000}) {
    for (const int late : {0, 5, 59, 100, 400}) {
      if (offset % 300 != 0 && late % 100 != 0) continue;
      const std::string name = std::to_string(offset) + " us, late by " + std::to_string(late);
      const Diagnosis diagnosis = consistent(
          job_made({.clock_us = static_cast<double>(offset), .late_us = static_cast<double>(late)}),
          name);
      const Finding& verdict = diagnosis.findings.front();
      EXPECT_EQ(verdict.kind, FindingKind::Exposed) << name;
      EXPECT_NEAR(to_us(verdict.whole), 21648 + late, 1) << name;
      EXPECT_NEAR(to_us(verdict.amount), 3006, 1) << name;
      EXPECT_NEAR(to_us(gain_without_network(diagnosis)), 2930, 110) << name;
    }
  }
}

TEST(VerdictTest, RealTracesAgreeWithThemselvesWhereverTheClockIs) {
  const std::vector<std::int64_t> offsets =
      testing::kHasSanitizer ? std::vector<std::int64_t>{-40, 1000}
                             : std::vector<std::int64_t>{-1000, -300, -40, 300, 1000};
  for (const std::string file : {"dlrm-v100x8/rank0.json.gz", "dlrm-v100x8/rank7.json.gz"}) {
    const Diagnosis own = consistent(shifted(file, 0), file);
    for (const std::int64_t offset : offsets) {
      const std::string name = file + " " + std::to_string(offset) + " us";
      const Diagnosis diagnosis = consistent(shifted(file, offset), name);
      EXPECT_EQ(diagnosis.findings.front().kind, own.findings.front().kind) << name;
      EXPECT_NEAR(to_us(diagnosis.findings.front().whole), to_us(own.findings.front().whole), 30)
          << name;
    }
  }
  for (const std::int64_t offset : {-1000, 0}) {
    const Diagnosis diagnosis =
        consistent(shifted("ddp-resnet50-a100x2-rank0.json.gz", offset), "resnet50");
    EXPECT_EQ(diagnosis.findings.front().kind, FindingKind::HostBound);
  }
  for (const std::string file : {"cuda-sync-multi-stream.json.gz", "gpu-user-annotation.json.gz",
                                 "rocm-mi250-toy.json.gz", "cpu-only-gloo.json.gz"}) {
    for (const std::int64_t offset : {-1000, 0, 1000}) {
      consistent(shifted(file, offset), file);
    }
  }
}

// Those of one H100 (traces/README.md), in which nothing of the network or the host was made up.
TEST(VerdictTest, TracesOfAnH100AgreeWithThemselves) {
  for (const std::string name : {"eager", "compiled", "ddp-one", "ddp", "fsdp2"}) {
    consistent(testing::h100_job(name), name);
  }
  for (const std::string file : {"h100/eager.json.gz", "h100/fsdp2-rank1.json.gz"}) {
    for (const std::int64_t offset : {-300, 1000}) consistent(shifted(file, offset), file);
  }
}

// A copy on a side stream that lasts for two steps, a kernel and an all-reduce that overflow.
TEST(VerdictTest, WorkThatOutlivesItsStepChangesNoStep) {
  for (const double much : {12000.0, 25000.0, 60000.0, 400000.0, 1.6e6}) {
    for (const int which : {2, 10}) {
      MadeTrace made;
      made.change = [&](int number, const std::string&, double&, double& duration) {
        if (number == which) duration = much;
      };
      const std::string name = std::to_string(which) + " of " + std::to_string(much);
      const Diagnosis diagnosis = consistent(job_made(made), name);
      EXPECT_EQ(diagnosis.findings.front().kind, FindingKind::Exposed) << name;
      for (const TimedStep& step : diagnosis.ranks[0].recorded) {
        EXPECT_NEAR(to_us(step.step), 21648, 15) << name;
      }
    }
    std::string text = testing::text({});
    const std::string end = "]}";
    text.insert(text.rfind(end),
                R"(,{"ph":"X","cat":"cuda_runtime","name":"cudaMemcpyAsync","pid":4000,"tid":4000,)"
                R"("ts":1003,"dur":2,"args":{"correlation":9}},)"
                R"({"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD","pid":0,)"
                R"("tid":30,"ts":1010,"dur":)" +
                    std::to_string(much) + R"(,"args":{"stream":30,"correlation":9}})");
    const Diagnosis diagnosis = diagnose(testing::job_of(text));
    expect_nothing_negative(diagnosis, "copy");
    for (const TimedStep& step : diagnosis.ranks[0].recorded) {
      EXPECT_NEAR(to_us(step.step), 21648, 15) << much;
    }
  }
}

// What the host waited for at the end of a step: the work that its return comes after.
std::string awaited_by(const RankTrace& rank, const RecordedGraph& recorded) {
  std::string names;
  for (step::NodeId node = 0; node < recorded.graph.size(); ++node) {
    if (recorded.origin_of(node).kind != Origin::Kind::Return) continue;
    const auto [begin, end] = recorded.graph.edges_of(node);
    for (std::size_t edge = begin; edge < end; ++edge) {
      if (recorded.graph.edge_kind[edge] != step::EdgeKind::Synchronise) continue;
      const Origin& origin = recorded.origin_of(recorded.graph.edge(edge).from);
      const GpuWork& work = rank.line.works[static_cast<std::size_t>(origin.index)];
      names += rank.trace.name_of(rank.trace.events[static_cast<std::size_t>(work.event)]) + " ";
    }
  }
  return names;
}

// A copy on a stream of its own ends 60 us before the host returns, the update 100 us before. Where the trace names the
// stream, the host waited for the update; where it does not, for what ended last. It knows no constant.
TEST(VerdictTest, AHostThatWaitsForAStreamWaitsForItsLastWork) {
  for (const int offset : {-300, 0, 300}) {
    MadeTrace made{.clock_us = static_cast<double>(offset), .late_us = 95};
    const auto awaited = [&] {
      const JobTrace job = job_made(made);
      return awaited_by(job.ranks[0], record_graph(job.ranks[0].trace, job.ranks[0].line));
    };
    EXPECT_EQ(awaited(), "update update update ") << offset;
    made.side_us = 60;
    EXPECT_EQ(awaited(), "side side side ") << offset;
    made.names_stream = true;
    EXPECT_EQ(awaited(), "update update update ") << offset;
  }
}

// Each of four micro-steps loses 3 ms, and only the last one has to.
TEST(VerdictTest, AccumulationThatReducesEachTimeIsToldWithWhatItCosts) {
  for (const std::string name : {"", "ProfilerStep#"}) {
    const Diagnosis all = consistent(job_made({.step_name = name, .passes = 4}), name);
    EXPECT_EQ(all.findings.front().kind, FindingKind::Accumulation);
    EXPECT_NEAR(to_us(all.findings.front().amount), 9000, 200);
    EXPECT_NEAR(to_us(all.findings.front().whole), 85000, 200);
    EXPECT_THAT(headline(all), StartsWith("every micro-step reduces all gradients: 4 backward"));
    const Diagnosis last = diagnose(job_made({.step_name = name, .passes = 4, .no_sync = true}));
    EXPECT_EQ(last.findings.front().kind, FindingKind::Exposed);
    EXPECT_NEAR(to_us(last.findings.front().whole), 75882, 20);
  }
}

// What was recorded goes into the file: the step, its three buckets of two gradients, and how many
// micro-steps reduce.
TEST(VerdictTest, TheImportedFileKeepsTheRecordedStep) {
  for (const int passes : {1, 4}) {
    const JobTrace job = job_made({.passes = passes});
    const auto made = import_workload(job, 0, replay_rank(job.ranks[0]), "step");
    const models::Profile read = models::read_profile(
        JsonFile("step.json", workload_json(std::get<ImportedWorkload>(made).workload)));
    ASSERT_TRUE(read.recorded.has_value());
    EXPECT_EQ(read.recorded, std::get<ImportedWorkload>(made).workload.profile.recorded);
    EXPECT_EQ(read.recorded->step, usual_step(job.ranks[0].line));
    EXPECT_EQ(read.recorded->micro_steps, passes);
    EXPECT_EQ(read.recorded->framework, "torch");
    EXPECT_TRUE(read.recorded->is_copied);
    EXPECT_THAT(read.recorded->buckets, ::testing::ElementsAre(std::vector<std::size_t>{0, 1},
                                                               std::vector<std::size_t>{2, 3},
                                                               std::vector<std::size_t>{4, 5}));
    EXPECT_LT(read.recorded->off(), read.recorded->step / 50);
  }
}

// A trace of one rank is a step of one rank; of a trace that does not say it two are taken.
TEST(VerdictTest, AStepOfOneRankIsOne) {
  const auto world_of = [](int world) {
    MadeTrace made;
    made.world = world;
    made.group.resize(static_cast<std::size_t>(world));
    const JobTrace job = job_made(made);
    const auto imported = import_workload(job, 0, replay_rank(job.ranks[0]), "step");
    return std::get<ImportedWorkload>(imported).workload.profile.world_size;
  };
  EXPECT_EQ(world_of(1), 1);
  EXPECT_EQ(world_of(8), 8);
}

// Without annotations as with them: 25 MiB is one bucket in each iteration, of 24 MiB, which no all-reduce of the trace was:
// in proportion it loses 6 ms, and less where a part of the 3 ms is latency.
TEST(VerdictTest, GradientsOfSeveralIterationsShareNoBucket) {
  for (const bool annotated : {true, false}) {
    const Diagnosis diagnosis =
        diagnose(job_made({.steps = 4, .step_name = annotated ? "ProfilerStep#" : ""}));
    ASSERT_TRUE(diagnosis.buckets.has_value());
    for (const BucketSetting& setting : diagnosis.buckets->settings) {
      EXPECT_LE(setting.ends.back(), 6U);
      if (setting.setting != "bucket_cap_mb=25") continue;
      EXPECT_EQ(setting.ends.size(), 1U);
      EXPECT_LE(setting.gain.low, std::chrono::microseconds(-6000));
      EXPECT_LE(setting.gain.middle, std::chrono::microseconds(-3000));
    }
  }
}

// Nothing says where the only step begins: it takes from its first GPU work to its last. Starting CUDA, 19.58 s on the host
// before the first launch, is no part of it, and no other host gains it.
TEST(VerdictTest, AWholeTraceTakesAsLongAsItsGpuWork) {
  MadeTrace made;
  made.steps = 1;
  made.step_name = "";
  made.start_us = 20'000'000;
  std::string text = testing::text(made);
  const Diagnosis alone = diagnose(testing::job_of(text));
  const std::string place = R"("traceEvents":[)";
  text.insert(
      text.find(place) + place.size(),
      R"({"ph":"X","cat":"cuda_runtime","name":"cudaDeviceGetStreamPriorityRange","pid":4000,)"
      R"("tid":4000,"ts":100,"dur":19580000,"args":{"correlation":9}},)");
  const JobTrace job = testing::job_of(text);
  EXPECT_TRUE(job.ranks[0].line.is_whole_trace);
  const Diagnosis diagnosis = diagnose(job);
  const RankDiagnosis& rank = diagnosis.ranks[0];
  EXPECT_EQ(rank.recorded[0].step, rank.recorded[0].figures.span);
  EXPECT_EQ(rank.recorded[0].step, alone.ranks[0].recorded[0].step);
  EXPECT_NEAR(to_us(rank.recorded[0].step), 21'600, 50);
  for (const WhatIf& what_if : rank.forecast.what_ifs) {
    if (what_if.change == Change::NoHost) {
      EXPECT_LE(what_if.gain.high, rank.recorded[0].step - rank.recorded[0].figures.comp);
      EXPECT_LE(what_if.gain.middle, rank.causes[0].gpu_waits_for_host +
                                         rank.causes[0].by[static_cast<std::size_t>(Cause::Host)]);
    }
    // One step, replayed to the nanosecond: what another one gains is an estimate all the same.
    EXPECT_LT(what_if.gain.low, what_if.gain.high) << to_string(what_if.change);
  }
}

}  // namespace
}  // namespace dovetail::diagnose

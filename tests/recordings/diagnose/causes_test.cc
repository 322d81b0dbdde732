// Causes, changes and words, on a step that can be followed by hand (tests/fuzz/corpus/kineto).
//
//   s7   8-28 forward   44-74 backward   75-85 backward   148-158 optimizer
//   s20                 75-115 bucket 0, 116-146 bucket 1
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/file.h"
#include "base/json_reader.h"
#include "models/workloads/profile.h"
#include "recordings/diagnose/causes.h"
#include "recordings/diagnose/diagnosis.h"
#include "recordings/diagnose/what_if.h"
#include "recordings/diagnose/workload.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::diagnose {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Duration us(std::int64_t n) { return std::chrono::microseconds(n); }

std::string two_buckets() {
  return read_file(std::string(DOVETAIL_SOURCE_DIR) + "/tests/fuzz/corpus/kineto/two_buckets.json");
}

struct Loaded {
  explicit Loaded(const std::string& trace = two_buckets()) : job(testing::job_of(trace)) {}
  JobTrace job;
  const RankTrace& rank = job.ranks[0];
  RankReplay replay = replay_rank(rank);
  const std::vector<TracedBuckets>& buckets = replay.buckets;
};

TEST(KinetoCausesTest, BucketsAndFiguresAreThoseOfTheTimeline) {
  const Loaded loaded;
  ASSERT_EQ(loaded.buckets[0].buckets.size(), 2U);
  EXPECT_EQ(loaded.buckets[0].buckets[0].elements, 1000);
  EXPECT_EQ(loaded.buckets[0].buckets[1].bytes, Bytes(2000));
  EXPECT_TRUE(loaded.buckets[0].sizes_known);
  const StepFigures figures = figures_of(loaded.rank.line, loaded.rank.line.steps[0]);
  EXPECT_EQ(figures.span, us(150));
  EXPECT_EQ(figures.comp, us(70));
  EXPECT_EQ(figures.comm, us(70));
  EXPECT_EQ(figures.overlap, us(10));  // 75 to 85
  EXPECT_EQ(figures.exposed, us(60));
}

// The optimizer's kernel was launched at 112 and started at 148, when the last bucket had come: all exposed
// time is the link's, but for the microsecond that each bucket started after it could have.
TEST(KinetoCausesTest, TimeThatTheOptimizerWaitsForDataIsTheLinks) {
  const Loaded loaded;
  const std::vector<StepCauses> causes =
      causes_of(loaded.rank, loaded.replay.recorded, loaded.replay.timeline, loaded.buckets);
  EXPECT_EQ(causes[0].by[static_cast<std::size_t>(Cause::Link)], us(58));
  EXPECT_EQ(causes[0].by[static_cast<std::size_t>(Cause::ClosedLate)], us(2));
  EXPECT_EQ(causes[0].by[static_cast<std::size_t>(Cause::Host)], Duration{});
}

// The same with the optimizer launched at 147: the host would have been late without a network too.
TEST(KinetoCausesTest, TimeBeforeALateLaunchIsTheHosts) {
  std::string text = two_buckets();
  const std::string from = R"("ts":112,"dur":2,"args":{"correlation":7})";
  text.replace(text.find(from), from.size(), R"("ts":146,"dur":1.5,"args":{"correlation":7})");
  const std::string sync = R"("ts":120,"dur":39)";
  text.replace(text.find(sync), sync.size(), R"("ts":150,"dur":9)");
  const Loaded loaded(text);
  const std::vector<StepCauses> causes =
      causes_of(loaded.rank, loaded.replay.recorded, loaded.replay.timeline, loaded.buckets);
  EXPECT_EQ(causes[0].by[static_cast<std::size_t>(Cause::Host)], us(60));
}

// Without communication the optimizer starts when it is launched and the synchronisation ends 37 us earlier,
// but the host had 41 us to spare behind it: the step is as much shorter as the wait was.
TEST(KinetoWhatIfTest, WithoutCommunicationTheHostWaitsLess) {
  const Loaded loaded;
  const Duration own =
      replayed_steps(loaded.replay.recorded, loaded.rank.line, loaded.replay.timeline)[0].step;
  const Duration quiet = replayed_with(loaded.rank, loaded.replay, Change::NoNetwork)[0];
  EXPECT_NEAR(to_us(own), 200, 1);
  EXPECT_LT(quiet, own - us(25));
  EXPECT_GT(quiet, own - us(40));
}

std::string replaced(std::string text, std::string_view part, std::string_view by) {
  const std::size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return at == std::string::npos ? text : text.replace(at, part.size(), by);
}

// The same step whose host does not wait for the GPU: it synchronises when everything is done.
std::string never_waiting() {
  return replaced(two_buckets(), R"("ts":120,"dur":39)", R"("ts":160,"dur":1)");
}

ImportedWorkload imported(const Loaded& loaded) {
  auto made = import_workload(loaded.job, 0, loaded.replay, "two");
  const auto* const problem = std::get_if<std::string>(&made);
  EXPECT_EQ(problem, nullptr) << *problem;
  return problem == nullptr ? std::get<ImportedWorkload>(std::move(made)) : ImportedWorkload{};
}
TracedWorkload workload_in(const Loaded& loaded) { return imported(loaded).workload; }

// The host sets the pace of 200 us: buckets are there when it launches the update, and one bucket less to launch saves its
// call of 9.5 us.
TEST(KinetoWhatIfTest, WhereTheHostSetsThePaceABucketCostsItsCall) {
  const Loaded loaded(never_waiting());
  const TracedWorkload workload = workload_in(loaded);
  EXPECT_THAT(workload.ends, ElementsAre(1, 2));
  Forecast forecast(workload, workload.profile);
  const Duration two = forecast.step(workload.ends, InFlight::Any);
  EXPECT_NEAR(to_us(two), 200, 0.1);
  const std::vector<std::size_t> all = {2};
  EXPECT_EQ(two - forecast.step(all, InFlight::Any), Duration(9500));
}

// Without a host forward takes 20 us, backward 30 and 10, the update 10, and a microsecond or two between them. Two buckets
// travel 40 and 30 us from the first gradient on; one of 6000 bytes takes 50 us by the line through both sizes, from the
// second one on.
TEST(KinetoWhatIfTest, WithoutAHostOneBucketForBothStartsWithTheLastGradient) {
  const Loaded loaded(never_waiting());
  const TracedWorkload workload = workload_in(loaded);
  Forecast forecast(workload, without_host(workload.profile));
  const std::vector<std::size_t> all = {2};
  const Duration two = forecast.step(workload.ends, InFlight::Any);
  const Duration one = forecast.step(all, InFlight::Any);
  EXPECT_NEAR(to_us(two), 20 + 30 + 40 + 30 + 10, 3);
  EXPECT_NEAR(to_us(one), 20 + 30 + 10 + 50 + 10, 3);
}

// What the GPU waits for the host is made up neither wholly nor not at all where the host waits for the GPU in turn: no way to
// take it gives the 200 us. Every gain may be off by as much, and it is said.
TEST(KinetoWhatIfTest, AWorkloadThatMissesTheStepWidensEveryInterval) {
  const Loaded loaded;
  const ImportedWorkload made = imported(loaded);
  EXPECT_TRUE(made.workload.host_waits);
  EXPECT_FALSE(made.check->is_trustworthy());
  const Diagnosis diagnosis = diagnose(loaded.job);
  EXPECT_THAT(diagnosis.unknowns, Contains(HasSubstr("the workload made of rank 0 takes ")));
  ASSERT_TRUE(diagnosis.buckets.has_value());
  const Duration miss = std::chrono::abs(made.check->predicted - made.check->recorded);
  EXPECT_GT(miss, Duration{});
  std::size_t others = 0;
  for (const BucketSetting& setting : diagnosis.buckets->settings) {
    if (setting.is_recorded) continue;
    EXPECT_LE(setting.gain.low, setting.gain.middle - miss) << setting.setting;
    EXPECT_GE(setting.gain.high, setting.gain.middle + miss) << setting.setting;
    ++others;
  }
  EXPECT_GT(others, 0U);
}

// With one in flight the second bucket is launched once the first has come.
TEST(KinetoWhatIfTest, WithOneInFlightComputeWaitsForTheBucketBefore) {
  const Loaded loaded(never_waiting());
  const TracedWorkload workload = workload_in(loaded);
  Forecast forecast(workload, workload.profile);
  for (const schedule::Bucket& bucket : forecast.buckets(workload.ends, InFlight::One).buckets) {
    EXPECT_EQ(bucket.wait, schedule::WaitPoint::BeforeNextBatch);
  }
  EXPECT_GE(forecast.step(workload.ends, InFlight::One),
            forecast.step(workload.ends, InFlight::Any));
}

// The profiler was stopped between the two launches: the second bucket's time is not in the step, and its gradients are.
TEST(KinetoWhatIfTest, AStepWhoseLastBucketWasLaunchedAfterItKeepsItsGradients) {
  const Loaded loaded(
      replaced(two_buckets(), R"("tid":1,"ts":0,"dur":200.0)", R"("tid":1,"ts":0,"dur":71.0)"));
  ASSERT_EQ(loaded.buckets[0].buckets.size(), 2U);
  ASSERT_NE(loaded.buckets[0].buckets[1].collective, kNone);
  EXPECT_THAT(workload_in(loaded).ends, ElementsAre(1, 2));
}

// The last gradient's operator lasts beyond the launch of its bucket and launches a kernel there: the gradient is ready at
// the end of that kernel, 5 us after the one before.
TEST(KinetoWhatIfTest, AGradientIsReadyBehindItsWorkAlsoWhereItsBucketWasLaunchedBefore) {
  const Loaded loaded(replaced(
      replaced(replaced(two_buckets(), R"("tid":2,"ts":66,"dur":2)", R"("tid":2,"ts":66,"dur":20)"),
               R"("tid":2,"ts":63)", R"("tid":2,"ts":78)"),
      R"("ts":75,"dur":10)", R"("ts":80,"dur":5)"));
  const models::Profile profile = workload_in(loaded).profile;
  ASSERT_EQ(profile.gradients.size(), 2U);
  EXPECT_GE(profile.gradients[1].ready.front(), profile.gradients[0].ready.front() + us(5));
}

// The hook's copy is recorded, its kernel is not, and its operator holds the launch of the bucket.
TEST(KinetoWhatIfTest, ACollectiveIsNoGradientsCopy) {
  std::string trace = two_buckets();
  trace = replaced(trace, R"("name":"c10d::allreduce_","pid":9,"tid":2,"ts":48)",
                   R"("name":"x","pid":9,"tid":2,"ts":48)");
  trace = replaced(trace,
                   R"("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",)"
                   R"("pid":9,"tid":2,"ts":62)",
                   R"("reducer::mul_out","pid":9,"tid":2,"ts":62)");
  trace = replaced(trace, R"("torch::autograd::AccumulateGrad","pid":9,"tid":2,"ts":66)",
                   R"("x","pid":9,"tid":2,"ts":66)");
  trace = replaced(trace, R"("stream":7,"correlation":4)", R"("stream":7)");
  const Loaded loaded(trace);
  ASSERT_EQ(loaded.buckets[0].buckets.size(), 1U);
  for (const TracedGradient& gradient : loaded.buckets[0].buckets[0].gradients) {
    ASSERT_NE(gradient.work, kNone);
    EXPECT_EQ(loaded.rank.line.works[static_cast<std::size_t>(gradient.work)].collective, kNone);
  }
  EXPECT_EQ(diagnose(loaded.job).ranks.size(), 1U);
}

// A count that no tensor has is not known; a bucket of it would have 2^65 bytes.
TEST(KinetoCausesTest, CountsBeyondAnyTensorAreNotKnown) {
  const std::string huge = "9223372036854775807";
  std::string trace = two_buckets();
  trace = replaced(trace, R"("In msg nelems":1000,"Out msg nelems":1000)",
                   R"("In msg nelems":)" + huge + R"(,"Out msg nelems":)" + huge);
  trace = replaced(trace, "[[[1000]],[],[]]", "[[[" + huge + "]],[],[]]");
  trace = replaced(trace, R"("Input Dims":[[1000]])", R"("Input Dims":[[)" + huge + "]]");
  const Loaded loaded(trace);
  const TracedBucket& bucket = loaded.buckets[0].buckets[0];
  EXPECT_FALSE(loaded.rank.line.collectives[0].elements.has_value());
  EXPECT_EQ(bucket.elements, 1000);  // of its gradient
  EXPECT_EQ(bucket.bytes, Bytes(4000));
}

// Of the two recorded calls, the quicker one and the slower one may stand for a bucket of any other grouping.
// Inside the operators, from the end of the call before: the launches end at 53 (the kernel's call before
// it at 43) and 74 (65).
TEST(KinetoWhatIfTest, ABucketCostsTheHostAQuickOrASlowCallOfTheTrace) {
  const Loaded loaded(never_waiting());
  const TracedWorkload workload = workload_in(loaded);
  EXPECT_EQ(workload.profile.recorded->call_low, us(9));
  EXPECT_EQ(workload.profile.recorded->call_high, us(10));
  EXPECT_EQ(workload.profile.bucket_call, Duration(9500));
  // Where the host waits for the GPU a further call may cost nothing.
  EXPECT_EQ(workload_in(Loaded()).profile.recorded->call_low, Duration{});
}

TEST(KinetoWorkloadTest, AStepWithoutCommunicationBecomesAProfile) {
  const Loaded loaded;
  const models::Profile profile = workload_in(loaded).profile;
  EXPECT_EQ(profile.gradients.size(), 2U);
  EXPECT_NEAR(to_us(profile.by_rank.front().backward), 57, 1);  // from the end of forward: 28 to 85
}

// ResNet-50's host never waits for the GPU.
TEST(KinetoWorkloadTest, AHostThatNeverWaitsForTheGpuIsPartOfTheWorkload) {
  const JobTrace job = testing::resnet50();
  const Extracted extracted = workload_of(job, 0, replay_rank(job.ranks[0]), {.name = "resnet50"});
  const auto& workload = std::get<TracedWorkload>(extracted);
  ASSERT_TRUE(workload.profile.host.has_value());
  // Its file says so, and so does every prediction that is made of it.
  const models::Profile read = models::read_profile(JsonFile("step.json", workload_json(workload)));
  EXPECT_EQ(read.notes, workload.notes);
  EXPECT_EQ(read.host->forward.compute, workload.profile.host->forward.compute);
  EXPECT_EQ(read.bucket_call, workload.profile.bucket_call);
  EXPECT_THAT(read.notes,
              Contains(HasSubstr("the GPU waits 169.6 ms of 222.1 ms a step for the host")));
}

}  // namespace
}  // namespace dovetail::diagnose

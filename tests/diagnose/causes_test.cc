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
#include "diagnose/causes.h"
#include "diagnose/diagnosis.h"
#include "diagnose/what_if.h"
#include "diagnose/workload.h"
#include "models/profile.h"
#include "tests/imports/kineto/traces.h"

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
  ReplayModel model = replay_model(rank.trace, rank.line);
  std::vector<TracedBuckets> buckets = {ddp_buckets(rank.trace, rank.line, rank.line.steps[0])};
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
      causes_of(loaded.rank, loaded.model, play(loaded.model), loaded.buckets);
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
  const JobTrace job = testing::job_of(text);
  const RankTrace& rank = job.ranks[0];
  const ReplayModel model = replay_model(rank.trace, rank.line);
  const std::vector<StepCauses> causes =
      causes_of(rank, model, play(model), {ddp_buckets(rank.trace, rank.line, rank.line.steps[0])});
  EXPECT_EQ(causes[0].by[static_cast<std::size_t>(Cause::Host)], us(60));
}

// Without communication the optimizer starts when it is launched and the synchronisation ends 37 us earlier,
// but the host had 41 us to spare behind it: the step is as much shorter as the wait was.
TEST(KinetoWhatIfTest, WithoutCommunicationTheHostWaitsLess) {
  const Loaded loaded;
  const Duration own = step_times(loaded.model)[0];
  const Duration quiet = step_times(without_communication(loaded.model))[0];
  EXPECT_NEAR(to_us(own), 200, 1);
  EXPECT_LT(quiet, own - us(25));
  EXPECT_GT(quiet, own - us(40));
}

// Both gradients in one bucket of 6000 bytes: one transfer of 60 us.
TEST(KinetoWhatIfTest, OneBucketForBothStartsWithTheLastGradient) {
  const Loaded loaded;
  const AllReduceCost cost({{Bytes(2000), us(30)}, {Bytes(4000), us(40)}},
                           AllReduceCost::Below::Pessimist);
  EXPECT_EQ(cost.time(Bytes(1000)), us(30));
  EXPECT_EQ(cost.time(Bytes(3000)), us(35));
  EXPECT_EQ(cost.time(Bytes(6000)), us(60));
  const ReplayModel same = with_buckets(loaded.rank, loaded.model, loaded.buckets, {1, 2}, cost);
  EXPECT_NEAR(to_us(step_times(same)[0]), 200, 1);
  const ReplayModel one = with_buckets(loaded.rank, loaded.model, loaded.buckets, {2}, cost);
  const Replay replay = play(one);
  std::vector<std::string> transfers;
  for (std::size_t i = 0; i < one.nodes.size(); ++i) {
    if (!one.nodes[i].communicates) continue;
    transfers.push_back(dovetail::to_string(replay.end[i] - replay.start[i]));
  }
  EXPECT_THAT(transfers, ElementsAre("60 us"));
  // Two buckets: 40 us, then 30 more. One: 60 us from the second gradient on.
  EXPECT_THAT(best_bucket_ends({us(0), us(11)}, {Bytes(4000), Bytes(2000)}, cost),
              ElementsAre(1, 2));
  EXPECT_THAT(best_bucket_ends({us(0), us(5)}, {Bytes(4000), Bytes(2000)}, cost), ElementsAre(2));
}

std::string replaced(std::string text, std::string_view part, std::string_view by) {
  const std::size_t at = text.find(part);
  EXPECT_NE(at, std::string::npos) << part;
  return at == std::string::npos ? text : text.replace(at, part.size(), by);
}

std::vector<ReplayNode> transfers_of(const ReplayModel& model) {
  std::vector<ReplayNode> transfers;
  std::ranges::copy_if(model.nodes, std::back_inserter(transfers), &ReplayNode::communicates);
  return transfers;
}

// The profiler was stopped between the two launches.
TEST(KinetoWhatIfTest, AStepWhoseLastBucketWasLaunchedAfterItKeepsItsBuckets) {
  const Loaded loaded(
      replaced(two_buckets(), R"("tid":1,"ts":0,"dur":200.0)", R"("tid":1,"ts":0,"dur":71.0)"));
  ASSERT_EQ(loaded.buckets[0].buckets.size(), 2U);
  ASSERT_NE(loaded.buckets[0].buckets[1].collective, kNone);
  const ReplayModel one = with_buckets(loaded.rank, loaded.model, loaded.buckets, {2},
                                       AllReduceCost({{Bytes(2000), us(30)}, {Bytes(4000), us(40)}},
                                                     AllReduceCost::Below::Pessimist));
  EXPECT_EQ(step_times(one), step_times(loaded.model));
}

// The last gradient's operator lasts beyond the launch of its bucket and launches a kernel there.
TEST(KinetoWhatIfTest, ABucketStartsBehindItsLastGradientAlsoWhereTheTraceHasItBefore) {
  const Loaded loaded(replaced(
      replaced(replaced(two_buckets(), R"("tid":2,"ts":66,"dur":2)", R"("tid":2,"ts":66,"dur":20)"),
               R"("tid":2,"ts":63)", R"("tid":2,"ts":78)"),
      R"("ts":75,"dur":10)", R"("ts":80,"dur":5)"));
  const ReplayModel same =
      with_buckets(loaded.rank, loaded.model, loaded.buckets, {1, 2},
                   AllReduceCost({{Bytes(2000), us(30)}, {Bytes(4000), us(40)}},
                                 AllReduceCost::Below::Pessimist));
  const std::vector<ReplayNode> transfers = transfers_of(same);
  ASSERT_EQ(transfers.size(), 2U);
  ASSERT_EQ(transfers[1].waits.size(), 1U);
  const auto gradient = static_cast<std::size_t>(transfers[1].waits[0]);
  EXPECT_LT(gradient, same.nodes.size());
  EXPECT_EQ(play(same).end[gradient] - play(same).start[gradient], us(5));
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

// Of the two recorded calls, the quicker one and the slower one stand for a bucket of any other grouping.
TEST(KinetoWhatIfTest, ABucketCostsTheHostAQuickOrASlowCallOfTheTrace) {
  const Loaded loaded;
  const AllReduceCost cost({{Bytes(2000), us(30)}, {Bytes(4000), us(40)}},
                           AllReduceCost::Below::Pessimist);
  const auto call = [&](BucketCall which) {
    const ReplayModel model = with_buckets(loaded.rank, loaded.model, loaded.buckets, {1, 2}, cost,
                                           {.bucket_call = which});
    for (const ReplayNode& node : model.nodes) {
      if (node.communicates) return model.nodes[static_cast<std::size_t>(node.launch)].duration;
    }
    return Duration{};
  };
  // Inside the operators, from the end of the call before: the launches end at 53 (the kernel's call before
  // it at 43) and 74 (65).
  EXPECT_EQ(call(BucketCall::Slow), us(10));
  EXPECT_EQ(call(BucketCall::Quick), us(9));
}

TEST(KinetoWorkloadTest, AStepWithoutCommunicationBecomesAProfile) {
  const Loaded loaded;
  const TracedWorkload workload = workload_of(loaded.job, {.name = "two"});
  EXPECT_EQ(workload.gradients, 2U);
  EXPECT_NEAR(to_us(workload.backward), 41, 3);  // 44 to 85
}

// Its file says so, and so does every prediction that is made of it.
TEST(KinetoWorkloadTest, TimeThatTheGpuWaitsForTheHostIsNoted) {
  const TracedWorkload workload = workload_of(testing::resnet50(), {.name = "resnet50"});
  const models::Profile profile = models::read_profile(JsonFile("step.json", workload.json));
  EXPECT_EQ(profile.notes, workload.notes);
  EXPECT_THAT(profile.notes,
              Contains(HasSubstr("the GPU waits 163.1 ms of 222.4 ms a step for the host")));
}

}  // namespace
}  // namespace dovetail::diagnose

// What a step is: its time, where iterations begin, what is left out, and whose clock counts. The trace, and its times by
// hand: made_trace.h.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "recordings/timeline/ddp_buckets.h"
#include "recordings/timeline/gpu_clock.h"
#include "recordings/timeline/step_figures.h"
#include "tests/recordings/kineto/made_events.h"
#include "tests/recordings/kineto/made_trace.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::imports {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MadeTrace;

Duration us(std::int64_t n) { return std::chrono::microseconds(n); }

struct Made {
  explicit Made(const MadeTrace& made, const JoinOptions& options = {})
      : trace(testing::read_text(testing::text(made))), line(join(trace, options)) {}

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const TracedStep& step : line.steps) result.push_back(step.name);
    return result;
  }
  // Of each step: gradients of its buckets.
  [[nodiscard]] std::vector<std::size_t> gradients() const {
    std::vector<std::size_t> result;
    for (const TracedStep& step : line.steps) {
      result.push_back(0);
      for (const TracedBucket& bucket : ddp_buckets(trace, line, step).buckets) {
        result.back() += bucket.gradients.size();
      }
    }
    return result;
  }

  Recording trace;
  RankTimeline line;
};

StepBounds bounds(std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t last) {
  return {.begin = Instant(us(begin)),
          .end = Instant(us(end)),
          .first = Instant(us(first)),
          .last = Instant(us(last))};
}

// The GPU begins 90 us behind the host; its work begins at 100, 200 and 300.
TEST(StepPeriodTest, AStepLastsUntilTheNextOnesFirstWork) {
  const std::vector<StepBounds> steps = {bounds(10, 60, 100, 190), bounds(60, 120, 200, 280),
                                         bounds(120, 400, 300, 380)};
  // The last one: 280 on the host, which waited; from the end of the one before 100; its own span 80.
  EXPECT_THAT(periods(steps), ElementsAre(us(100), us(100), us(100)));
}

// A step before a gap lasts what it lasts itself; one without work what it took the host.
TEST(StepPeriodTest, WhatIsNotFollowedLastsAsLongAsItKeepsBusy) {
  std::vector<StepBounds> steps = {bounds(0, 50, 10, 95), bounds(500, 560, 510, 540)};
  steps[0].is_before_gap = true;
  EXPECT_THAT(periods(steps), ElementsAre(us(85), us(60)));
  steps[1].first.reset();
  EXPECT_THAT(periods(steps), ElementsAre(us(85), us(60)));
}

TEST(StepPeriodTest, NoTimeIsBelowZero) {
  const std::vector<StepBounds> steps = {bounds(0, 5, 900, 990), bounds(5, 4, 20, 30),
                                         bounds(9, 9, 10, 12)};
  EXPECT_THAT(periods(steps), Each(::testing::Ge(Duration{})));
}

TEST(IterationsTest, ProfilerStepsAreStepsInAnyCategoryAndForm) {
  for (const std::string category : {"user_annotation", "Operator", "cpu_op"}) {
    for (const bool bare : {false, true}) {
      const Made made({.step_category = category, .is_bare_list = bare});
      EXPECT_THAT(made.names(), ElementsAre("ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5"))
          << category << bare;
      EXPECT_THAT(made.gradients(), Each(6U)) << category << bare;
    }
  }
}

TEST(IterationsTest, WithoutAnnotationsTheOptimizerPartsThem) {
  const Made made({.steps = 4, .step_name = ""});
  EXPECT_THAT(made.names(),
              ElementsAre("iteration 1", "iteration 2", "iteration 3", "iteration 4"));
  EXPECT_THAT(made.gradients(), Each(6U));
  EXPECT_THAT(made.line.notes, Contains(HasSubstr("4 iterations were found by the optimizer's")));
}

TEST(IterationsTest, WithoutAnOptimizerTheirPassesPartThem) {
  const Made made({.steps = 4, .step_name = "", .has_optimizer = false});
  EXPECT_EQ(made.line.steps.size(), 4U);
  EXPECT_THAT(made.gradients(), Each(6U));
  EXPECT_THAT(made.line.notes, Contains(HasSubstr("found by their backward passes")));
}

// Recorded without CPU activity: calls and kernels only.
TEST(IterationsTest, WithoutOperatorsTheFirstKernelsPartThem) {
  const Made made({.steps = 4, .step_name = "", .has_optimizer = false, .has_operators = false});
  EXPECT_EQ(made.line.steps.size(), 4U);
  for (const TracedStep& step : made.line.steps) EXPECT_EQ(step.works.size(), 25U);
}

TEST(IterationsTest, AnnotationsMayBeAskedForByName) {
  for (const std::string name : {"Iteration ", "Iteration#", "Iteration: "}) {
    const Made made({.step_name = name}, {.step = "Iteration"});
    EXPECT_EQ(made.line.steps.size(), 3U) << name;
    EXPECT_THAT(made.line.steps[0].name, name + "3");
  }
  try {
    const Made made({.step_name = "train step "}, {.step = "Iteration"});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("no annotation is called \"Iteration\"; there are Optimizer"));
  }
}

// Four iterations, and step() called once behind the loop.
// Of steps that the annotations number, which are followed by the next one.
std::vector<bool> gaps_of(const std::string& name, const std::vector<int>& numbers) {
  testing::MadeEvents events;
  double at = 1000;
  for (const int number : numbers) {
    events.event("user_annotation", name + std::to_string(number), 1, at, 900);
    events.kernel("gemm", 7, at + 100, 500, events.launch(1, at + 10));
    at += 1000;
  }
  JobOptions options;
  options.join.step = name.starts_with("ProfilerStep") ? "" : "Iteration";
  std::vector<Recording> traces;
  traces.push_back(testing::read_text(events.text()));
  const JobTrace job = make_job(std::move(traces), options);
  std::vector<bool> gaps;
  for (const TracedStep& step : job.ranks[0].line.steps) gaps.push_back(step.is_before_gap);
  return gaps;
}

TEST(IterationsTest, NumbersThatAreMissingEndAPeriod) {
  using Gaps = std::vector<bool>;
  EXPECT_EQ(gaps_of("ProfilerStep#", {3, 4, 5}), Gaps({false, false, false}));
  EXPECT_EQ(gaps_of("ProfilerStep#", {3, 6}), Gaps({true, false}));
  EXPECT_EQ(gaps_of("ProfilerStep#", {3, 6, 7, 9}), Gaps({true, false, true, false}));
  EXPECT_EQ(gaps_of("ProfilerStep#", {5, 6, 2, 3}), Gaps({false, true, false, false}));
  // Others may count by twos.
  EXPECT_EQ(gaps_of("Iteration ", {2, 4, 6}), Gaps({false, false, false}));
  EXPECT_EQ(gaps_of("Iteration ", {2, 4, 10}), Gaps({false, true, false}));
}

// Steps 4 and 5 are not in the file: a step takes 21.64 ms, and the GPU waits for no host.
TEST(IterationsTest, AStepBeforeAGapTakesWhatItTookByItself) {
  const JobTrace job = load_job({testing::trace_file("reported/two-steps-apart.json.gz")}, {});
  std::vector<StepBounds> bounds;
  for (const TracedStep& step : job.ranks[0].line.steps) {
    StepBounds now{step.start, step.end, {}, {}, step.is_before_gap};
    for (const std::int32_t number : step.works) {
      const GpuWork& work = job.ranks[0].line.works[static_cast<std::size_t>(number)];
      if (work.stream != job.ranks[0].line.compute_stream) continue;
      now.first = std::min(now.first.value_or(work.start), work.start);
      now.last = std::max(now.last.value_or(work.end), work.end);
    }
    bounds.push_back(now);
  }
  for (const Duration period : periods(bounds)) EXPECT_NEAR(to_us(period), 21638, 20);
}

TEST(IterationsTest, AWindowWithSeveralIterationsIsCut) {
  std::string text = testing::text({.steps = 4, .step_name = ""});
  const std::string open = R"("traceEvents":[)";
  text.insert(text.find(open) + open.size(),
              R"({"ph":"X","cat":"user_annotation","name":"ProfilerStep#0","pid":1,"tid":1,)"
              R"("ts":990,"dur":90000},)");
  const Recording trace = testing::read_text(text);
  const RankTimeline line = join(trace, {});
  ASSERT_EQ(line.steps.size(), 4U);
  EXPECT_EQ(line.steps[1].name, "ProfilerStep#0 part 2");
  for (const TracedStep& step : line.steps) {
    const TracedBuckets found = ddp_buckets(trace, line, step);
    ASSERT_EQ(found.buckets.size(), 3U);
    EXPECT_EQ(found.buckets[0].bytes, Bytes(8 << 20));
  }
}

TEST(IterationsTest, MicroStepsThatAllReduceAreStepsAndCounted) {
  for (const int passes : {2, 4}) {
    for (const std::string name : {"", "ProfilerStep#"}) {
      const Made made({.steps = 3, .step_name = name, .passes = passes});
      EXPECT_EQ(made.line.accumulation.passes, passes);
      EXPECT_EQ(made.line.accumulation.reducing, passes);
      EXPECT_EQ(made.line.steps.size(), 3U * static_cast<std::size_t>(passes));
      EXPECT_THAT(made.gradients(), Each(6U));
    }
  }
}

TEST(IterationsTest, MicroStepsThatDoNotReduceBelongToTheOneThatDoes) {
  for (const int passes : {2, 4}) {
    for (const std::string name : {"", "ProfilerStep#"}) {
      const Made made({.steps = 3, .step_name = name, .passes = passes, .no_sync = true});
      EXPECT_EQ(made.line.accumulation.passes, passes);
      EXPECT_EQ(made.line.accumulation.reducing, 1);
      EXPECT_EQ(made.line.steps.size(), 3U) << name;
      EXPECT_THAT(made.gradients(), Each(6U)) << name;
    }
  }
}

// Two micro-batches within a step, as tensor parallelism reduces their activations: the collectives are launched by a
// layer's own function, and nothing says that they reduce gradients.
TEST(IterationsTest, CollectivesOfActivationsCutNothing) {
  std::string text = testing::text({.steps = 2, .step_name = "", .has_optimizer = false});
  for (const std::string gone : {"torch::autograd::AccumulateGrad", "c10d::allreduce_"}) {
    for (std::size_t at = text.find(gone); at != std::string::npos; at = text.find(gone)) {
      text.replace(at, gone.size(), "LinearBackward");
    }
  }
  const std::string open = R"("traceEvents":[)";
  text.insert(text.find(open) + open.size(),
              R"({"ph":"X","cat":"user_annotation","name":"ProfilerStep#0","pid":1,"tid":1,)"
              R"("ts":990,"dur":90000},)");
  const Recording trace = testing::read_text(text);
  const RankTimeline line = join(trace, {});
  ASSERT_EQ(line.steps.size(), 1U);
  EXPECT_EQ(line.steps[0].name, "ProfilerStep#0");
  EXPECT_EQ(line.accumulation.reducing, 1);
}

// 30 ms of older work, while the host is on time: the first step's own work begins late, once. With a host that waits
// for each step the others are not late.
TEST(StepsTest, AFirstStepBehindOlderWorkIsLeftOut) {
  const Made made({.older_us = 30000});
  EXPECT_THAT(made.names(), ElementsAre("ProfilerStep#4", "ProfilerStep#5"));
  EXPECT_THAT(made.line.notes, Contains(HasSubstr("behind the host when ProfilerStep#3 began")));
}

// Works of a step are 25: those of the second are taken out of the file, or every third of them.
TEST(StepsTest, AStepThatLostItsKernelsIsNone) {
  for (const int every : {1, 3}) {
    std::string text = testing::text({});
    std::string kept;
    int work = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t next = std::min(text.find('\n', at), text.size() - 1) + 1;
      const std::string line = text.substr(at, next - at);
      at = next;
      const bool is_work = line.find(R"("cat":"kernel")") != std::string::npos;
      const bool second = is_work && work / 25 == 1;
      work += is_work ? 1 : 0;
      if (!second || work % every != 0) kept += line;
    }
    const Recording trace = testing::read_text(kept);
    const RankTimeline line = join(trace, {});
    ASSERT_EQ(line.steps.size(), 2U) << every;
    EXPECT_TRUE(line.steps[0].is_before_gap);
    EXPECT_EQ(line.steps[1].name, "ProfilerStep#5");
    EXPECT_THAT(line.notes,
                Contains(HasSubstr("left out: ProfilerStep#4, which launched 25 kernels")));
  }
}

// ROCm's durations: of a forward kernel, of an all-reduce.
TEST(StepsTest, AKernelThatOverflowsEndsWhereTheNextOnOnItsStreamBegins) {
  const Made good((MadeTrace()));
  for (const int which : {2, 10}) {
    for (const double much : {12000.0, 400000.0, 1.6e6}) {
      MadeTrace wrong;
      wrong.change = [&](int number, const std::string&, double&, double& duration) {
        if (number == which) duration = much;
      };
      const Made made(wrong);
      for (std::size_t s = 0; s < 3; ++s) {
        const StepFigures expected = figures_of(good.line, good.line.steps[s]);
        const StepFigures found = figures_of(made.line, made.line.steps[s]);
        EXPECT_NEAR(to_us(found.span), to_us(expected.span), 1);
        EXPECT_NEAR(to_us(found.exposed), to_us(expected.exposed), 4);
      }
      EXPECT_THAT(made.line.notes, Contains(HasSubstr("1 piece of GPU work ends after the next")));
    }
  }
}

// The last kernel of a stream has nothing behind it: others of its name tell what it takes.
TEST(StepsTest, TheLastKernelOfAStreamTakesWhatItsLikesTake) {
  MadeTrace wrong;
  wrong.change = [](int number, const std::string&, double&, double& duration) {
    if (number == 3 * 25 - 1) duration = 1.6e6;
  };
  const Made made(wrong);
  EXPECT_NEAR(to_us(figures_of(made.line, made.line.steps[2]).span), 21600, 20);
  EXPECT_THAT(made.line.notes,
              Contains(HasSubstr("takes 1600.0 ms, others of its name and grid 500 us")));
}

// A kernel of the second step has ts 0 in a trace whose times are small: it would begin 20 ms before its launch.
TEST(StepsTest, AKernelThatBeginsLongBeforeItsLaunchIsLeftOut) {
  MadeTrace wrong;
  wrong.change = [](int number, const std::string&, double& start, double&) {
    if (number == 30) start = 0;
  };
  const Made made(wrong);
  EXPECT_FALSE(made.line.clock.is_off());
  EXPECT_EQ(made.line.works.size(), 3U * 25U - 1);
  EXPECT_EQ(made.line.steps.size(), 3U);
  EXPECT_THAT(made.line.notes, Contains(HasSubstr("1 piece of GPU work begins before its launch")));
}

// A kernel of a programmatic launch begins before the one ahead of it ends, and ends after it.
TEST(StepsTest, KernelsThatStartEarlyAreNotClipped) {
  MadeTrace early;
  early.change = [](int, const std::string& name, double& start, double& duration) {
    if (name != "forward_gemm") return;
    start -= 200;
    duration += 200;
  };
  EXPECT_THAT(Made(early).line.notes, Each(::testing::Not(HasSubstr("ends after the next"))));
}

// Launches onto an idle GPU take 8 us here.
TEST(GpuClockTest, OffsetsBeyondWhatLaunchesAllowAreFound) {
  for (const int offset : {-1000, -300, -60, -9, 30, 60, 300, 1000}) {
    const Made made({.clock_us = static_cast<double>(offset)});
    EXPECT_NEAR(to_us(made.line.clock.offset), -offset - 2, 0.01) << offset;
    EXPECT_THAT(made.line.notes, Contains(HasSubstr("the GPU's times are "))) << offset;
  }
  for (const int offset : {-6, 0, 6, 15}) {
    const Made made({.clock_us = static_cast<double>(offset)});
    EXPECT_FALSE(made.line.clock.is_off()) << offset;
    EXPECT_GE(made.line.clock.error, us(std::abs(offset))) << offset;
  }
}

// 100 parts in a million over 20 steps of 21.6 ms: 43 us.
TEST(GpuClockTest, ADriftIsARate) {
  for (const double drift : {1e-4, -1e-4}) {
    const Made made({.steps = 20, .drift = drift});
    EXPECT_NEAR(made.line.clock.rate, -drift, 2e-6);
    for (const GpuWork& work : made.line.works) {
      EXPECT_GE(work.start, made.line.calls[static_cast<std::size_t>(work.launch)].start);
    }
  }
}

TEST(GpuClockTest, AnIdleGpuThatWaitsForSomethingElseIsNoClock) {
  const Instant zero;
  // One launch of 40 us proves nothing; ten of 9 ms wait for something.
  EXPECT_FALSE(estimate_clock({{zero, zero + us(40), true}}, {}).is_off());
  std::vector<LaunchedWork> slow;
  for (int i = 0; i < 10; ++i) {
    slow.push_back({zero + us(100000 * i), zero + us(100000 * i + 9000), true});
  }
  EXPECT_FALSE(estimate_clock(slow, {}).is_off());
  // A synchronise that names its stream returned 50 us before the end of the work.
  const GpuClock clock =
      estimate_clock({{zero, zero + us(80), false}}, {{zero + us(500), zero + us(550)}});
  EXPECT_EQ(clock.offset, us(-50));
}

}  // namespace
}  // namespace dovetail::imports

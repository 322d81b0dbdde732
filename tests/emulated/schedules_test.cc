// Legal schedules on the emulated device: every policy and option, random ones of the whole
// language, eagerly and as one graph, on several ranks. Values must be exact, weights those of the
// cpu backend, and no rule of the libraries broken.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/clock.h"
#include "exec/cpu/job.h"
#include "exec/measure.h"
#include "exec/training/program.h"
#include "schedule/policies/policies.h"
#include "tests/emulated/fixture.h"
#include "tests/emulated/job.h"
#include "tests/exec/ahead.h"
#include "tests/exec/drawn.h"
#include "tests/exec/law.h"
#include "tests/exec/programs.h"
#include "tests/support/cases.h"
#include "traces/metrics.h"

#include <gmock/gmock.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dovetail::emulated {
namespace {

using exec::cuda::BackendOptions;
using exec::cuda::Issue;
using exec::testing::Combination;
using exec::testing::legal_plan;
using exec::training::Embedding;
using schedule::ScheduledProgram;

constexpr std::int32_t kTrainingSteps = 5;

class SchedulesTest : public EmulatedTest {
 protected:
  // What was held against what must come out, for a log of the tests.
  void TearDown() override {
    RecordProperty("runs", runs_);
    RecordProperty("elements", std::to_string(checked_));
    RecordProperty("trained", trained_);
    EmulatedTest::TearDown();
  }
  // Each run under an order of its own.
  void expect_exact(const ScheduledProgram& plan, BackendOptions options = {}) {
    for (const Issue issue : {Issue::Eager, Issue::Graph}) {
      SCOPED_TRACE(issue == Issue::Graph ? "graph" : "eager");
      const std::vector<std::string> before = take_complaints();
      EXPECT_THAT(before, ::testing::IsEmpty());
      configure({.devices = static_cast<std::int32_t>(plan.program.world_size), .seed = ++seed_});
      options.issue = issue;
      const Outcome outcome = run_job(plan, options);
      EXPECT_EQ(outcome.error, "");
      EXPECT_EQ(outcome.check.wrong, 0) << outcome.check.first_wrong;
      EXPECT_GT(outcome.check.checked, 0);
      checked_ += outcome.check.checked;
      ++runs_;
    }
  }
  void expect_weights(const ScheduledProgram& plan,
                      const exec::training::Hyperparameters& hyperparameters) {
    const exec::testing::Trained reference =
        exec::testing::train(plan, kTrainingSteps, hyperparameters);
    for (const Issue issue : {Issue::Eager, Issue::Graph}) {
      SCOPED_TRACE(issue == Issue::Graph ? "training, graph" : "training, eager");
      configure({.devices = static_cast<std::int32_t>(plan.program.world_size), .seed = ++seed_});
      BackendOptions options;
      options.issue = issue;
      options.content = exec::cuda::Content::TrainingJob;
      options.hyperparameters = hyperparameters;
      const Outcome outcome = run_job(plan, options, {.warmup = 0, .steps = kTrainingSteps});
      EXPECT_EQ(outcome.error, "");
      EXPECT_EQ(exec::testing::differences(reference, outcome.trained), "");
      EXPECT_EQ(outcome.trained.disagreement, "");
      ++trained_;
    }
  }
  void expect_exact(const Combination& combination, const BackendOptions& options = {}) {
    SCOPED_TRACE(exec::testing::to_string(combination));
    expect_exact(legal_plan(exec::training::training_program(combination.options),
                            exec::testing::schedule_of(combination)),
                 options);
  }

  // As typed, on two ranks.
  void expect_exact(const char* policy) {
    SCOPED_TRACE(policy);
    const schedule::Program program = exec::training::training_program({.samples = 2});
    expect_exact(
        legal_plan(program, schedule::make_schedule(program, schedule::parse_policy(policy))));
  }

  std::uint64_t seed_ = 0;
  std::int64_t checked_ = 0;
  int runs_ = 0;
  int trained_ = 0;
};

TEST_F(SchedulesTest, EveryPolicyIsExact) {
  for (const char* policy :
       {"naive", "no-overlap", "no-overlap-per-tensor", "per-tensor", "one-bucket",
        "threshold:cap=4KiB", "torch-ddp:cap=8KiB,first=1KiB", "source-first-fit:elements=2000",
        "source-first-fit:elements=2000,fuse=no", "source-first-fit:elements=2000,overlap=no",
        "source-improved:cap=8KiB", "gradient-merge:k=2,sync=every",
        "gradient-merge:k=2,sync=after", "gradient-merge:k=2,sync=last",
        "sharded:cap=8KiB,p=1,gather=after-update", "sharded:cap=4KiB,p=3,gather=next-forward"}) {
    expect_exact(policy);
  }
}

// An eager step and the graph's first launch, then three more launches, which are measured.
TEST_F(SchedulesTest, AGraphIsLaunchedOnceBeforeItIsMeasured) {
  BackendOptions options;
  options.issue = Issue::Graph;
  const Outcome outcome = run_job(exec::testing::in_two_buckets(1), options,
                                  {.warmup = exec::cuda::kGraphWarmup, .steps = 3});
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(counts().graph_launches, 1 + 3);
}

// Parameters that are gathered before each use and freed behind it.
TEST_F(SchedulesTest, ParametersThatComeAndGoAreExactAndTrain) {
  for (const char* policy :
       {"fsdp:prefetch=1", "fsdp:prefetch=0,mode=copy", "fsdp:prefetch=2,limit=2,streams=2",
        "fsdp:reshard=no", "fsdp:k=2,prefetch=2,streams=2"}) {
    expect_exact(policy);
  }
  const Combination combination = {.options = {.samples = 2},
                                   .policy = "fsdp:prefetch=1,mode=copy"};
  expect_weights(legal_plan(exec::training::training_program(combination.options),
                            exec::testing::schedule_of(combination)),
                 exec::testing::hyperparameters(combination));
}

// What is freed is spoiled: whoever reads it before it is gathered again is found by its value.
TEST_F(SchedulesTest, FreedParametersThatAreReadAreFound) {
  const schedule::Program program = exec::testing::three_layers(2);
  const auto plan = [&](const char* policy) {
    return exec::testing::plan_of(program,
                                  schedule::make_schedule(program, schedule::parse_policy(policy)));
  };
  const auto expect_found = [&](const ScheduledProgram& broken, const char* words) {
    configure({.devices = 2, .seed = ++seed_});
    const Outcome outcome = run_job(broken, {});
    EXPECT_GT(outcome.check.wrong, 0);
    EXPECT_THAT(outcome.check.first_wrong, ::testing::HasSubstr(words));
    static_cast<void>(take_complaints());
  };
  // a and b are gathered for forward, c for both, b and a for backward.
  expect_found(exec::testing::without_gather(plan("fsdp:prefetch=1"), 3), "as b.backward read it");
  for (const char* policy : {"fsdp:prefetch=1", "fsdp:prefetch=1,mode=copy"}) {
    SCOPED_TRACE(policy);
    expect_found(exec::testing::released_before(plan(policy), "b.forward"), "as b.forward read it");
  }
}

TEST_F(SchedulesTest, EveryWaitModeAndBatchIsExact) {
  for (const char* policy :
       {"threshold:cap=4KiB,mode=copy", "threshold:cap=4KiB,scope=whole-stream",
        "threshold:cap=4KiB,wait=end-of-backward", "threshold:cap=2KiB,batch=2",
        "threshold:cap=2KiB,batch=2,wait=before-next-batch",
        "threshold:cap=4KiB,mode=copy,wait=end-of-backward,scope=whole-stream"}) {
    expect_exact(policy);
  }
}

TEST_F(SchedulesTest, EveryScalingIsExactByKernelsAndByCollectives) {
  BackendOptions folded;
  folded.scales = exec::cuda::Scales::Collectives;
  for (const schedule::ScaleAt scale :
       {schedule::ScaleAt::Collective, schedule::ScaleAt::LossGradient,
        schedule::ScaleAt::Optimizer, schedule::ScaleAt::BeforeCollective,
        schedule::ScaleAt::AfterCollective}) {
    const Combination combination = {
        .options = {.samples = 2}, .policy = "threshold:cap=4KiB", .scale = scale};
    expect_exact(combination);
    expect_exact(combination, folded);
  }
}

TEST_F(SchedulesTest, PipelinesAreExact) {
  using schedule::PipelineKind;
  for (const PipelineKind kind : kAllOf<PipelineKind>) {
    const bool has_chunks = kind == PipelineKind::Interleaved || kind == PipelineKind::Zbv;
    for (const std::int32_t parallel : {1, 2}) {
      expect_exact({.options = {.world_size = 2 * parallel,
                                .stages = 2,
                                .chunks = has_chunks ? 2 : 1,
                                .stage_map = schedule::stage_map_of(kind),
                                .samples = 2,
                                .blocks = 4,
                                .embedding = Embedding::Untied},
                    .policy = "source-improved:cap=8KiB",
                    .merge = {.micro_steps = 4, .sync = schedule::SyncPoint::LastMicroStep},
                    .pipeline = {.kind = kind, .alignment = schedule::LaunchAlignment::PerStage}});
    }
  }
}

TEST_F(SchedulesTest, EightRanksAreExact) {
  for (const char* policy : {"threshold:cap=4KiB", "sharded:cap=8KiB,p=2"}) {
    expect_exact({.options = {.world_size = 8, .samples = 1}, .policy = policy});
  }
}

// Two hosts of four ranks, the second one's clock a day ahead: values are exact, and a step does not
// take a day.
TEST_F(SchedulesTest, TwoHostsOfFourRanksAreExactAndHaveOneClock) {
  constexpr std::int64_t kDay = 86'400'000'000'000;
  const schedule::Program program =
      exec::training::training_program({.world_size = 8, .samples = 1});
  const ScheduledProgram plan = legal_plan(
      program, schedule::make_schedule(program, schedule::parse_policy("threshold:cap=4KiB")));
  configure({.devices = 8, .seed = 8});
  on_ranks(8, [&](exec::launch::Session& session) {
    const std::int32_t host = session.rank().value / 4;
    exec::Exchange exchange = exec::cpu::exchange_of(session);
    exchange.clock_id = "host " + std::to_string(host);
    exchange.clock = [host] { return exec::now_ns() + host * kDay; };
    exec::testing::Ahead backend(make_backend(plan, {}, session), host * kDay);
    const exec::Lane lane = {.plan = &plan, .backend = &backend};
    const exec::Measured measured =
        exec::measure(exchange, std::span(&lane, 1), {.warmup = 1, .steps = 2}, {});
    EXPECT_EQ(measured.checks[0].wrong, 0) << measured.checks[0].first_wrong;
    EXPECT_GT(measured.checks[0].checked, 0);
    if (session.rank() != Rank{0}) return;
    for (const Duration step : traces::step_times(measured.traces[0])) {
      EXPECT_LT(step, std::chrono::hours(1));
    }
  });
}

// As a trainer would time a step: one span from its first command to its last, on whatever stream.
TEST_F(SchedulesTest, TwoEventsSpanAStep) {
  const ScheduledProgram plan = exec::testing::in_two_buckets(2);
  for (const Issue issue : {Issue::Eager, Issue::Graph}) {
    SCOPED_TRACE(issue == Issue::Graph ? "graph" : "eager");
    configure({.devices = 2, .seed = ++seed_});
    on_ranks(2, [&](exec::launch::Session& session) {
      BackendOptions options;
      options.issue = issue;
      options.events = exec::cuda::StepEvents::TwoPerStep;
      const auto backend = make_backend(plan, options, session);
      const exec::RankResult result =
          exec::run(plan, session.rank(), *backend, {.warmup = 2, .steps = 3});
      EXPECT_EQ(result.check.wrong, 0) << result.check.first_wrong;
      EXPECT_GT(result.check.checked, 0);
      ASSERT_EQ(result.timings.size(), 3U);
      for (const exec::Timing& timing : result.timings) {
        EXPECT_EQ(timing.stream, schedule::kComputeStream);
        EXPECT_GT(timing.end_ns, timing.start_ns);
      }
    });
  }
}

TEST_F(SchedulesTest, GroupsOfSeveralRanksAreExact) {
  const schedule::Program program =
      exec::testing::three_layers_in_pairs(exec::testing::Owes::Pairs);
  expect_exact(exec::testing::plan_of(program, exec::testing::two_buckets_of(program)));
}

// Steps that reduce nothing (--exposed runs them) have no reduced values to be right or wrong.
TEST_F(SchedulesTest, WithoutCommunicationNothingIsChecked) {
  const schedule::Program program = exec::testing::three_layers(2);
  const ScheduledProgram plan = exec::testing::without(
      exec::testing::plan_of(program, exec::testing::two_buckets_of(program)),
      [](const schedule::Command& command) {
        return !std::holds_alternative<schedule::RunOp>(command.action);
      });
  configure({.devices = 2});
  const Outcome outcome = run_job(plan, {});
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.check.checked, 0);
  EXPECT_EQ(outcome.check.wrong, 0);
}

// Without any one of its waits a schedule is a race, whatever its values come to in this run.
TEST_F(SchedulesTest, EveryDroppedWaitIsFound) {
  const ScheduledProgram plan = exec::testing::in_two_buckets(1);
  std::int64_t waits = 0;
  for (const schedule::Command& command : plan.roles.front().commands) {
    waits += std::holds_alternative<schedule::WaitEvent>(command.action) ? 1 : 0;
  }
  ASSERT_GT(waits, 2);
  std::int64_t seen_by_values = 0;
  for (std::int64_t dropped = 0; dropped < waits; ++dropped) {
    configure({.seed = static_cast<std::uint64_t>(dropped), .dropped_wait = dropped});
    const Outcome outcome = run_job(plan, {}, {.warmup = 0, .steps = 2});
    EXPECT_THAT(take_complaints(), ::testing::Contains(::testing::HasSubstr("race")))
        << "wait " << dropped;
    seen_by_values += outcome.check.wrong > 0 ? 1 : 0;
  }
  RecordProperty("waits", static_cast<int>(waits));
  RecordProperty("seen_by_values", static_cast<int>(seen_by_values));
}

// Random schedules of the whole language; each part has seeds of its own.
constexpr int kParts = 4;
constexpr int kWanted = testing::cases(40);

class RandomSchedulesTest : public SchedulesTest, public ::testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Part, RandomSchedulesTest, ::testing::Range(0, kParts));

TEST_P(RandomSchedulesTest, AreExactAndEveryThirdTrainsAsTheCpuBackend) {
  int legal = 0;
  for (std::uint64_t seed = 5000 + 1000 * static_cast<std::uint64_t>(GetParam());
       legal < kWanted / kParts; ++seed) {
    const std::optional<exec::testing::Drawn> drawn = exec::testing::draw(seed, 2);
    if (!drawn) continue;
    SCOPED_TRACE("seed " + std::to_string(seed));
    BackendOptions backend;
    backend.scales = seed % 2 == 0 ? exec::cuda::Scales::Kernels : exec::cuda::Scales::Collectives;
    expect_exact(drawn->plan, backend);
    if (++legal % 3 != 0) continue;
    expect_weights(
        drawn->plan,
        exec::testing::hyperparameters(
            {.options = drawn->options, .policy = "", .merge = drawn->source.schedule.merge}));
  }
}

}  // namespace
}  // namespace dovetail::emulated

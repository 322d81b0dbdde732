// The cuda backend on a real GPU, one rank: exact values eagerly and from a graph, in every element
// type, and timings that make sense. Skipped where the module or a GPU is missing.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/clock.h"
#include "exec/cuda/stand_in.h"
#include "exec/run.h"
#include "exec/training/program.h"
#include "schedule/program.h"
#include "tests/exec/cuda_module.h"
#include "tests/exec/programs.h"
#include "tests/exec/training_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace dovetail::exec::cuda {
namespace {

using schedule::Collective;
using schedule::Command;
using schedule::DType;
using schedule::ScheduledProgram;

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const testing::FoundModule found = testing::find_cuda_module();
    if (found.module == nullptr) GTEST_SKIP() << found.missing;
    module_ = found.module;
    options_.exchange = exec::alone();
  }

  // Runs the plan; its backend is gone afterwards.
  RankResult run(const ScheduledProgram& plan, std::int32_t steps = 3) {
    const std::unique_ptr<Backend> backend = module_->make_backend(plan, options_);
    return exec::run(plan, Rank{0}, *backend, {.warmup = 2, .steps = steps});
  }
  void expect_exact(const ScheduledProgram& plan) {
    const RankResult result = run(plan);
    EXPECT_GT(result.check.checked, 0);
    EXPECT_EQ(result.check.wrong, 0) << result.check.first_wrong;
  }

  const Module* module_ = nullptr;
  BackendOptions options_;
};

ScheduledProgram plan_for_one(DType dtype = DType::F32,
                              schedule::BucketMode mode = schedule::BucketMode::Copy) {
  schedule::Program program = testing::three_layers(1);
  for (schedule::Tensor& tensor : program.tensors) tensor.dtype = dtype;
  schedule::Schedule schedule = testing::two_buckets_of(program);
  for (schedule::Bucket& bucket : schedule.buckets) bucket.mode = mode;
  return testing::plan_of(program, schedule);
}

TEST_F(CudaDeviceTest, EagerStepsGiveExactValues) {
  expect_exact(plan_for_one());
  expect_exact(plan_for_one(DType::F32, schedule::BucketMode::View));
}

TEST_F(CudaDeviceTest, OneGraphServesAllSteps) {
  options_.issue = Issue::Graph;
  const RankResult result = run(plan_for_one(), 6);
  EXPECT_GT(result.check.checked, 0);
  EXPECT_EQ(result.check.wrong, 0) << result.check.first_wrong;
}

TEST_F(CudaDeviceTest, EveryElementTypeIsExact) {
  for (const DType dtype : {DType::F16, DType::BF16, DType::F64}) {
    SCOPED_TRACE(schedule::to_string(dtype));
    expect_exact(plan_for_one(dtype));
  }
}

TEST_F(CudaDeviceTest, ALostPackIsFound) {
  const ScheduledProgram plan = testing::without(plan_for_one(), [](const Command& command) {
    const auto* copy = std::get_if<schedule::Copy>(&command.action);
    return copy != nullptr && copy->direction == schedule::CopyDirection::Pack;
  });
  const RankResult result = run(plan);
  EXPECT_GT(result.check.wrong, 0);
  EXPECT_THAT(result.check.first_wrong, ::testing::HasSubstr("as the optimizer read it"));
}

TEST_F(CudaDeviceTest, AGlobalNormIsRight) {
  const schedule::Program program = testing::three_layers(1, testing::Clip::GlobalNorm);
  expect_exact(testing::plan_of(program, testing::two_buckets_of(program)));
}

TEST_F(CudaDeviceTest, AStandInPlaysThePlanOfManyRanks) {
  const schedule::Program program = testing::three_layers(4);
  schedule::Schedule schedule = testing::two_buckets_of(program);
  schedule.buckets[0].collective = Collective::ReduceScatter;
  schedule.buckets[1].max_ctas = 4;
  options_.stand_in = StandIn::SendToSelf;
  for (const Issue issue : {Issue::Eager, Issue::Graph}) {
    options_.issue = issue;
    const RankResult result = run(as_one_rank(testing::plan_of(program, schedule)));
    EXPECT_EQ(result.check.checked, 0);
    EXPECT_FALSE(result.timings.empty());
  }
}

// The law on the GPU: a genuine training job has the weights of the cpu backend, whatever the
// schedule and however its steps are issued.
TEST_F(CudaDeviceTest, ATrainingJobHasTheWeightsOfTheCpuBackend) {
  constexpr std::int32_t kSteps = 5;
  const schedule::Program program = training::training_program({.world_size = 1});
  std::vector<TensorId> gradients;
  for (const schedule::OwedGradient& owed : schedule::owed_gradients(program)) {
    gradients.push_back(owed.tensor);
  }
  std::vector<std::vector<schedule::Slice>> one_each;
  std::vector<schedule::Slice> together;
  for (const TensorId gradient : gradients) {
    one_each.push_back({schedule::Slice(gradient)});
    together.push_back(schedule::Slice(gradient));
  }
  const ScheduledProgram alone = testing::plan_of(program, testing::buckets_of(program, one_each));
  const ScheduledProgram fused =
      testing::plan_of(program, testing::buckets_of(program, {together}));
  const testing::Trained reference = testing::train(alone, kSteps);
  options_.content = Content::TrainingJob;
  for (const ScheduledProgram* plan : {&alone, &fused}) {
    for (const Issue issue : {Issue::Eager, Issue::Graph}) {
      options_.issue = issue;
      const std::unique_ptr<Backend> backend = module_->make_backend(*plan, options_);
      exec::run(*plan, Rank{0}, *backend, {.warmup = 0, .steps = kSteps});
      testing::Trained found;
      const training::Trained trained = module_->trained(*backend);
      for (const training::TrainedRange& range : trained.weights) {
        found.weights[program.tensor(range.parameter).name] = range.values;
      }
      EXPECT_EQ(testing::differences(reference, found), "");
      ASSERT_EQ(trained.losses.size(), reference.losses.size());
      for (std::size_t i = 0; i < trained.losses.size(); ++i) {
        EXPECT_NEAR(trained.losses[i], reference.losses[i], 1e-5);
      }
    }
  }
}

TEST_F(CudaDeviceTest, SpansOfOneStreamFollowEachOtherWithinTheStep) {
  const std::int64_t before = now_ns();
  const RankResult result = run(plan_for_one());
  const std::int64_t after = now_ns();
  constexpr std::int64_t kClockError = 1'000'000;  // generous: 1 ms
  std::map<StreamId, std::int64_t> end;
  ASSERT_FALSE(result.timings.empty());
  std::vector<Timing> timings = result.timings;
  std::ranges::stable_sort(timings, {}, &Timing::step);
  for (const Timing& timing : timings) {
    EXPECT_GE(timing.start_ns, end[timing.stream]);
    EXPECT_GE(timing.end_ns, timing.start_ns);
    EXPECT_GT(timing.start_ns, before - kClockError);
    EXPECT_LT(timing.end_ns, after + kClockError);
    end[timing.stream] = timing.end_ns;
  }
}

TEST_F(CudaDeviceTest, NotesSayWhatWasSubtracted) {
  const ScheduledProgram plan = plan_for_one();
  const std::unique_ptr<Backend> backend = module_->make_backend(plan, options_);
  const auto notes = module_->notes(*backend);
  ASSERT_EQ(notes.count("empty pair of events"), 1U);
  EXPECT_THAT(notes.at("empty pair of events"), ::testing::HasSubstr("subtracted"));
}

}  // namespace
}  // namespace dovetail::exec::cuda

// The law of the house, on a genuine training job: a legal Schedule changes time, never results.
//
// Ten steps under every policy and combination of options end with the weights of the naive
// synchronous program (reduce, then scale, after each producer, on the compute stream), within the
// tolerance of upstream's own acceptance test (P32): rtol 1e-5, atol 1e-8.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/error.h"
#include "exec/training/program.h"
#include "schedule/policies.h"
#include "tests/exec/training_job.h"

#include <string>
#include <vector>

namespace dovetail::exec::testing {
namespace {

using schedule::Merge;
using schedule::ParameterSync;
using schedule::Program;
using schedule::ReduceOp;
using schedule::ScaleAt;
using schedule::Schedule;
using schedule::SyncPoint;
using training::Embedding;
using training::Optimizer;
using training::SecondOrder;
using training::training_program;
using training::TrainingOptions;

constexpr std::int32_t kSteps = 10;

Schedule policy(const Program& program, const std::string& text) {
  return schedule::make_schedule(program, schedule::parse_policy(text));
}

training::Hyperparameters hyperparameters(const TrainingOptions& options) {
  training::Hyperparameters result;
  result.max_norm = options.max_norm;
  return result;
}

Trained train_with(const TrainingOptions& options, const Schedule& schedule) {
  return train(legal_plan(training_program(options), schedule), kSteps, hyperparameters(options));
}

Trained naive(const TrainingOptions& options) {
  return train_with(options, policy(training_program(options), "naive"));
}

const std::vector<std::string>& bucket_policies() {
  static const std::vector<std::string> kPolicies = {
      "naive",
      "no-overlap",
      "per-tensor",
      "one-bucket",
      "threshold:threshold=4KiB",
      "threshold:threshold=4KiB,mode=copy,wait=end-of-backward,scope=whole-stream",
      "torch-ddp:cap=8KiB,first=1KiB",
      "source-first-fit:elements=2000",
      "source-improved:cap=8KiB"};
  return kPolicies;
}

// Every model variant that changes what a Schedule must respect.
std::vector<TrainingOptions> variants() {
  std::vector<TrainingOptions> result;
  for (const Embedding embedding : {Embedding::OneTensor, Embedding::TwoParts}) {
    for (const Optimizer optimizer : {Optimizer::Momentum, Optimizer::Adam}) {
      result.push_back({.embedding = embedding, .optimizer = optimizer});
    }
  }
  result.push_back({.second_order = SecondOrder::Penalised});
  result.push_back({.max_norm = 0.5});
  result.push_back({.optimizer = Optimizer::Adam, .max_norm = 0.5});
  return result;
}

TEST(LawTest, TheJobLearns) {
  for (const Optimizer optimizer : {Optimizer::Momentum, Optimizer::Adam}) {
    const TrainingOptions options = {.samples = 32, .optimizer = optimizer};
    const Program program = training_program(options);
    const Trained trained = train(legal_plan(program, policy(program, "naive")), 60);
    EXPECT_LT(trained.losses.back(), 0.7 * trained.losses.front());
    EXPECT_EQ(trained.disagreement, "");
  }
}

TEST(LawTest, TheSameScheduleGivesTheSameBits) {
  const TrainingOptions options = {.optimizer = Optimizer::Adam};
  const Schedule schedule = policy(training_program(options), "threshold:threshold=4KiB");
  const Trained first = train_with(options, schedule);
  EXPECT_EQ(first.weights, train_with(options, schedule).weights);
}

TEST(LawTest, PI1EveryPolicyAndScalingGivesTheWeightsOfTheNaiveProgram) {
  for (const TrainingOptions& options : variants()) {
    const Program program = training_program(options);
    const Trained reference = naive(options);
    EXPECT_EQ(reference.disagreement, "");
    int refused = 0;
    for (const std::string& text : bucket_policies()) {
      for (const ScaleAt scale :
           {ScaleAt::Collective, ScaleAt::BeforeCollective, ScaleAt::AfterCollective,
            ScaleAt::LossGradient, ScaleAt::Optimizer}) {
        Schedule schedule = policy(program, text);
        schedule.scale = scale;
        SCOPED_TRACE(schedule.policy + " scale " + std::string(to_string(scale)));
        try {
          const Trained other = train_with(options, schedule);
          EXPECT_EQ(differences(reference, other), "");
          EXPECT_EQ(other.disagreement, "");
        } catch (const InputError& error) {
          ++refused;
          EXPECT_NE(std::string(error.what()).find("scal"), std::string::npos) << error.what();
        }
      }
    }
    // Adam has no rescale factor: folding into it is refused for each policy, nothing else is.
    const bool adam = options.optimizer == Optimizer::Adam;
    EXPECT_EQ(refused, adam ? static_cast<int>(bucket_policies().size()) : 0);
  }
}

TEST(LawTest, GMI1GMI2EveryMergePolicyEqualsOneBatchOfKMicroBatches) {
  for (const Optimizer optimizer : {Optimizer::Momentum, Optimizer::Adam}) {
    for (const double max_norm : {0.0, 0.5}) {
      for (const std::int32_t k : {2, 3, 4}) {
        TrainingOptions options = {.samples = 4 * k, .optimizer = optimizer, .max_norm = max_norm};
        const Trained reference = naive(options);
        options.samples = 4;
        const Program program = training_program(options);
        for (const SyncPoint sync :
             {SyncPoint::EveryMicroStep, SyncPoint::AfterLastMicroStep, SyncPoint::LastMicroStep}) {
          for (const ScaleAt scale :
               {ScaleAt::Collective, ScaleAt::AfterCollective, ScaleAt::LossGradient}) {
            Schedule schedule = policy(program, "threshold:threshold=4KiB");
            schedule.merge = {.micro_steps = k, .op = ReduceOp::Average, .sync = sync};
            schedule.scale = scale;
            SCOPED_TRACE("k " + std::to_string(k) + " sync " + std::string(to_string(sync)) +
                         " scale " + std::string(to_string(scale)));
            const Trained merged = train_with(options, schedule);
            EXPECT_EQ(differences(reference, merged), "");
            EXPECT_EQ(merged.disagreement, "");  // GMI6
          }
        }
      }
    }
  }
}

// Without the average the gradient is k times as large, as is a learning rate k times as high.
TEST(LawTest, GMI5ASumOfMicroStepsIsKTimesTheirAverage) {
  const TrainingOptions options = {};
  const Program program = training_program(options);
  Schedule schedule = policy(program, "threshold:threshold=4KiB");
  schedule.merge = {.micro_steps = 4, .op = ReduceOp::Average};
  training::Hyperparameters fast;
  fast.learning_rate *= 4;
  const Trained average = train(legal_plan(program, schedule), kSteps, fast);
  schedule.merge.op = ReduceOp::Sum;
  const Trained sum = train(legal_plan(program, schedule), kSteps);
  EXPECT_EQ(differences(average, sum), "");
}

TEST(LawTest, AI1AShardedOptimizerGivesTheWeightsOfTheNaiveProgram) {
  for (const TrainingOptions& options : variants()) {
    if (options.embedding == Embedding::TwoParts) continue;  // the update reads an unsharded sum
    const Program program = training_program(options);
    const Trained reference = naive(options);
    for (const char* gather : {"after-update", "next-forward"}) {
      for (const int p : {1, 2, 3}) {
        for (const ScaleAt scale : {ScaleAt::Collective, ScaleAt::AfterCollective}) {
          Schedule schedule =
              policy(program, "sharded:cap=8KiB,p=" + std::to_string(p) + ",gather=" + gather);
          schedule.scale = scale;
          SCOPED_TRACE(schedule.policy + " scale " + std::string(to_string(scale)));
          const Trained sharded = train_with(options, schedule);
          EXPECT_EQ(differences(reference, sharded), "");
          EXPECT_EQ(sharded.disagreement, "");
        }
      }
    }
  }
}

TEST(LawTest, AI2AShardedOptimizerWithMicroStepsEqualsOneLargeBatch) {
  TrainingOptions options = {.samples = 8, .optimizer = Optimizer::Adam, .max_norm = 0.5};
  const Trained reference = naive(options);
  options.samples = 4;
  const Program program = training_program(options);
  for (const SyncPoint sync : {SyncPoint::AfterLastMicroStep, SyncPoint::LastMicroStep}) {
    Schedule schedule = policy(program, "sharded:cap=8KiB,p=2");
    schedule.merge = {.micro_steps = 2, .op = ReduceOp::Average, .sync = sync};
    SCOPED_TRACE(to_string(sync));
    EXPECT_EQ(differences(reference, train_with(options, schedule)), "");
  }
}

// 2 stages x 1 rank and 2 stages x 2 ranks against the same model on as many data-parallel ranks.
TEST(LawTest, AS1PipelinesGiveTheWeightsOfDataParallelTraining) {
  for (const std::int32_t parallel : {1, 2}) {
    TrainingOptions options = {.world_size = parallel,
                               .samples = 16,
                               .embedding = Embedding::Untied,
                               .optimizer = Optimizer::Adam};
    const Trained reference = naive(options);
    options.samples = 4;
    options.world_size = 2 * parallel;
    options.stages = 2;
    const Program program = training_program(options);
    for (const schedule::PipelineKind kind :
         {schedule::PipelineKind::Sequential, schedule::PipelineKind::OneFOneB}) {
      Schedule schedule = policy(program, "threshold:threshold=4KiB");
      schedule.merge = {.micro_steps = 4, .op = ReduceOp::Average};
      schedule.pipeline.kind = kind;
      SCOPED_TRACE(std::string(to_string(kind)) + " x " + std::to_string(parallel));
      const Trained piped = train_with(options, schedule);
      EXPECT_EQ(differences(reference, piped), "");
      EXPECT_EQ(piped.disagreement, "");
    }
  }
}

}  // namespace
}  // namespace dovetail::exec::testing

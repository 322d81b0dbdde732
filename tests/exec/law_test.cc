// The law of the house, on a genuine training job: a legal Schedule changes time, never results.
//
// Ten steps (four with micro-steps, stages or shards) under every policy and combination of options end with the weights of the naive
// synchronous program (reduce, then scale, after each producer, on the compute stream), within the
// tolerance of upstream's own acceptance test (P32): rtol 1e-5, atol 1e-8. What is refused is
// refused before anything runs, in the words of the rule that applies, and is counted.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/law.h"

#include "schedule/policies/policies.h"
#include "tests/support/cases.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

namespace dovetail::exec::testing {
namespace {

using schedule::Merge;
using schedule::PipelineKind;
using schedule::Program;
using schedule::ReduceOp;
using schedule::ScaleAt;
using schedule::SyncPoint;
using training::Embedding;
using training::Optimizer;
using training::SecondOrder;
using training::training_program;
using training::TrainingOptions;

constexpr ScaleAt kScales[] = {ScaleAt::Collective, ScaleAt::BeforeCollective,
                               ScaleAt::AfterCollective, ScaleAt::LossGradient, ScaleAt::Optimizer};

const std::vector<std::string>& whole_policies() {
  static const std::vector<std::string> kPolicies = {
      "naive",
      "no-overlap",
      "no-overlap-per-tensor",
      "per-tensor",
      "one-bucket",
      "threshold:cap=4KiB",
      "threshold:cap=4KiB,mode=copy,wait=end-of-backward,scope=whole-stream",
      "threshold:cap=2KiB,batch=2",
      "torch-ddp:cap=8KiB,first=1KiB",
      "source-first-fit:elements=2000",
      "source-improved:cap=8KiB"};
  return kPolicies;
}

// Batches of p buckets, gathered after the update or in the next forward.
const std::vector<std::string>& sharded_policies() {
  static const std::vector<std::string> kPolicies = {
      "sharded:cap=8KiB,p=1,gather=after-update", "sharded:cap=8KiB,p=1,gather=next-forward",
      "sharded:cap=8KiB,p=2,gather=after-update", "sharded:cap=8KiB,p=2,gather=next-forward",
      "sharded:cap=4KiB,p=3,gather=after-update", "sharded:cap=4KiB,p=3,gather=next-forward"};
  return kPolicies;
}

// Parameters gathered before each use: flat or copied, ahead or not, within limits.
const std::vector<std::string>& fully_sharded_policies() {
  static const std::vector<std::string> kPolicies = {"fsdp:prefetch=1", "fsdp:prefetch=0,mode=copy",
                                                     "fsdp:prefetch=2,limit=2,streams=2",
                                                     "fsdp:cap=4KiB,reshard=no,mode=copy"};
  return kPolicies;
}

// Every variant of the model that changes what a Schedule must respect.
std::vector<TrainingOptions> law_variants() {
  std::vector<TrainingOptions> result;
  for (const Embedding embedding : {Embedding::OneTensor, Embedding::TwoParts}) {
    for (const Optimizer optimizer : {Optimizer::Momentum, Optimizer::Adam}) {
      result.push_back({.samples = 4, .embedding = embedding, .optimizer = optimizer});
    }
  }
  result.push_back({.samples = 4, .second_order = SecondOrder::Penalised});
  result.push_back({.samples = 4, .max_norm = 0.5});
  result.push_back({.samples = 4, .optimizer = Optimizer::Adam, .max_norm = 0.5});
  return result;
}

// k = 2 and 4, averages and sums, every sync.
std::vector<Merge> merges() {
  std::vector<Merge> result;
  for (const std::int32_t k : {2, 4}) {
    for (const ReduceOp op : {ReduceOp::Average, ReduceOp::Sum}) {
      for (const SyncPoint sync :
           {SyncPoint::EveryMicroStep, SyncPoint::AfterLastMicroStep, SyncPoint::LastMicroStep}) {
        result.push_back({.micro_steps = k, .op = op, .sync = sync});
      }
    }
  }
  return result;
}

// Why a combination may be refused, and whether it must be.
struct Rule {
  bool applies = false;
  bool must = false;
  std::string words;
};

std::vector<Rule> rules(const Combination& combination) {
  const TrainingOptions& options = combination.options;
  const Merge& merge = combination.merge;
  const bool two_parts = options.embedding == Embedding::TwoParts;
  const bool penalised = options.second_order == SecondOrder::Penalised;
  const bool is_read = two_parts || penalised;  // in backward, reduced
  const bool sharded =
      combination.policy.starts_with("sharded") || combination.policy.starts_with("fsdp");
  const bool merged = merge.micro_steps > 1;
  const bool every = merged && merge.sync == SyncPoint::EveryMicroStep;
  const bool in_optimizer = combination.scale == ScaleAt::Optimizer;
  const bool in_loss = combination.scale == ScaleAt::LossGradient;
  const bool in_collective = combination.scale == ScaleAt::Collective;
  return {
      // P11: the factor must have a place.
      {in_optimizer && options.optimizer == Optimizer::Adam, true, "has no rescale factor"},
      {in_optimizer && two_parts, true, "no update reads gradient embedding.output.grad"},
      {(in_optimizer || in_loss) && penalised, true, "reads the reduced gradient block1.b2.grad"},
      // A reader in backward needs the reduced value in time, and whole.
      {is_read && !sharded, false, "is launched only later"},
      {is_read && sharded, true, "of which a rank would hold only its shard"},
      {is_read && merged && !every, true, "so it must be reduced in every micro-step"},
      // The average over micro-steps is in the sums, and parts that are read at once have none.
      {two_parts && every && in_collective && merge.op == ReduceOp::Average, false,
       "need different factors"},
  };
}

// After these every update has met a state that an update left and gradients of weights that it changed.
constexpr std::int32_t kFewSteps = 4;

class LawTest : public ::testing::Test {
 protected:
  // Holds, or is refused by a rule that applies; never held where a rule must refuse.
  void expect_law(const Combination& combination, Law::Runs runs = Law::Runs::Once) {
    if (!dovetail::testing::takes(asked_++)) {
      ++left_out_;
      return;
    }
    SCOPED_TRACE(to_string(combination));
    const std::optional<std::string> refusal = law_.hold(combination, runs);
    refused_ += refusal ? 1 : 0;
    bool is_known = false;
    for (const Rule& rule : rules(combination)) {
      if (!rule.applies) continue;
      EXPECT_TRUE(refusal || !rule.must) << "not refused, but expected: " << rule.words;
      is_known = is_known || (refusal && refusal->find(rule.words) != std::string::npos);
    }
    EXPECT_TRUE(!refusal || is_known) << "refused without a rule: " << *refusal;
  }

  // Of all combinations; where some are left out, only that they were asked for.
  void expect_counts(int held, int refused) {
    EXPECT_EQ(law_.held() + refused_ + left_out_, held + refused);
    if (left_out_ > 0) return;
    EXPECT_EQ(law_.held(), held);
    EXPECT_EQ(refused_, refused);
  }

  Law law_;
  int refused_ = 0;
  int left_out_ = 0;  // under a sanitizer

 private:
  std::size_t asked_ = 0;
};

TEST_F(LawTest, TheJobLearns) {
  for (const Optimizer optimizer : {Optimizer::Momentum, Optimizer::Adam}) {
    const TrainingOptions options = {.samples = 32, .optimizer = optimizer};
    const Trained trained = train(
        legal_plan(training_program(options), schedule_of({.options = options, .policy = "naive"})),
        60);
    EXPECT_LT(trained.losses.back(), 0.7 * trained.losses.front());
    EXPECT_EQ(trained.disagreement, "");
  }
}

// A law that holds for weights which nothing changes would be worth nothing.
TEST_F(LawTest, EveryVariantOfTheModelEndsElsewhere) {
  const std::vector<TrainingOptions> all = law_variants();
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      TrainingOptions same = all[i];
      same.embedding = all[j].embedding;
      const bool only_embedding = same.optimizer == all[j].optimizer &&
                                  same.second_order == all[j].second_order &&
                                  same.max_norm == all[j].max_norm;
      const Combination first = {.options = all[i], .policy = "naive"};
      const Combination second = {.options = all[j], .policy = "naive"};
      const std::string differs = differences(law_.reference(first), law_.reference(second));
      // One gradient or the sum of two: the same mathematics.
      EXPECT_EQ(differs.empty(), only_embedding) << to_string(first) << "; " << to_string(second);
    }
  }
}

// Of 7 law_variants x 11 policies x 5 scalings, Adam (3), two parts with momentum and the penalty refuse
// to scale in the optimizer, the penalty in the loss, and buckets too late for a reader in backward
// are refused as well. One variant a test.
class PolicyLawTest : public LawTest, public ::testing::WithParamInterface<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Variant, PolicyLawTest, ::testing::Range(std::size_t{0}, std::size_t{7}));

TEST_P(PolicyLawTest, P32PI1EveryPolicyAndScalingGivesTheWeightsOfTheNaiveProgram) {
  ASSERT_EQ(law_variants().size(), 7U);
  const TrainingOptions options = law_variants()[GetParam()];
  for (const std::string& policy : whole_policies()) {
    for (const ScaleAt scale : kScales) {
      const bool twice = scale == ScaleAt::AfterCollective;
      expect_law({.options = options, .policy = policy, .scale = scale},
                 twice ? Law::Runs::Twice : Law::Runs::Once);
    }
  }
  const bool penalised = options.second_order == SecondOrder::Penalised;
  const bool two_parts = options.embedding == Embedding::TwoParts;
  const bool adam = options.optimizer == Optimizer::Adam;
  const int without_a_place = penalised ? 2 * 11 : (two_parts || adam ? 11 : 0);
  EXPECT_EQ(law_.held() + refused_ + left_out_, 55);
  if (left_out_ > 0) return;
  if (penalised || two_parts) {  // a reader in backward
    EXPECT_GE(refused_, without_a_place);
    EXPECT_GE(law_.held(), penalised ? 20 : 33);
  } else {
    EXPECT_EQ(refused_, without_a_place);
  }
}

class FewStepsLawTest : public LawTest {
 protected:
  FewStepsLawTest() { law_ = Law(kFewSteps); }
};

TEST_F(FewStepsLawTest, A23AI1AI7AShardedOptimizerGivesTheWeightsOfTheNaiveProgram) {
  for (const TrainingOptions& options : law_variants()) {
    for (const std::string& policy : sharded_policies()) {
      for (const ScaleAt scale : kScales) {
        const bool twice = scale == ScaleAt::Collective;
        expect_law({.options = options, .policy = policy, .scale = scale},
                   twice ? Law::Runs::Twice : Law::Runs::Once);
      }
    }
  }
  // Two parts (2) and the penalty (1) need whole gradients: 3 x 30. Adam has no rescale: 2 x 6.
  expect_counts(108, 90 + 12);
}

TEST_F(FewStepsLawTest, FullyShardedParametersGiveTheWeightsOfTheNaiveProgram) {
  for (const TrainingOptions& options : law_variants()) {
    for (const std::string& policy : fully_sharded_policies()) {
      for (const std::int32_t k : {1, 2}) {
        expect_law({.options = options,
                    .policy = policy,
                    .scale = ScaleAt::Collective,
                    .merge = {.micro_steps = k}});
      }
    }
  }
  // Two parts (2) and the penalty (1) need whole gradients.
  expect_counts(4 * 4 * 2, 3 * 4 * 2);
}

// Each policy, scaling and merge meets one variant after the other, in three tests.
class MergeLawTest : public FewStepsLawTest, public ::testing::WithParamInterface<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Part, MergeLawTest, ::testing::Range(std::size_t{0}, std::size_t{3}));

TEST_P(MergeLawTest, GMI1GMI2GMI5GMI6EveryMergeEqualsOneBatchOfKMicroBatches) {
  const std::vector<TrainingOptions> models = law_variants();
  std::size_t next = 0;
  int here = 0;
  for (const std::vector<std::string>& policies : {whole_policies(), sharded_policies()}) {
    for (const std::string& policy : policies) {
      for (const ScaleAt scale : kScales) {
        for (const Merge& merge : merges()) {
          // Only the first of every three is run, by one of the tests: over a thousand otherwise.
          if (++next % 3 != 0 || next / 3 % 3 != GetParam()) continue;
          ++here;
          expect_law({.options = models[next / 3 % models.size()],
                      .policy = policy,
                      .scale = scale,
                      .merge = merge});
        }
      }
    }
  }
  EXPECT_EQ(next, 17U * 5 * 12);
  EXPECT_EQ(here, GetParam() == 1 ? 114 : 113);  // 340 in all
  EXPECT_EQ(law_.held() + refused_ + left_out_, here);
  EXPECT_GE(law_.held(), left_out_ > 0 ? 6 : 50);
}

// A gradient that owes an average over micro-steps and a clip: GMI8 with every sync.
TEST_F(FewStepsLawTest, GMI8ClippingSeesTheMergedReducedGradientOnce) {
  for (const Optimizer optimizer : {Optimizer::Momentum, Optimizer::Adam}) {
    for (const Merge& merge : merges()) {
      expect_law({.options = {.samples = 4, .optimizer = optimizer, .max_norm = 0.5},
                  .policy = "threshold:cap=4KiB",
                  .merge = merge},
                 Law::Runs::Twice);
    }
  }
  EXPECT_EQ(refused_, 0);
}

// What one step of a plan issues: a step is k micro-steps and one update, so a run can neither stop
// between two micro-steps nor leave a remainder (GML6).
struct Issued {
  int collectives = 0, norms = 0, updates = 0, losses = 0;
  bool update_is_alone = true;  // nothing before the optimizer writes a parameter or its state
};
Issued issued_by(const schedule::ScheduledProgram& plan) {
  Issued issued;
  for (const schedule::Command& command : plan.roles.front().commands) {
    issued.collectives += schedule::bucket_collective(command) != nullptr ? 1 : 0;
    const auto run = schedule::op_run_by(command);
    if (!run) continue;
    const schedule::Op& op = plan.program.op(*run);
    issued.norms += std::holds_alternative<schedule::GlobalNorm>(op.effect) ? 1 : 0;
    issued.updates += std::holds_alternative<schedule::Update>(op.effect) ? 1 : 0;
    issued.losses += op.name.starts_with("loss.forward") ? 1 : 0;
    if (op.phase == schedule::Phase::Optimizer) continue;
    for (const TensorId id : op.writes) {
      const schedule::TensorKind kind = plan.program.tensor(id).kind;
      const bool persists =
          kind == schedule::TensorKind::Parameter || kind == schedule::TensorKind::OptimizerState;
      issued.update_is_alone = issued.update_is_alone && !persists;
    }
  }
  return issued;
}

// Nine parameters: the embedding, and two matrices and two biases in each of two blocks.
TEST_F(LawTest, GMI3GMI7OneUpdateAndOneClipPerStepWhateverTheMicroSteps) {
  const TrainingOptions options = {.samples = 4, .max_norm = 0.5};
  const Combination whole = {.options = options, .policy = "threshold:cap=4KiB"};
  const int buckets = static_cast<int>(schedule_of(whole).buckets.size());
  ASSERT_GT(buckets, 1);
  for (const Merge& merge : merges()) {
    Combination merged = whole;
    merged.merge = merge;
    SCOPED_TRACE(to_string(merged));
    const Issued issued = issued_by(legal_plan(training_program(options), schedule_of(merged)));
    const bool every = merge.sync == SyncPoint::EveryMicroStep;
    EXPECT_EQ(issued.losses, merge.micro_steps);
    EXPECT_EQ(issued.collectives, every ? merge.micro_steps * buckets : buckets);
    EXPECT_EQ(issued.norms, 1);
    EXPECT_EQ(issued.updates, 9);
    EXPECT_TRUE(issued.update_is_alone);
  }
}

// The sums of micro-steps in double: the cpu backend has no such memory and says so, before a step.
TEST_F(LawTest, SumsInAnotherDtypeAreRefusedBeforeAnythingRuns) {
  for (const SyncPoint sync :
       {SyncPoint::EveryMicroStep, SyncPoint::AfterLastMicroStep, SyncPoint::LastMicroStep}) {
    const std::optional<std::string> refusal =
        law_.hold({.options = {.samples = 4},
                   .policy = "threshold:cap=4KiB",
                   .merge = {.micro_steps = 2, .sync = sync, .dtype = schedule::DType::F64}});
    ASSERT_TRUE(refusal);
    EXPECT_NE(refusal->find("the cpu backend "), std::string::npos) << *refusal;
  }
}

// 2 stages x 1 rank and 2 stages x 2 ranks against the same model on as many data-parallel ranks.
class PipelineLawTest : public FewStepsLawTest {
 protected:
  // Both alignments under every policy on 2 x `parallel` ranks. `number` counts all such runs and
  // says what else varies.
  void expect_law_of(std::int32_t parallel, PipelineKind kind) {
    const std::size_t before =
        static_cast<std::size_t>(parallel - 1) * kAllOf<PipelineKind>.size() +
        static_cast<std::size_t>(kind);
    const bool has_chunks = kind == PipelineKind::Interleaved || kind == PipelineKind::Zbv;
    std::size_t number = before * 2 * (whole_policies().size() + sharded_policies().size());
    for (const schedule::LaunchAlignment alignment :
         {schedule::LaunchAlignment::PerStage, schedule::LaunchAlignment::AcrossStages}) {
      for (const std::vector<std::string>& policies : {whole_policies(), sharded_policies()}) {
        for (const std::string& policy : policies) {
          ++number;
          // Four ranks share the cores of the machine: every fourth is enough.
          if (parallel == 2 && number % 4 != 0) continue;
          const bool adam = number / 4 % 2 == 0;
          const bool is_last = number % 3 == 0;
          expect_law({.options = {.world_size = 2 * parallel,
                                  .stages = 2,
                                  .chunks = has_chunks ? 2 : 1,
                                  .stage_map = schedule::stage_map_of(kind),
                                  .samples = 4,
                                  .blocks = 4,
                                  .embedding = Embedding::Untied,
                                  .optimizer = adam ? Optimizer::Adam : Optimizer::Momentum},
                      .policy = policy,
                      .scale = kScales[number / 2 % 4],
                      .merge = {.micro_steps = number % 5 == 0 ? 2 : 4,
                                .sync = is_last ? SyncPoint::LastMicroStep
                                                : SyncPoint::AfterLastMicroStep},
                      .pipeline = {.kind = kind, .alignment = alignment}});
        }
      }
    }
    EXPECT_EQ(refused_, 0);
  }
};

// 2 alignments x 17 policies on two ranks.
TEST_F(PipelineLawTest, AS1AS2AS9SequentialStagesGiveTheWeightsOfDataParallelTraining) {
  expect_law_of(1, PipelineKind::Sequential);
  expect_counts(34, 0);
}
TEST_F(PipelineLawTest, AS1AS2AS9OneForwardOneBackwardGivesTheWeightsOfDataParallelTraining) {
  expect_law_of(1, PipelineKind::OneFOneB);
  expect_counts(34, 0);
}
TEST_F(PipelineLawTest, AS1AS2AS9InterleavedStagesGiveTheWeightsOfDataParallelTraining) {
  expect_law_of(1, PipelineKind::Interleaved);
  expect_counts(34, 0);
}
TEST_F(PipelineLawTest, LateWeightsGiveTheWeightsOfDataParallelTraining) {
  expect_law_of(1, PipelineKind::ZeroBubble);
  expect_counts(34, 0);
}
TEST_F(PipelineLawTest, ChunksThereAndBackGiveTheWeightsOfDataParallelTraining) {
  expect_law_of(1, PipelineKind::Zbv);
  expect_counts(34, 0);
}
// 5 kinds x 2 alignments x 17 policies, and a quarter of them on four ranks.
TEST_F(PipelineLawTest, AS1AS2AS9PipelinesOfParallelStagesGiveTheWeightsOfDataParallelTraining) {
  for (const PipelineKind kind : kAllOf<PipelineKind>) expect_law_of(2, kind);
  expect_counts(43, 0);
}

}  // namespace
}  // namespace dovetail::exec::testing

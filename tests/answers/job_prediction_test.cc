// A step of many micro-batches, which follows from one of few, is the one that playing all of them gives.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_prediction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "answers/inputs.h"
#include "answers/prediction.h"
#include "base/attempt.h"
#include "base/random.h"
#include "models/networks/decisions.h"
#include "models/networks/program.h"
#include "models/networks/text.h"
#include "schedule/policies/policies.h"
#include "sim/rounds.h"
#include "sim/simulate.h"
#include "sim/steady.h"
#include "tests/support/cases.h"
#include "tests/support/drawn_jobs.h"
#include "tests/support/job_models.h"

namespace dovetail::predict {
namespace {

using namespace std::chrono_literals;

// All micro-batches as they are played and traced.
struct WholeStep {
  LoweredJob lowered;
  sim::CompiledProgram compiled;
  sim::Workspace workspace;
  sim::SteadyState steady;
};

WholeStep whole_step(const jobs::Job& job, const models::Cluster& cluster) {
  WholeStep whole{.lowered = lower_job(job, cluster)};
  whole.steady = sim::find_steady_state(whole.lowered.program, whole.lowered.costs, whole.compiled,
                                        whole.workspace);
  return whole;
}

const std::string kTinyMixtral =
    DOVETAIL_SOURCE_DIR "/tests/models/networks/data/tiny_mixtral/config.json";

class ManyMicroBatchesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(ManyMicroBatchesTest, TakeAsLongAsAllOfThemPlayed) {
  const jobs::Job job = jobs::parse_job(GetParam());
  const models::Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models");
  const JobPrediction found = predict_job(job, cluster);
  const WholeStep whole = whole_step(job, cluster);
  const auto& [program, costs] = whole.lowered;
  EXPECT_EQ(found.step, Duration(whole.steady.summary.step_ns));
  EXPECT_EQ(found.bound, Duration(std::ranges::max(sim::compute_of_lanes(
                             program, whole.compiled, job.zero == jobs::Zero::Nothing))));
  EXPECT_EQ(found.host_bound, host_bound_phases(program.program, costs));
  const std::vector<StageParts> stages =
      step_parts(program, sim::trace_of(program, costs, whole.compiled, whole.workspace.timeline));
  ASSERT_EQ(found.stages.size(), stages.size());
  for (std::size_t i = 0; i < stages.size(); ++i) {
    EXPECT_EQ(found.stages[i], stages[i]) << "stage " << i;
    EXPECT_EQ(stages[i].compute + stages[i].exposed_total() + stages[i].bubble, found.step);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, ManyMicroBatchesTest,
    ::testing::Values(testing::kShortLlama + ":tp=8,gbs=12,seq=2048",
                      testing::kShortLlama + ":dp=8,gbs=96,seq=2048",
                      testing::kShortLlama + ":dp_shard=8,gbs=96,seq=2048",
                      testing::kShortLlama + ":pp=2,tp=4,gbs=18,seq=2048",
                      testing::kShortLlama + ":pp=2,tp=4,gbs=18,seq=2048,recompute=full",
                      testing::kShortLlama + ":pp=2,vp=2,tp=2,dp=2,gbs=48,seq=2048",
                      testing::kShortLlama + ":pp=2,dp=4,zero=1,gbs=72,seq=2048",
                      testing::kShortLlama + ":pp=2,tp=2,dp=2,gbs=96,seq=2048,schedule=zero-bubble",
                      testing::kShortLlama + ":pp=2,tp=2,dp=2,gbs=96,seq=2048,schedule=zbv,vp=2",
                      testing::kShortLlama + ":tp=2,dp=4,gbs=192,seq=128,kernels=eager",
                      "qwen3_0.6b:pp=2,dp=4,zero=1,gbs=72,seq=2048"));

// A job of at most 16 layers and 16 micro-batches; nothing where its keys do not go together.
std::optional<jobs::Job> small_job(Random& random, std::int64_t ranks) {
  const auto one_of = [&random](const std::vector<std::string>& all) {
    return all[static_cast<std::size_t>(random.between(0, std::ssize(all) - 1))];
  };
  std::int64_t left = ranks;
  const auto degree = [&](const std::vector<std::string>& degrees) {
    const std::string taken = one_of(degrees);
    left /= std::stoll(taken);
    return taken;
  };
  std::string text = one_of({testing::kShortLlama, kTinyMixtral, "qwen3_1.7b", "gpt2_xl"});
  text += ":tp=" + degree({"1", "1", "2"});
  const std::string stages = degree({"1", "2", "2", "4"});
  text += ",pp=" + stages;
  text +=
      one_of({",dp_shard=", ",zero=0,dp=", ",zero=1,dp=", ",zero=2,dp="}) + std::to_string(left);
  text += one_of({"", "", ",vp=2", ",schedule=zero-bubble", ",schedule=zbv,vp=2"});
  text += one_of({"", "", ",async_tp=yes", ",reshard=no", ",prefetch=2", ",overlap_grads=no"});
  text += one_of({"", "", ",recompute=full", ",recompute=op"}) + one_of({"", "", ",as=megatron"});
  const std::int64_t rounds = random.between(2, 16 / std::stoll(stages));
  text += ",gbs=" + std::to_string(left * std::stoll(stages) * rounds) + ",seq=1024";
  auto job = attempt([&] { return jobs::parse_job(text); });
  if (!job) return std::nullopt;
  job.value->model.layers = std::stoll(stages) * job.value->layout.vp * random.between(1, 2);
  if (job.value->model.layers > 16) return std::nullopt;
  return std::move(job.value);
}

// Of small jobs all figures follow from few micro-batches to the nanosecond. DOVETAIL_DRAWN=1 draws a thousand.
TEST(RepeatsTest, GiveWhatAllMicroBatchesGive) {
  const std::size_t wanted = testing::is_long_run() ? 1'000 : 80;
  Random random(5);
  std::vector<models::Cluster> clusters;
  for (const char* const name : {"h100x8", "h100x16", "a100x8", "h200x8"})
    clusters.push_back(load_cluster(name, DOVETAIL_SOURCE_DIR "/models"));
  std::size_t compared = 0;
  while (compared < wanted) {
    const models::Cluster& cluster = clusters[compared % clusters.size()];
    const auto job = small_job(random, cluster.ranks);
    if (!job) continue;
    const auto some = attempt([&] { return predict_job(*job, cluster); });
    if (!some) continue;
    const JobPrediction all = predict_job(*job, cluster, {}, Play::Whole);
    const std::string text = jobs::to_string(*job) + " on " + cluster.name;
    EXPECT_EQ(some.value->step, all.step) << text;
    EXPECT_EQ(some.value->bound, all.bound) << text;
    EXPECT_EQ(some.value->stages, all.stages) << text;
    EXPECT_EQ(some.value->host_bound, all.host_bound) << text;
    ++compared;
  }
}

// Of long ones rounds need only be close: to a thousandth of the step.
TEST(RepeatsTest, AreWithinAThousandthOfALongStep) {
  const models::Cluster cluster = load_cluster("h100x64", DOVETAIL_SOURCE_DIR "/models");
  const auto ways = std::to_array<const char*>(
      {"gbs=128", "gbs=128,vp=10,schedule=interleaved,zero=2,async_tp=yes",
       "gbs=128,schedule=zbv,vp=2,zero=1", "gbs=128,schedule=zero-bubble",
       "gbs=128,vp=2,schedule=interleaved,zero=3,reshard=no"});
  for (const char* const way : std::span(ways).first(testing::few_cases(ways.size()))) {
    const jobs::Job job =
        jobs::parse_job("llama3_70b:tp=8,pp=4,dp=2,seq=8192,mbs=1," + std::string(way));
    const JobPrediction some = predict_job(job, cluster);
    const JobPrediction all = predict_job(job, cluster, {}, Play::Whole);
    EXPECT_NEAR(to_us(some.step), to_us(all.step), to_us(all.step) / 1000) << way;
    EXPECT_NEAR(to_us(some.bound), to_us(all.bound), to_us(all.bound) / 1000) << way;
    for (const StageParts& stage : some.stages)
      EXPECT_EQ(stage.compute + stage.exposed_total() + stage.bubble, some.step) << way;
  }
}

// Stages of equal work, of which the first sends nothing back: it is quicker than the others and catches up with them from one
// micro-batch to the next. The step grows by the same all the while, and by more once it stands still.
TEST(RoundsTest, AreNotEqualWhileAStageCatchesUp) {
  const models::Cluster cluster = load_cluster("h100x64", DOVETAIL_SOURCE_DIR "/models");
  const auto rounds_of = [&](const std::string& keys) {
    const WholeStep whole =
        whole_step(jobs::parse_job("llama3_70b:tp=8,pp=4,dp=2,seq=8192,mbs=1," + keys), cluster);
    return sim::find_rounds(whole.lowered.program, whole.compiled, whole.workspace.timeline, 1);
  };
  const auto one_pass = rounds_of("gbs=24");
  ASSERT_TRUE(one_pass);
  EXPECT_TRUE(one_pass->are_equal);
  EXPECT_EQ(one_pass->first(), one_pass->second());
  const auto split = rounds_of("gbs=24,schedule=zero-bubble");
  ASSERT_TRUE(split);
  EXPECT_FALSE(split->are_equal);
  EXPECT_FALSE(rounds_of("gbs=4"));  // two micro-batches: no two rounds before the last
}

// Whatever is sent when, the same is computed: every way has the same bound, and none is faster.
class BoundTest : public ::testing::TestWithParam<const char*> {};

TEST_P(BoundTest, IsWhatTheBusiestStageComputesHoweverGradientsTravel) {
  const models::Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models");
  const auto found = [&](const std::string& way) {
    return predict_job(jobs::parse_job(testing::kShortLlama + GetParam() + way), cluster);
  };
  const JobPrediction usual = found("");
  EXPECT_GT(usual.bound, Duration{});
  EXPECT_LE(usual.bound, usual.step);
  Duration longest{};
  for (const StageParts& stage : usual.stages) longest = std::max(longest, stage.compute);
  // Others run beside it, which makes it longer; gaps between launches are no part of what a stage computes.
  EXPECT_LE(to_us(usual.bound), 1.01 * to_us(longest));
  for (const char* const way : {",overlap_grads=no", ",bucket=64MiB", ",overlap_params=no"}) {
    const JobPrediction other = found(way);
    EXPECT_LE(std::chrono::abs(other.bound - usual.bound), 1us) << way;
    EXPECT_LE(other.bound, other.step) << way;
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, BoundTest,
                         ::testing::Values(":gbs=1,seq=1024", ":dp=8,gbs=8,seq=1024",
                                           ":dp_shard=8,gbs=8,seq=1024",
                                           ":pp=2,dp=4,zero=1,gbs=16,seq=1024",
                                           ":tp=2,dp_shard=4,gbs=8,seq=1024"));

TEST(GraphTest, AStepThatIsOneGraphWaitsForNoHost) {
  const models::Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models");
  const auto found = [&](const std::string& keys) {
    return predict_job(jobs::parse_job("gpt2:kernels=transformers," + keys), cluster);
  };
  // Bound by its host, which issues some 1,000 kernels.
  const JobPrediction issued = found("gbs=1,seq=256");
  const JobPrediction graph = found("gbs=1,seq=256,graph=yes");
  EXPECT_LT(2 * graph.step, issued.step);
  EXPECT_LE(graph.bound, graph.step);
  EXPECT_LE(graph.stages.front().bubble * 50, graph.step);
  EXPECT_FALSE(issued.host_bound.empty());
  EXPECT_TRUE(graph.host_bound.empty());
  // Bound by its GPU: nothing but the gaps between launches is gained.
  const JobPrediction large = found("gbs=16,mbs=16");
  EXPECT_NEAR(to_us(found("gbs=16,mbs=16,graph=yes").step) / to_us(large.step), 1, 0.03);
}

// Tensor-parallel ranks have weights of their own: no kernel packs a gradient.
TEST(LowerJobTest, NothingIsCopiedWhereThereIsNoSecondReplica) {
  const models::Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models");
  const auto copies = [&](const std::string& keys) {
    const auto [program, costs] = lower_job(jobs::parse_job(testing::kShortLlama + keys), cluster);
    std::int64_t found = 0;
    for (const schedule::RankProgram& role : program.roles) {
      for (const schedule::Command& command : role.commands) {
        found += std::holds_alternative<schedule::Copy>(command.action) ? 1 : 0;
      }
    }
    return found;
  };
  EXPECT_EQ(copies(":tp=8,gbs=1,seq=1024"), 0);
  EXPECT_EQ(copies(":tp=4,pp=2,gbs=4,seq=1024,zero=1"), 0);
  EXPECT_EQ(copies(":gbs=1,seq=1024,zero=3"), 0);
  EXPECT_GT(copies(":dp=8,gbs=8,seq=1024"), 0);
}

// Collectives that leave the compute stream meet those of the other ranks in every order of a pipeline.
TEST(LowerJobTest, EveryOrderIsLegalWithItsCollectivesAsync) {
  for (const char* const order : {"schedule=1f1b", "schedule=interleaved,vp=2",
                                  "schedule=zero-bubble", "schedule=zbv,vp=2"}) {
    for (const char* const zero : {"", ",zero=1"}) {
      const jobs::Job job =
          jobs::parse_job(testing::kShortLlama + ":tp=2,pp=2,dp=2,gbs=16,seq=1024,async_tp=yes," +
                          std::string(order) + zero);
      EXPECT_NO_THROW(verify_job(job)) << order << zero;
    }
  }
}

TEST(LowerJobTest, DrawnJobsAreLegal) {
  Random random(51);
  int tried = 0;
  for (int i = 0; i < 150; ++i) {
    const auto job =
        testing::drawn_job(random, {testing::kShortLlama, "qwen3_0.6b"}, testing::kAnyKey);
    // Muon is not divided, and buckets of 7 bytes are too many.
    if (!job || job->optimizer == jobs::Optimizer::Muon || job->bucket_bytes == 7) continue;
    ++tried;
    EXPECT_NO_THROW(verify_job(*job)) << jobs::to_string(*job);
  }
  EXPECT_GT(tried, 5);
}

TEST(OwnTravelTest, ReductionsThatAreWaitedForMakeAStepLongerMatrixByMatrixMost) {
  const jobs::Job job = jobs::parse_job("qwen3_0.6b:dp_shard=8,gbs=8,seq=4096");
  const models::Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models");
  const JobPrediction usual = predict_job(job, cluster);
  const JobPrediction same =
      predict_job(job, cluster, {.policy = "fsdp:prefetch=1,mode=copy,wait=end-of-backward"});
  EXPECT_EQ(same.step, usual.step);
  const JobPrediction waiting = predict_job(job, cluster, {.synchronous = true});
  EXPECT_GT(waiting.step, usual.step);
  const JobPrediction alone = predict_job(
      job, cluster, {.policy = "fsdp:cap=1B,mode=copy,wait=end-of-backward", .synchronous = true});
  EXPECT_GT(alone.step, waiting.step);
}

struct TiedSum {
  Duration message{};  // of the sum of the tied gradients, alone on its links
  Duration exposed{};  // of pp, on the first stage
};

TiedSum tied_sum(const std::string& text, const std::string& name) {
  const jobs::Job job = jobs::parse_job(text);
  const models::Cluster cluster = load_cluster(name, DOVETAIL_SOURCE_DIR "/models");
  const auto [plan, costs] = lower_job(job, cluster);
  TiedSum found;
  for (const schedule::Op& op : plan.program.ops) {
    const auto* work = std::get_if<schedule::CollectiveWork>(&op.work);
    if (work == nullptr || work->purpose != schedule::Purpose::TiedWeights) continue;
    found.message =
        costs.collective(work->kind, plan.program.group(work->group), work->bytes).isolated;
  }
  found.exposed = predict_job(job, cluster).stages.front().exposed_of(For::Pipeline);
  return found;
}

// 151,936 x 1,024 f32 over 4 ranks of tp, 155.6 MB, by the links between both stages: NVLink within a node, and those of
// two nodes where a stage fills one.
TEST(TiedWeightsPredictionTest, TheirSumIsExposedOverTheLinksBetweenTheFirstAndTheLastStage) {
  const TiedSum within = tied_sum("qwen3_0.6b:tp=4,pp=2,gbs=4,seq=2048", "h100x8");
  const TiedSum between = tied_sum("qwen3_0.6b:tp=4,dp=2,pp=2,gbs=8,seq=2048", "h100x16");
  EXPECT_GE(within.exposed, within.message);
  EXPECT_GE(between.exposed, between.message);
  EXPECT_GT(between.message, 3 * within.message);
}

Bytes gathered(const schedule::ScheduledProgram& plan) {
  Bytes sum;
  for (const schedule::Command& command : plan.roles.front().commands) {
    const auto* run = schedule::bucket_collective(command);
    if (run != nullptr && run->kind == schedule::Collective::AllGather)
      sum += plan.bucket(*run->bucket).size;
  }
  return sum;
}

TEST(LoraPredictionTest, AStepIsShorterThanFullTrainingAndGathersAsMuch) {
  const models::Cluster cluster = load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models");
  const jobs::Job full = jobs::parse_job("llama3_8b:dp_shard=8,seq=8192");
  const jobs::Job lora = jobs::parse_job("llama3_8b:dp_shard=8,seq=8192,lora=16");
  const double of_full = to_us(predict_job(full, cluster).step);
  const double of_lora = to_us(predict_job(lora, cluster).step);
  // Of products 4 of 6 FLOP a weight, of attention all.
  EXPECT_LT(of_lora, 0.85 * of_full);
  EXPECT_GT(of_lora, 0.6 * of_full);
  // Both read the embedding in forward only. The frozen output layer is gathered again in backward, 2 bytes of 128,256 x 4,096, and so are
  // adapters.
  const Bytes all = gathered(lower_job(full, cluster).program);
  const Bytes most = gathered(lower_job(lora, cluster).program);
  const Bytes head(std::int64_t{2} * 128'256 * 4096);
  EXPECT_GT(most, all);
  EXPECT_LT(most, all + head + Bytes(std::int64_t{2} * 2 * 42'000'000));
}

}  // namespace
}  // namespace dovetail::predict

// Sketches against plays: what a step takes at least is never more than what it takes, and what it takes about is near it.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_sketch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "answers/inputs.h"
#include "answers/job_prediction.h"
#include "base/attempt.h"
#include "base/random.h"
#include "models/networks/text.h"
#include "tests/support/job_models.h"

namespace dovetail::predict {
namespace {

const std::string kMixtral =
    DOVETAIL_SOURCE_DIR "/tests/models/networks/data/tiny_mixtral/config.json";

class JobDraw {
 public:
  explicit JobDraw(std::uint64_t seed) : random_(seed) {}

  // Over so many ranks; may not hold together.
  std::string draw(std::int64_t ranks) {
    std::string text =
        one_of<std::string>({testing::kShortLlama, testing::kShortLlama, kMixtral}) + ":";
    std::int64_t left = ranks;
    const auto degree = [&](std::vector<std::int64_t> degrees) {
      std::erase_if(degrees, [&](std::int64_t one) { return left % one != 0; });
      const std::int64_t taken = one_of(degrees);
      left /= taken;
      return std::to_string(taken);
    };
    text += "tp=" + degree({1, 2, 4});
    const std::string stages = degree({1, 2, 4});
    text += ",pp=" + stages + ",cp=" + degree({1, 1, 2});
    text += one_of<std::string>({",dp_shard=", ",zero=0,dp=", ",zero=1,dp=", ",zero=2,dp="}) +
            std::to_string(left);
    text += one_of<std::string>({"", ",vp=2", ",schedule=zero-bubble", ",schedule=zbv,vp=2"});
    text += one_of<std::string>({"", ",ep=2", ",async_tp=yes", ",reshard=no", ",prefetch=2"});
    text += one_of<std::string>(
        {"", ",recompute=full", ",recompute=full,recompute_layers=1", ",recompute=op"});
    const std::int64_t rounds = one_of<std::int64_t>({1, 2, 3});
    text += ",gbs=" + std::to_string(left * std::stoll(stages) * rounds) + ",seq=2048";
    text += one_of<std::string>({"", ",exchange=ring", ",sync_each=no"});
    return text + one_of<std::string>({"", "", ",as=megatron"});
  }

 private:
  template <class T>
  T one_of(const std::vector<T>& all) {
    return all[static_cast<std::size_t>(random_.between(0, std::ssize(all) - 1))];
  }

  Random random_;
};

TEST(JobSketchTest, NoPlayIsShorterThanTheLeastAndMostAreNearTheSketch) {
  std::vector<double> ratios;
  for (const char* const name : {"h100x8", "h200x8", "h100x16"}) {
    const models::Cluster cluster = load_cluster(name, DOVETAIL_SOURCE_DIR "/models");
    JobDraw drawn(7);
    for (int i = 0; i < 60; ++i) {
      const std::string text = drawn.draw(cluster.ranks);
      const auto job = attempt([&] { return jobs::parse_job(text); });
      if (!job) continue;
      JobSketcher sketcher(*job.value, cluster);
      const JobSketch sketch = sketcher.sketch(*job.value);
      const JobPrediction played = predict_job(*job.value, cluster);
      EXPECT_LE(sketch.least, played.step) << text;
      EXPECT_EQ(sketcher.least(*job.value), sketch.least) << text;
      EXPECT_LE(sketcher.least_of_any_order(*job.value), played.step) << text;
      EXPECT_EQ(sketcher.memory_of(*job.value), played.memory) << text;
      ratios.push_back(to_us(played.step) / to_us(sketch.about));
    }
  }
  ASSERT_GE(ratios.size(), 60U);
  std::ranges::sort(ratios);
  EXPECT_NEAR(ratios[ratios.size() / 2], 1, 0.1);
  EXPECT_GT(ratios[ratios.size() / 10], 0.7);
  EXPECT_LT(ratios[ratios.size() * 9 / 10], 1.5);
}

// The same sketcher asked for several jobs says of each what a fresh one says.
TEST(JobSketchTest, WhatItKeepsChangesNothing) {
  const models::Cluster cluster = load_cluster("h100x16", DOVETAIL_SOURCE_DIR "/models");
  JobDraw drawn(3);
  std::optional<JobSketcher> kept;
  std::size_t compared = 0;
  for (int i = 0; i < 100; ++i) {
    const auto job = attempt([&] { return jobs::parse_job(drawn.draw(16)); });
    if (!job || job.value->model.experts) continue;
    if (!kept) kept.emplace(*job.value, cluster);
    JobSketcher fresh(*job.value, cluster);
    const JobSketch one = kept->sketch(*job.value);
    const JobSketch other = fresh.sketch(*job.value);
    EXPECT_EQ(one.least, other.least) << to_string(*job.value);
    EXPECT_EQ(one.about, other.about) << to_string(*job.value);
    ++compared;
  }
  EXPECT_GE(compared, 20U);
}

}  // namespace
}  // namespace dovetail::predict

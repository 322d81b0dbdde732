// Intervals from the errors of public steps: of which steps they are known, and what they say of two of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/step_range.h"

#include <gtest/gtest.h>

#include <string>

#include "answers/inputs.h"
#include "models/networks/program.h"
#include "models/networks/text.h"

namespace dovetail::predict {
namespace {

const std::string kModels = DOVETAIL_SOURCE_DIR "/models";

const PublicError* error_of(const std::string& workload, const std::string& cluster) {
  const Inputs inputs =
      load_inputs({.workload = workload, .cluster = cluster, .data_dir = kModels, .world = {}});
  return public_error(*inputs.machine.cluster, inputs.program);
}

TEST(StepRangeTest, IsKnownWherePricesComeFromPublicProducts) {
  const PublicError* const near = error_of("llama2_7b:dtype=bf16", "h100x8");
  const PublicError* const far = error_of("llama2_7b:dtype=bf16", "h100x64");
  ASSERT_NE(near, nullptr);
  ASSERT_NE(far, nullptr);
  EXPECT_NE(near, far);
  EXPECT_EQ(error_of("resnet50", "h100x8"), near);              // its convolutions are measured
  EXPECT_EQ(error_of("mlp", "h100x8"), nullptr);                // f32: no measured product
  EXPECT_EQ(error_of("mlp-1000mbit", "a100x2_nv12"), nullptr);  // measured times
  for (const PublicError* error : {near, far}) {
    EXPECT_LT(error->p5, error->p50);
    EXPECT_LT(error->p50, error->p95);
    EXPECT_GT(error->apart, 1);
  }
}

TEST(StepRangeTest, EachKindOfStepHasItsOwn) {
  const auto error = [](const std::string& job, const std::string& cluster) {
    return public_error(models::load_cluster(cluster, kModels + "/clusters"),
                        jobs::program_of(jobs::parse_job(job)));
  };
  const PublicError* const dense = error("llama3_8b:dp=2,tp=8", "h100x16");
  const PublicError* const wide = error("llama2_7b:tp=16", "h100x16");
  const PublicError* const experts = error("mixtral_8x7b:ep=8,dp=16", "h100x16");
  EXPECT_LT(dense->p95 / dense->p5, experts->p95 / experts->p5);
  EXPECT_LT(experts->p95 / experts->p5, wide->p95 / wide->p5);
  EXPECT_EQ(error("mixtral_8x7b:ep=8,dp=8", "h100x8"), experts);  // on one node, too
  EXPECT_EQ(error("mixtral_8x7b:dp=16", "h100x16"), dense);       // every rank has all experts
  EXPECT_EQ(error("llama3_8b:tp=8", "h200_nodes_of_4x8"), wide);
}

TEST(StepRangeTest, StretchesTheStepAndTheRatioOfTwo) {
  const PublicError error{.p5 = 0.9, .p50 = 1.1, .p95 = 2, .apart = 1.25};
  EXPECT_EQ(step_range(error, from_us(1000)),
            (StepRange{.p5 = from_us(900), .p50 = from_us(1100), .p95 = from_us(2000)}));
  const Difference more = difference(error, from_us(800), from_us(1000));
  EXPECT_NEAR(more.low, -36, 1e-9);
  EXPECT_NEAR(more.middle, -20, 1e-9);
  EXPECT_NEAR(more.high, 0, 1e-9);
}

}  // namespace
}  // namespace dovetail::predict

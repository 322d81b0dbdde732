// Intervals from the errors of public steps: of which steps they are known, and what they say of two of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/step_range.h"

#include <gtest/gtest.h>

#include <string>

#include "answers/inputs.h"

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
  EXPECT_LT(near->p95 / near->p5, far->p95 / far->p5);
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

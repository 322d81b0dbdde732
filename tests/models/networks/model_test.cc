// Models against the numbers of parameters that their publishers state, and costs of a token by hand.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/model.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace dovetail::jobs {
namespace {

class KnownModelTest : public ::testing::TestWithParam<std::string> {};

TEST_P(KnownModelTest, HasThePublishedNumberOfParameters) {
  const Model model = known_model(GetParam());
  if (model.published == 0) GTEST_SKIP() << "no exact number is published";
  EXPECT_EQ(parameters(model), model.published);
}

INSTANTIATE_TEST_SUITE_P(All, KnownModelTest, ::testing::ValuesIn(known_model_names()),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace(name, '.', '_');
                           return name;
                         });

TEST(ModelTest, ATokenMeetsTheChosenExpertsOnly) {
  // 671 B, of which 37 B are active: arXiv 2412.19437. 30.5 B and 3.3 B with the embedding: Qwen3's card.
  EXPECT_NEAR(static_cast<double>(active_parameters(known_model("deepseek_v3"))), 37e9, 0.5e9);
  EXPECT_NEAR(static_cast<double>(active_parameters(known_model("qwen3_30b_a3b"))), 3.3e9 - 0.31e9,
              0.1e9);
  EXPECT_NEAR(static_cast<double>(active_parameters(known_model("gpt_oss_120b"))), 5.1e9, 0.1e9);
}

TEST(ModelTest, FlopOfATokenAreTwoAProductAndAttention) {
  const Model llama = known_model("llama3_8b");
  // Products: everything but the embedding and the norms.
  const double products = 8'030'261'248.0 - 128'256.0 * 4096 - 65.0 * 4096;
  const double attention = 32.0 * 4 * 4096 * 8192;
  EXPECT_DOUBLE_EQ(forward_flop_per_token(llama, 8192), 2 * products + attention);
  EXPECT_DOUBLE_EQ(forward_flop_per_token(llama, 8192, true), 2 * products + attention / 2);
}

TEST(ModelTest, AWindowLimitsEveryOtherLayer) {
  const Model model = known_model("gpt_oss_20b");
  EXPECT_DOUBLE_EQ(seen_tokens(model, 0, 4096, false), 128);
  EXPECT_DOUBLE_EQ(seen_tokens(model, 1, 4096, false), 4096);
  EXPECT_DOUBLE_EQ(seen_tokens(model, 0, 4096, true), 128 - 128.0 * 128 / (2 * 4096));
}

TEST(ModelTest, AnUnknownModelIsToldTheNearest) {
  try {
    known_model("lama3_8b");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("llama3_8b"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace dovetail::jobs

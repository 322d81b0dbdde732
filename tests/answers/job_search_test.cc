// The climb over a job's decisions: what is best can be reached by its path, and no single change of it is faster.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_search.h"

#include <gtest/gtest.h>

#include <string>

#include "answers/inputs.h"
#include "models/networks/text.h"
#include "tests/support/errors.h"
#include "tests/support/job_models.h"

namespace dovetail::predict {
namespace {

models::Cluster h100x8() { return load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models"); }

JobSearch searched(const std::string& job) {
  return search_jobs({{.change = std::string(kAsAsked), .job = jobs::parse_job(job)}}, h100x8());
}

// Gradients that are not sharded, and all of forward recomputed: two things to undo.
TEST(JobSearchTest, JoinsSingleChanges) {
  const JobSearch found =
      searched(testing::kShortLlama + ":tp=2,dp=4,gbs=16,seq=1024,recompute=full,zero=1");
  ASSERT_TRUE(found.best);
  const JobRow& best = found.rows[*found.best];
  EXPECT_GE(best.path.size(), 3U);
  EXPECT_EQ(best.path.front().change, kAsAsked);
  EXPECT_EQ(best.path.back().step, best.found.step);
  for (std::size_t i = 1; i < best.path.size(); ++i) {
    EXPECT_LT(best.path[i].step, best.path[i - 1].step);
  }
  jobs::Job again =
      jobs::parse_job(testing::kShortLlama + ":tp=2,dp=4,gbs=16,seq=1024,recompute=full,zero=1");
  for (std::size_t i = 1; i < best.path.size(); ++i) {
    again = jobs::with_options(again, best.path[i].change).value();
  }
  EXPECT_EQ(again, best.found.job);
  for (const jobs::Variant& other : jobs::variants(best.found.job)) {
    const JobPrediction at = predict_job(other.job, h100x8());
    EXPECT_TRUE(to_us(at.step) >= 0.999 * to_us(best.found.step) || !at.fits()) << other.change;
  }
}

TEST(JobSearchTest, NoJobIsARowTwice) {
  const JobSearch found = searched(testing::kShortLlama + ":dp_shard=8,gbs=32,seq=2048");
  for (std::size_t i = 0; i < found.rows.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      EXPECT_NE(found.rows[i].found.job, found.rows[j].found.job) << found.rows[i].change;
      EXPECT_NE(found.rows[i].change, found.rows[j].change);
      EXPECT_GE(found.rows[i].found.step, found.rows[j].found.step);
    }
  }
}

// What would be the fastest is too large as it is, and fits with a change.
TEST(JobSearchTest, MakesRoomForWhatDoesNotFit) {
  const JobSearch found = searched(testing::kShortLlama + ":dp_shard=8,gbs=64,mbs=8,seq=8192");
  ASSERT_TRUE(found.best);
  EXPECT_FALSE(found.rows.front().found.fits());
  EXPECT_NE(found.rows[*found.best].change, kAsAsked);
}

TEST(JobSearchTest, EndsWhereItsWatchSaysSo) {
  std::size_t heard = 0;
  const JobSearch found =
      search_jobs({{.change = std::string(kAsAsked),
                    .job = jobs::parse_job(testing::kShortLlama + ":dp=8,gbs=8,seq=512")}},
                  h100x8(), {.goes_on = [&](const std::string&) { return ++heard < 2; }});
  EXPECT_TRUE(found.interrupted);
  EXPECT_GE(found.rows.size(), 1U);
}

TEST(JobSearchTest, TheJobAsAskedMustBePriced) {
  EXPECT_NE(
      testing::error_of([] { searched(testing::kShortLlama + ":dp=16,gbs=16"); }).find("16 ranks"),
      std::string::npos);
}

}  // namespace
}  // namespace dovetail::predict

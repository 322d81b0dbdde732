// The search over a job's grid: what is best can be reached by its path, and nothing of the grid is faster.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/job_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <string>

#include "answers/inputs.h"
#include "frameworks/jobs/job_export.h"
#include "models/networks/text.h"
#include "tests/support/cases.h"
#include "tests/support/errors.h"
#include "tests/support/job_models.h"

namespace dovetail::predict {
namespace {

models::Cluster h100x8() { return load_cluster("h100x8", DOVETAIL_SOURCE_DIR "/models"); }

JobSearch searched(const std::string& job) {
  return search_jobs(jobs::JobGrid::beside(jobs::parse_job(job)), h100x8());
}

// All of forward recomputed, and tensor-parallel collectives in the way: several things to undo.
TEST(JobSearchTest, ThePathLeadsToTheBest) {
  const std::string job =
      testing::kShortLlama + ":tp=8,gbs=16,mbs=4,seq=1024,recompute=full,kernels=transformers";
  const JobSearch found = searched(job);
  ASSERT_TRUE(found.best);
  const JobRow& best = found.rows[*found.best];
  ASSERT_GE(found.path.size(), 2U);
  EXPECT_EQ(found.path.front().change, kAsAsked);
  EXPECT_EQ(found.path.back().step, best.found.step);
  jobs::Job again = jobs::parse_job(job);
  for (std::size_t i = 1; i < found.path.size(); ++i) {
    again = jobs::with_options(again, found.path[i].change).value();
  }
  EXPECT_EQ(again, best.said);
}

// What a row fits in and takes, of every job of a grid.
struct Enumerated {
  std::size_t jobs = 0;
  std::optional<Duration>
      fastest;  // that fits for certain, as a framework that is told it whole runs it
  Duration least = Duration::max();  // of those that may fit
};

Enumerated enumerated(const jobs::JobGrid& grid, const models::Cluster& cluster) {
  Enumerated all;
  for (const jobs::GridPoint& point : grid.points()) {
    const auto at = grid.job_at(point);
    if (!at) continue;
    for (const jobs::GridWay& way : grid.ways(*at)) {
      ++all.jobs;
      const jobs::Job said = grid.with(*at, way);
      const std::vector<frameworks::JobTarget> targets = frameworks::job_targets_of(said);
      const bool is_told = !targets.empty() && targets.front().given_up.empty();
      const JobPrediction found = predict_job(is_told ? targets.front().as_run : said, cluster);
      if (found.fits() != schedule::Fits::No) all.least = std::min(all.least, found.step);
      if (!is_told || found.fits() != schedule::Fits::Yes) continue;
      if (!all.fastest || found.step < *all.fastest) all.fastest = found.step;
    }
  }
  return all;
}

// Every job of small grids, simulated: none is faster than what is proven, and what the search calls fastest is within 0.1 %.
TEST(JobSearchTest, NoJobOfTheGridIsFaster) {
  const auto grids = std::to_array<const char*>(
      {":tp=4,pp=2,gbs=8,seq=2048", ":tp=2,dp=4,gbs=16,seq=1024", ":dp_shard=8,gbs=32,seq=2048"});
  for (const char* const keys : std::span(grids).first(testing::kHasSanitizer ? 1 : 3)) {
    const jobs::JobGrid grid = jobs::JobGrid::beside(jobs::parse_job(testing::kShortLlama + keys));
    const JobSearch found = search_jobs(grid, h100x8());
    const Enumerated all = enumerated(grid, h100x8());
    ASSERT_TRUE(found.fastest && found.least && all.fastest) << keys;
    EXPECT_GE(found.counts.all, static_cast<std::int64_t>(all.jobs));
    EXPECT_LE(*found.least, all.least) << keys;
    EXPECT_LE(to_us(found.rows[*found.fastest].found.step), 1.001 * to_us(*all.fastest)) << keys;
    EXPECT_LT(found.rows.size(), all.jobs / 2) << keys;
  }
}

TEST(JobSearchTest, CountsAddUp) {
  const JobSearch found = searched(testing::kShortLlama + ":tp=2,pp=2,dp=2,gbs=16,seq=4096");
  const JobCounts& counts = found.counts;
  EXPECT_EQ(counts.simulated, std::ssize(found.rows));
  EXPECT_EQ(counts.all, counts.simulated + counts.without_room + counts.slower + counts.left);
}

// What Megatron's file of a row says is the row: its step, its memory, its key `as`.
TEST(JobSearchTest, TheBestIsWhatItsFrameworksFileSays) {
  for (const char* const keys : {":tp=2,pp=2,dp=2,vp=2,gbs=16,seq=1024", ":dp=8,gbs=32,seq=1024",
                                 ":tp=2,dp=4,zero=1,gbs=16,seq=1024,recompute=full"}) {
    const JobSearch found = searched(testing::kShortLlama + keys);
    ASSERT_TRUE(found.best) << keys;
    for (const JobRow& row : found.rows) {
      if (row.target.empty()) continue;
      const frameworks::JobExport there = frameworks::export_job(row.target, row.said, {});
      EXPECT_TRUE(there.losses.empty()) << row.change;
      EXPECT_EQ(there.as_run, row.found.job) << row.change;
    }
    EXPECT_NE(found.rows[*found.best].target, "") << keys;
    EXPECT_NE(found.rows[*found.fastest].target, "") << keys;
  }
}

// Megatron has no zbv: the row stays, and is never best.
TEST(JobSearchTest, WhatNobodyCanBeToldIsARowAndNeverBest) {
  const JobSearch found = searched(testing::kShortLlama + ":tp=2,pp=2,dp=2,vp=2,gbs=16,seq=1024");
  ASSERT_TRUE(found.best);
  std::size_t unsaid = 0;
  for (const JobRow& row : found.rows) {
    EXPECT_EQ(row.target.empty(), row.found.job.as == jobs::RunBy::Any) << row.change;
    unsaid += row.target.empty() ? 1 : 0;
  }
  EXPECT_GE(unsaid, 1U);
  EXPECT_NE(found.rows[*found.best].target, "");
  const JobRow& fastest = found.rows[*found.fastest];
  EXPECT_NE(fastest.target, "");
  EXPECT_GT(fastest.found.step, found.rows.front().found.step);  // which nobody says
}

// The fastest of some thousand jobs by their sketches are all zero-bubble, which Megatron lacks.
TEST(JobSearchTest, WhatSomebodyCanBeToldIsFoundBehindWhatNobodyCan) {
  const jobs::Job job =
      jobs::parse_job(std::string(DOVETAIL_SOURCE_DIR) +
                      "/tests/models/networks/data/tiny_mixtral/config.json:gbs=24,seq=128");
  const JobSearch found = search_jobs(jobs::JobGrid::over(job, 8, 8), h100x8());
  ASSERT_TRUE(found.best);
  EXPECT_NE(found.rows[*found.best].target, "");
}

// The nearest framework's version of a job that none can be told: chunks interleaved in place of zbv.
TEST(JobSearchTest, WhatAFrameworkMakesOfAJobIsARow) {
  const JobSearch found =
      searched(testing::kShortLlama + ":tp=2,pp=2,dp=2,vp=2,gbs=16,seq=1024,schedule=zbv");
  ASSERT_TRUE(found.best);
  const auto made =
      std::ranges::find(found.rows, std::string("schedule=interleaved"), &JobRow::change);
  ASSERT_NE(made, found.rows.end());
  EXPECT_EQ(made->target, "megatron");
  const auto asked = std::ranges::find(found.rows, kAsAsked, &JobRow::change);
  EXPECT_EQ(asked->target, "");
}

// One more layer gathered ahead gives less than anybody could measure.
TEST(JobSearchTest, OfRowsThatCannotBeToldApartTheFewestChangesAreBest) {
  const JobSearch found = searched(testing::kShortLlama + ":dp_shard=8,gbs=32,mbs=4,seq=2048");
  ASSERT_TRUE(found.best);
  EXPECT_NE(found.best, found.fastest);
  EXPECT_EQ(found.rows[*found.best].change, kAsAsked);
  EXPECT_TRUE(found.rows[*found.fastest].alike);
  EXPECT_FALSE(found.rows[*found.best].alike);
  const double gain =
      1 - to_us(found.rows[*found.fastest].found.step) / to_us(found.rows[*found.best].found.step);
  EXPECT_LT(gain, told_apart(found.rows.front().said));
}

// mbs=2 is close to the fastest and to the job as asked: neither can be told from it.
TEST(JobSearchTest, WhatIsSetCanBeToldFromTheJobAsAsked) {
  for (const char* const keys : {":dp_shard=8,gbs=32,seq=2048", ":dp_shard=8,gbs=32,mbs=2,seq=2048",
                                 ":tp=2,dp=4,zero=1,gbs=16,seq=1024,recompute=full",
                                 ":dp=8,gbs=64,recompute=full,seq=1024"}) {
    const JobSearch found = searched(testing::kShortLlama + keys);
    ASSERT_TRUE(found.best) << keys;
    const JobRow& best = found.rows[*found.best];
    const auto asked = std::ranges::find(found.rows, kAsAsked, &JobRow::change);
    if (&best == &*asked) continue;
    EXPECT_LT(to_us(best.found.step), (1 - told_apart(best.said)) * to_us(asked->found.step))
        << keys << " " << best.change;
  }
}

// Without a layout as asked, of those within 2 % of the fastest the one with the fewest changes is best, then the smallest.
TEST(JobSearchTest, OfRowsAsFastThePlainestIsBest) {
  const jobs::Job job = jobs::parse_job(testing::kShortLlama + ":gbs=8,seq=4096");
  const JobSearch found = search_jobs(jobs::JobGrid::over(job, 8, 8), h100x8());
  ASSERT_TRUE(found.best);
  const JobRow& best = found.rows[*found.best];
  const double fastest = to_us(found.rows[*found.fastest].found.step);
  for (const JobRow& row : found.rows) {
    const bool counts = !row.target.empty() && row.found.fits() == schedule::Fits::Yes;
    if (!counts || to_us(row.found.step) > 1.02 * fastest) continue;
    EXPECT_LE(best.changes, row.changes) << row.change;
  }
  EXPECT_GT(found.counts.all, 1000);
}

TEST(JobSearchTest, WhatAFusedKernelDoesByItselfIsNoOtherRow) {
  const JobSearch found =
      searched(testing::kShortLlama + ":dp=8,gbs=16,seq=1024,recompute=selective");
  EXPECT_EQ(std::ranges::count(found.rows, std::string("recompute=none"), &JobRow::change), 0);
}

TEST(JobSearchTest, NoJobIsARowTwice) {
  for (const char* const keys :
       {":dp_shard=8,gbs=32,seq=2048", ":pp=2,dp=4,gbs=32,seq=1024,mbs=2", ":tp=2,dp=4,gbs=16"}) {
    const JobSearch found = searched(testing::kShortLlama + keys);
    for (std::size_t i = 0; i < found.rows.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        EXPECT_NE(found.rows[i].found.job, found.rows[j].found.job) << found.rows[i].change;
        EXPECT_NE(found.rows[i].change, found.rows[j].change);
        EXPECT_GE(found.rows[i].found.step, found.rows[j].found.step);
      }
    }
  }
}

// What would be the fastest is too large as it is, and fits with a change.
TEST(JobSearchTest, MakesRoomForWhatDoesNotFit) {
  const JobSearch found = searched(testing::kShortLlama + ":dp_shard=8,gbs=64,mbs=8,seq=8192");
  ASSERT_TRUE(found.best);
  EXPECT_NE(found.rows.front().found.fits(), schedule::Fits::Yes);
  EXPECT_NE(found.rows[*found.best].change, kAsAsked);
}

TEST(JobSearchTest, EndsWhereItsWatchSaysSo) {
  std::size_t heard = 0;
  const jobs::JobGrid grid =
      jobs::JobGrid::beside(jobs::parse_job(testing::kShortLlama + ":dp=8,gbs=8,seq=512"));
  const JobSearch found = search_jobs(
      grid, h100x8(), {.goes_on = [&](JobPhase, const std::string&) { return ++heard < 2; }});
  EXPECT_TRUE(found.interrupted);
  EXPECT_GE(found.rows.size(), 1U);
  EXPECT_FALSE(found.least);
}

TEST(JobSearchTest, TheJobAsAskedMustBePriced) {
  EXPECT_NE(
      testing::error_of([] { searched(testing::kShortLlama + ":dp=16,gbs=16"); }).find("16 ranks"),
      std::string::npos);
}

}  // namespace
}  // namespace dovetail::predict

// Grids of jobs: what people use is in them, each job holds together, none twice.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/job_grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "models/networks/text.h"

namespace dovetail::jobs {
namespace {

std::set<std::string> all_of(const JobGrid& grid) {
  std::set<std::string> jobs;
  for (const GridPoint& point : grid.points()) {
    const auto at = grid.job_at(point);
    if (!at) continue;
    for (const GridWay& way : grid.ways(*at)) {
      Job job = grid.with(*at, way);
      complete(job, "a test");
      EXPECT_TRUE(jobs.insert(to_string(in_effect(job))).second) << to_string(job);
    }
  }
  return jobs;
}

bool has(const std::set<std::string>& jobs, const std::string& text) {
  return jobs.contains(to_string(in_effect(parse_job(text))));
}

TEST(JobGridTest, OfAModelOverRanksItHasWhatPeopleUse) {
  const auto jobs = all_of(JobGrid::over(parse_job("qwen3_30b_a3b:gbs=8,seq=4096"), 8, 4));
  EXPECT_GT(jobs.size(), 4'000U);
  for (const char* const keys :
       {"tp=4,dp=2,zero=1", "tp=2,pp=2,dp=2,zero=1,vp=2,async_tp=yes", "dp_shard=8,ep=8",
        "dp=2,dp_shard=4,ep=4,recompute=full", "tp=2,cp=2,dp=2,zero=1,ep=4,mbs=2",
        "tp=2,dp=4,zero=1,ep=4,etp=2", "pp=4,dp=2,zero=1,schedule=zero-bubble",
        "pp=4,dp=2,zero=1,schedule=zbv,vp=2", "dp_shard=8,recompute=op,reshard=no"}) {
    EXPECT_TRUE(has(jobs, std::string("qwen3_30b_a3b:gbs=8,seq=4096,") + keys)) << keys;
  }
}

TEST(JobGridTest, BesideAJobItHasTheJobAndKeepsItsDegrees) {
  const Job job = parse_job("llama3_8b:tp=2,pp=2,dp=2,gbs=24,mbs=3,layers=17/15,zero=1,prefetch=5");
  const JobGrid grid = JobGrid::beside(job);
  int unchanged = 0;
  for (const GridPoint& point : grid.points()) {
    EXPECT_EQ(point.tp, 2);
    EXPECT_EQ(point.pp, 2);
    const auto at = grid.job_at(point);
    ASSERT_TRUE(at);
    for (const GridWay& way : grid.ways(*at)) {
      Job other = grid.with(*at, way);
      complete(other, "a test");
      const bool is_same = in_effect(other) == in_effect(job);
      EXPECT_EQ(point.changes + way.changes == 0, is_same) << to_string(other);
      unchanged += is_same ? 1 : 0;
    }
  }
  EXPECT_EQ(unchanged, 1);
}

TEST(JobGridTest, OneRankHasItsWays) {
  const auto jobs = all_of(JobGrid::beside(parse_job("llama3_8b:gbs=4")));
  EXPECT_TRUE(has(jobs, "llama3_8b:gbs=4,mbs=4"));
  EXPECT_TRUE(has(jobs, "llama3_8b:gbs=4,recompute=full"));
}

}  // namespace
}  // namespace dovetail::jobs

// Figures of real traces. Those of a trace are sums of its own numbers, so they are exact: nanoseconds for
// ddp-resnet50 (decimals in the file), microseconds for dlrm-v100x8.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "recordings/timeline/ddp_buckets.h"
#include "recordings/timeline/step_figures.h"
#include "tests/recordings/kineto/traces.h"

namespace dovetail::imports {
namespace {

using testing::dlrm_v100x8;
using ::testing::ElementsAre;
using testing::resnet50;

// Tenths of a microsecond, as the published table has them.
std::int64_t tenths(Duration time) { return (time.count() + 50) / 100; }

TEST(KinetoFiguresTest, ResNetStepsHaveTheirPublishedFigures) {
  const JobTrace job = resnet50();
  const RankTimeline& line = job.ranks[0].line;
  ASSERT_EQ(line.steps.size(), 3U);
  // CPU step, span, compute, communication, overlap, exposed, idle; microseconds.
  const std::array<std::array<std::int64_t, 7>, 3> expected = {
      {{2224422, 2157694, 393920, 119890, 19421, 100469, 1663305},
       {2197269, 2135328, 392968, 123000, 18679, 104321, 1638038},
       {2249362, 2187640, 396205, 225874, 38758, 187117, 1604319}}};
  for (std::size_t s = 0; s < 3; ++s) {
    const StepFigures f = figures_of(line, line.steps[s]);
    const std::array<Duration, 7> found = {f.cpu_step, f.span,    f.comp, f.comm,
                                           f.overlap,  f.exposed, f.idle};
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(tenths(found[i])), static_cast<double>(expected[s][i]), 1)
          << line.steps[s].name << " figure " << i;
    }
    EXPECT_EQ(f.gpu_works, 1258U);
    EXPECT_EQ(f.comm, f.overlap + f.exposed);
  }
  EXPECT_EQ(job.ranks[0].trace.events_in_file, 40573);
  EXPECT_EQ(line.works.size(), 3774U);
  EXPECT_EQ(line.collectives.size(), 21U);
}

TEST(KinetoFiguresTest, DdpsFiveBucketsHaveTheirParameters) {
  const JobTrace job = resnet50();
  const RankTrace& rank = job.ranks[0];
  for (const TracedStep& step : rank.line.steps) {
    const TracedBuckets found = ddp_buckets(rank.trace, rank.line, step);
    std::vector<std::int64_t> elements;
    std::vector<std::size_t> parameters;
    std::int64_t sum = 0;
    for (const TracedBucket& bucket : found.buckets) {
      elements.push_back(bucket.elements);
      parameters.push_back(bucket.gradients.size());
      EXPECT_TRUE(bucket.copied);
      for (const TracedGradient& gradient : bucket.gradients) sum += gradient.elements;
    }
    EXPECT_THAT(elements, ElementsAre(2049000, 7875584, 6563840, 6637568, 2431040));
    EXPECT_THAT(parameters, ElementsAre(2, 15, 12, 51, 81));
    EXPECT_EQ(sum, 25557032);  // parameters of ResNet-50
    EXPECT_TRUE(found.sizes_known);
    EXPECT_EQ(found.gradients_after_last, 0);
  }
}

TEST(KinetoFiguresTest, DlrmsCollectivesTakeWhatTheFastestRankSaw) {
  const JobTrace job = dlrm_v100x8();
  ASSERT_EQ(job.matched.size(), 8U);
  std::vector<std::int64_t> all_reduces;
  for (const MatchedCollective& matched : job.matched) {
    const TracedCollective& c =
        job.ranks[0].line.collectives[static_cast<std::size_t>(matched.by_rank[0])];
    EXPECT_LE(matched.end_spread, std::chrono::microseconds(7));
    if (c.kind != CollectiveKind::AllReduce) continue;
    all_reduces.push_back(*c.elements);
    all_reduces.push_back(matched.transfer / std::chrono::microseconds(1));
  }
  EXPECT_THAT(all_reduces, ElementsAre(394241, 86, 112, 20, 226960, 69));
  // 48.5 ms in all; 1.7 ms of it data moves, 96.4 % is waiting.
  EXPECT_EQ(job.collective_time, std::chrono::microseconds(48542));
  EXPECT_EQ(job.waiting_time, std::chrono::microseconds(46806));
}

}  // namespace
}  // namespace dovetail::imports

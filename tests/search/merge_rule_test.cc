// MG-WFBP's rule against what was published of it, and against the text of its repository.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/merge_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/random.h"
#include "models/workloads/profile.h"
#include "search/planner.h"

namespace dovetail::search {
namespace {

using schedule::Merges;
using std::chrono::microseconds;
using Ends = std::vector<std::size_t>;

// GoogLeNet's layers as they were logged on 8 nodes.
models::Profile googlenet() {
  return models::read_profile(
      JsonFile(DOVETAIL_SOURCE_DIR "/answers/validation/data/googlenet-k80x8.json"));
}

PartitionProblem problem_of(const models::Profile& profile) {
  PartitionProblem problem;
  for (const schedule::OwedGradient& gradient :
       schedule::owed_gradients(models::profile_program(profile))) {
    problem.size.push_back(gradient.bytes);
  }
  for (const auto& gradient : profile.gradients) problem.ready.push_back(gradient.ready.front());
  return problem;
}

// A start-up of 10 us, 1 us for a kilobyte.
const LinearPiece kTen{.from = Bytes(0), .base_ns = 10'000, .ns_per_byte = 1};

TEST(MergeRuleTest, WaitsForAGradientThatIsReadySoonerThanAStartUpTakes) {
  // Ready at 0, 5 and 30, 8 us each. The first would end at 18, and 5 is less than 10 after 0: they join, run 5..31. 30
  // is 25 after their start: closed. It runs 31..49. Without waiting 0 runs 0..18; 5 would start at 18, end at 36, so 30
  // does not queue: 18..36, 36..54.
  const PartitionProblem problem{.ready = {microseconds(0), microseconds(5), microseconds(30)},
                                 .size = {Bytes(8000), Bytes(8000), Bytes(8000)}};
  EXPECT_EQ(merged_partition(problem, kTen, Merges::WorthWaitingFor),
            (Partition{{2, 3}, microseconds(49)}));
  EXPECT_EQ(merged_partition(problem, kTen, Merges::Queued),
            (Partition{{1, 2, 3}, microseconds(54)}));
}

TEST(MergeRuleTest, JoinsWhatIsReadyBeforeTheLinkIs) {
  const PartitionProblem problem{.ready = {microseconds(0), microseconds(1)},
                                 .size = {Bytes(8000), Bytes(8000)}};
  for (const Merges merges : {Merges::Queued, Merges::WorthWaitingFor}) {
    EXPECT_EQ(merged_partition(problem, kTen, merges, microseconds(20)),
              (Partition{{2}, microseconds(46)}));
  }
  EXPECT_EQ(merged_partition({}, kTen, Merges::Queued).ends, Ends{});
}

// Published for 8 nodes: a start-up of 830.2 us and 3.337 ns a byte, fitted to the OSU curve from 12 KB to 1 MB. By hand
// with the text of the repository: nine buckets, the last one ends at 206,296.6 us, where the optimum is.
TEST(MergeRuleTest, FormsNineBucketsOfGoogLeNetOnEightNodes) {
  const PartitionProblem problem = problem_of(googlenet());
  ASSERT_EQ(problem.size.size(), 64U);
  const LinearPiece cost{.from = Bytes(0), .base_ns = 830'200, .ns_per_byte = 3.337};
  const Partition found = merged_partition(problem, cost, Merges::WorthWaitingFor);
  EXPECT_EQ(found.ends, (Ends{1, 7, 15, 21, 43, 61, 62, 63, 64}));
  EXPECT_EQ(found.finish, Duration(206'296'632));
  EXPECT_EQ(exact_partition(problem, std::vector<LinearPiece>{cost}).finish, found.finish);
}

// The repository's way: the times of all layers, all of them anew after each merge.
Partition literally(const PartitionProblem& problem, const LinearPiece& cost, Merges merges) {
  const std::size_t layers = problem.ready.size();
  const auto time = [&](double bytes) { return cost.base_ns + cost.ns_per_byte * bytes; };
  std::vector<double> ready, bytes, taken;
  for (std::size_t i = 0; i < layers; ++i) {
    ready.push_back(static_cast<double>(problem.ready[i].count()));
    bytes.push_back(static_cast<double>(problem.size[i].count()));
    taken.push_back(time(bytes.back()));
  }
  const auto starts = [&] {
    std::vector<double> start = {ready.front()};
    for (std::size_t i = 1; i < layers; ++i) {
      start.push_back(std::max(start.back() + taken[i - 1], ready[i]));
    }
    return start;
  };
  Partition result;
  for (std::size_t i = 0; i + 1 < layers; ++i) {
    const std::vector<double> start = starts();
    const double next = ready[i + 1];
    bool merged = false;
    if (next < start[i] + taken[i]) {
      merged = start[i] > next;
      if (merges == Merges::WorthWaitingFor) merged = merged || next - start[i] < cost.base_ns;
    }
    if (!merged) {
      result.ends.push_back(i + 1);
      continue;
    }
    bytes[i + 1] += bytes[i];
    taken[i] = 0;
    taken[i + 1] = time(bytes[i + 1]);
  }
  result.ends.push_back(layers);
  result.finish = Duration(std::llround(starts().back() + taken.back()));
  return result;
}

TEST(MergeRuleTest, IsWhatTheRepositoryDoes) {
  int waited = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    PartitionProblem problem;
    Duration ready{};
    for (std::int64_t i = random.between(1, 40); i > 0; --i) {
      problem.ready.push_back(ready += Duration(random.between(0, 40'000)));
      problem.size.emplace_back(random.between(1, 100'000));
    }
    const LinearPiece cost{.from = Bytes(0),
                           .base_ns = static_cast<double>(random.between(0, 60'000)),
                           .ns_per_byte = 0.25};
    const auto same = [&](Merges merges) {
      Partition found = merged_partition(problem, cost, merges);
      EXPECT_EQ(found, literally(problem, cost, merges));
      EXPECT_GE(found.finish + Duration(1),
                exact_partition(problem, std::vector<LinearPiece>{cost}).finish);
      return found;
    };
    waited += same(Merges::Queued) == same(Merges::WorthWaitingFor) ? 0 : 1;
  }
  EXPECT_GT(waited, 100);
}

TEST(MergeRuleTest, FitsTheStartUpToMessagesOfTwoMebibytesAtMost) {
  const LinearPiece line = start_up_line(
      models::CollectiveTable(models::AlphaBeta{.alpha = microseconds(30), .ns_per_byte = 0.5}));
  EXPECT_NEAR(line.base_ns, 30'000, 1);
  EXPECT_NEAR(line.ns_per_byte, 0.5, 1e-5);
  // Larger messages at a tenth of the rate change nothing: nobody measured them.
  std::vector<models::CollectivePoint> points;
  for (const std::int64_t kilobytes : {1, 2048, 20480}) {
    const std::int64_t bytes = kilobytes * 1024;
    const std::int64_t slow = std::max<std::int64_t>(0, bytes - 2048 * 1024);
    points.push_back({.bytes = Bytes(bytes), .isolated = Duration(30'000 + bytes / 2 + 5 * slow)});
  }
  EXPECT_NEAR(start_up_line(models::CollectiveTable(points)).ns_per_byte, 0.5, 1e-3);
}

TEST(MergeRuleTest, ThePlannerMakesItsBucketsOfTheMachinesTimes) {
  const models::Profile profile = googlenet();
  const schedule::Program program = models::profile_program(profile);
  Planner planner(program, models::profile_costs(profile, program));
  const Candidate merged = planner.evaluate(schedule::parse_policy("mg-wfbp"));
  EXPECT_EQ(merged.schedule.policy, "mg-wfbp");
  EXPECT_GT(merged.buckets(), 1U);
  EXPECT_LT(merged.buckets(), 64U);
  for (const char* other : {"per-tensor", "one-bucket"}) {
    const auto as_mg =
        schedule::parse_policy(std::string(other) + "+mode=copy+wait=end-of-backward");
    EXPECT_LT(merged.summary.step_ns, planner.evaluate(as_mg).summary.step_ns) << other;
  }
  const Candidate two = planner.evaluate(schedule::parse_policy("asc-wfbp"));
  EXPECT_GE(two.buckets(), merged.buckets());
  EXPECT_NE(two.schedule.buckets[0].stream, two.schedule.buckets[1].stream);
}

}  // namespace
}  // namespace dovetail::search

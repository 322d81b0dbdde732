// Tests of the exact optimum: hand calculations, then enumeration of all groupings.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/exact.h"

#include "base/error.h"
#include "base/random.h"

#include "tests/support/partition_judges.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <string>

namespace dovetail::search {

// What a failed expectation prints.
inline std::ostream& operator<<(std::ostream& out, const Partition& partition) {
  out << partition.finish.count() << " ns, ends";
  for (const std::size_t end : partition.ends) out << ' ' << end;
  return out;
}

namespace {

using std::chrono::microseconds;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

PartitionProblem problem_of(const std::vector<std::int64_t>& ready_us,
                            const std::vector<std::int64_t>& bytes) {
  PartitionProblem problem;
  for (const std::int64_t us : ready_us) problem.ready.push_back(microseconds(us));
  for (const std::int64_t size : bytes) problem.size.push_back(Bytes(size));
  return problem;
}

using testing::best_of_any_cost;
using testing::BucketCost;
using testing::ends_of;
using testing::enumerate_partitions;
using testing::suffix_bound;
using Curve = std::vector<LinearPiece>;

// 10 us and 1 us a kilobyte.
const Curve kTenPlusBytes{{Bytes(0), 10'000, 1.0}};

TEST(ExactTest, PL6SendsAGradientAloneWhereTheLinkWouldIdle) {
  // Ready at 10 and 50, both 5 us long. Expectation: alone, the first runs 10..25, the second
  // 50..65. Together they run 50..70.
  const PartitionProblem problem = problem_of({10, 50}, {5000, 5000});
  EXPECT_EQ(exact_partition(problem, kTenPlusBytes), (Partition{{1, 2}, microseconds(65)}));
}

TEST(ExactTest, PL6JoinsGradientsWhereTheBaseCostsMoreThanTheDelay) {
  // Ready at 10 and 12. Expectation: alone 10..25 and 25..40; together 12..32.
  const PartitionProblem problem = problem_of({10, 12}, {5000, 5000});
  EXPECT_EQ(exact_partition(problem, kTenPlusBytes), (Partition{{2}, microseconds(32)}));
}

TEST(ExactTest, TakesTheBestOfAllEightGroupingsOfFour) {
  // Ready 10 20 30 40, sizes 8 8 2 2 us. Expectation, ends of the buckets:
  //   1|2|3|4  28 46 58 70    12|3|4  46 58 70    1|2|34  28 46 60    123|4  58 70
  //   1|23|4   28 50 62       12|34   46 60       1|234   28 62       1234   70
  // The best is 60; of the two groupings that reach it, the one with fewer buckets is returned.
  const PartitionProblem problem = problem_of({10, 20, 30, 40}, {8000, 8000, 2000, 2000});
  EXPECT_EQ(exact_partition(problem, kTenPlusBytes), (Partition{{2, 4}, microseconds(60)}));
  EXPECT_EQ(enumerate_partitions(problem, kTenPlusBytes), (Partition{{2, 4}, microseconds(60)}));
}

TEST(ExactTest, JoinsBucketsThatNeedNotHurry) {
  // Ready 0, 20 and 100, sizes 1 us. Expectation: each alone runs 0..11, 20..31, 100..111. The
  // first two together run 20..32, in time for the third, so one collective is saved.
  const PartitionProblem problem = problem_of({0, 20, 100}, {1000, 1000, 1000});
  EXPECT_EQ(exact_partition(problem, kTenPlusBytes), (Partition{{2, 3}, microseconds(111)}));
}

TEST(ExactTest, SplitsWhereSmallCollectivesUseAFasterProtocol) {
  // 1 us for up to 1000 bytes, then 50 us. Expectation: two of 1000 bytes, both ready at 10, end at
  // 12 one by one and at 60 together.
  const std::array<LinearPiece, 2> pieces{LinearPiece{Bytes(0), 1000, 0},
                                          LinearPiece{Bytes(1001), 50'000, 0}};
  const PartitionProblem problem = problem_of({10, 10}, {1000, 1000});
  EXPECT_EQ(exact_partition(problem, pieces), (Partition{{1, 2}, microseconds(12)}));
}

TEST(ExactTest, UsesACostThatFallsWithSize) {
  // 90 us below 2000 bytes, 20 us from there on. Expectation: together 10..30, alone 10..100..190.
  const BucketCost falling = [](Bytes size) { return microseconds(size < Bytes(2000) ? 90 : 20); };
  const PartitionProblem problem = problem_of({10, 10}, {1000, 1000});
  EXPECT_EQ(best_of_any_cost(problem, falling), (Partition{{2}, microseconds(30)}));
}

TEST(ExactTest, ReportsTheEndOfEachBucket) {
  // Ready 10 20 30, sizes 1 2 3 us. Expectation: {1} 10..21, {2 3} 30..45.
  const PartitionProblem problem = problem_of({10, 20, 30}, {1000, 2000, 3000});
  const std::vector<std::size_t> ends{1, 3};
  EXPECT_EQ(ends_of(problem, ends, kTenPlusBytes),
            (std::vector<Duration>{microseconds(21), microseconds(45)}));
}

TEST(ExactTest, RoundsOnceAtTheEndAndNotInEveryBucket) {
  // Three buckets of one byte at 0.4 ns a byte, base 0, ready at 0. Expectation: ends at 0.4, 0.8
  // and 1.2 ns, which is 0, 1 and 1 to the nearest; rounding every bucket would give 0, 0, 0.
  const PartitionProblem problem = problem_of({0, 0, 0}, {1, 1, 1});
  const std::vector<std::size_t> ends{1, 2, 3};
  EXPECT_EQ(ends_of(problem, ends, Curve{{Bytes(0), 0, 0.4}}),
            (std::vector<Duration>{Duration(0), Duration(1), Duration(1)}));
}

TEST(ExactTest, HasNothingToDoWithoutGradients) {
  const PartitionProblem none;
  const std::vector<LinearPiece> pieces{{Bytes(0), 1, 1}};
  const BucketCost table = [](Bytes) { return Duration(1); };
  EXPECT_EQ(exact_partition(none, kTenPlusBytes), Partition{});
  EXPECT_EQ(exact_partition(none, pieces), Partition{});
  EXPECT_EQ(best_of_any_cost(none, table), Partition{});
  EXPECT_EQ(enumerate_partitions(none, pieces), Partition{});
  EXPECT_EQ(suffix_bound(none, pieces), Duration(0));
  EXPECT_TRUE(ends_of(none, {}, kTenPlusBytes).empty());
}

TEST(ExactTest, BoundsTheFinishByWhatIsLeftAfterEachGradient) {
  // Ready 10 and 30, sizes 40 and 5 us. Expectation: max(10 + 10 + 45, 30 + 10 + 5) = 65; the best
  // grouping needs 10..60..75.
  const PartitionProblem problem = problem_of({10, 30}, {40'000, 5000});
  EXPECT_EQ(suffix_bound(problem, kTenPlusBytes), microseconds(65));
  EXPECT_EQ(exact_partition(problem, kTenPlusBytes).finish, microseconds(75));
}

TEST(ExactTest, BoundsASteepeningCurveByALineBelowIt) {
  // 10 us flat up to 1000 bytes, from there on 10 ns a byte: T(1000) = 10 us, T(2000) = 20 us.
  // Both ready at 0 with 1000 bytes. The second line, 10 ns a byte from the origin, lies below T
  // and touches it. Expectation: 20 us, which both groupings reach.
  const std::array<LinearPiece, 2> pieces{LinearPiece{Bytes(0), 10'000, 0},
                                          LinearPiece{Bytes(1000), 0, 10}};
  const PartitionProblem problem = problem_of({0, 0}, {1000, 1000});
  EXPECT_EQ(suffix_bound(problem, pieces), microseconds(20));
  EXPECT_EQ(exact_partition(problem, pieces), (Partition{{2}, microseconds(20)}));
}

// ---- random problems against enumeration

// Sizes and gaps between ready times are log-uniform, which mixes links that idle, links that are
// late, and both in one step.
PartitionProblem random_problem(Random& random, std::size_t most) {
  const auto n = static_cast<std::size_t>(random.between(1, static_cast<std::int64_t>(most)));
  const double gap_scale = std::exp2(30 * random.uniform());   // up to 1 s
  const double size_scale = std::exp2(36 * random.uniform());  // up to 64 GiB
  const double spread = 6 * random.uniform();
  const bool equal_ready = random.between(0, 9) == 0;
  PartitionProblem problem;
  Duration ready(random.between(0, 1000));
  for (std::size_t i = 0; i < n; ++i) {
    const double gap = gap_scale * std::exp2(spread * (random.uniform() - 0.5));
    const double size = size_scale * std::exp2(spread * (random.uniform() - 0.5));
    if (!equal_ready && random.between(0, 3) != 0) ready += Duration(std::llround(gap));
    problem.ready.push_back(ready);
    problem.size.push_back(Bytes(random.between(0, 50) == 0 ? 0 : 1 + std::llround(size)));
  }
  return problem;
}

double mean_size(const PartitionProblem& problem) {
  double sum = 1;
  for (const Bytes size : problem.size) sum += static_cast<double>(size.count());
  return sum / static_cast<double>(problem.size.size());
}

double mean_gap(const PartitionProblem& problem) {
  return (1 + static_cast<double>(problem.ready.back().count())) /
         static_cast<double>(problem.ready.size());
}

// Base and slope that both matter for the problem, within a factor of 16 either way.
struct Line {
  Duration base{};
  double ns_per_byte = 0;
};
Line random_line(Random& random, const PartitionProblem& problem) {
  const double gap = mean_gap(problem);
  const double base = gap * std::exp2(8 * random.uniform() - 4);
  const double slope = gap / mean_size(problem) * std::exp2(8 * random.uniform() - 4);
  return Line{Duration(random.between(0, 9) == 0 ? 0 : std::llround(base)),
              random.between(0, 9) == 0 ? 0.0 : slope};
}

// 1 to 8 pieces; half of the knots are jumps upwards, as at a protocol switch.
std::vector<LinearPiece> random_pieces(Random& random, const PartitionProblem& problem) {
  const double mean = mean_size(problem);
  std::vector<LinearPiece> pieces;
  double reached = 0;  // the cost where the last piece ends
  Bytes from(0);
  const std::int64_t count = random.between(1, 8);
  for (std::int64_t k = 0; k < count; ++k) {
    const Line cost = random_line(random, problem);
    const bool jumps = k == 0 || random.between(0, 1) == 0;
    const double here = reached + (jumps ? static_cast<double>(cost.base.count()) : 0);
    const double start = static_cast<double>(from.count());
    pieces.push_back({from, here - cost.ns_per_byte * start, cost.ns_per_byte});
    const Bytes next = from + Bytes(1 + std::llround(mean * 4 * random.uniform()));
    reached = here + cost.ns_per_byte * static_cast<double>((next - from).count());
    from = next;
  }
  return pieces;
}

// Any cost, also one that falls: a hash of the size.
BucketCost random_table(std::int64_t seed, std::int64_t most) {
  return [seed, most](Bytes size) {
    const auto mixed = static_cast<std::uint64_t>(size.count()) ^ static_cast<std::uint64_t>(seed);
    return Duration(static_cast<std::int64_t>(splitmix64(mixed) % 1'000'003) * most / 1'000'003);
  };
}

constexpr std::uint64_t kSeed = 20'240'601;
constexpr int kInstances = 10'000;

TEST(ExactTest, PiecewiseOptimumEqualsEnumerationToTheNanosecond) {
  Random random(kSeed + 1);
  for (int instance = 0; instance < kInstances && !HasFailure(); ++instance) {
    SCOPED_TRACE("seed " + std::to_string(kSeed + 1) + ", instance " + std::to_string(instance));
    const PartitionProblem problem = random_problem(random, 16);
    const std::vector<LinearPiece> pieces = random_pieces(random, problem);
    const Partition exact = exact_partition(problem, pieces);
    EXPECT_EQ(exact.finish, enumerate_partitions(problem, pieces).finish);
    EXPECT_EQ(exact.finish, ends_of(problem, exact.ends, pieces).back());
    EXPECT_LE(suffix_bound(problem, pieces), exact.finish);
  }
}

TEST(ExactTest, TheJudgeOfAnyCostEqualsEnumerationToTheNanosecond) {
  Random random(kSeed + 2);
  for (int instance = 0; instance < kInstances && !HasFailure(); ++instance) {
    SCOPED_TRACE("seed " + std::to_string(kSeed + 2) + ", instance " + std::to_string(instance));
    const PartitionProblem problem = random_problem(random, 12);
    const auto most = 1 + std::llround(4 * mean_gap(problem));
    const BucketCost table = random_table(instance, most);
    const Partition best = best_of_any_cost(problem, table);
    EXPECT_EQ(best.finish, enumerate_partitions(problem, table).finish);
    EXPECT_EQ(best.finish, ends_of(problem, best.ends, table).back());
  }
}

TEST(ExactTest, EnumerationEqualsARecursionWrittenInFloatingPoint) {
  // Enumeration shares its ticks with what it is held against, so it is checked by the definition of T itself:
  // f in long double. Both round once, so they differ by the rounding of the slope and less than 1
  // ns besides: total bytes * 2^-28 ns for a step under 17 s.
  Random random(kSeed + 3);
  for (int instance = 0; instance < 1000 && !HasFailure(); ++instance) {
    SCOPED_TRACE("seed " + std::to_string(kSeed + 3) + ", instance " + std::to_string(instance));
    const PartitionProblem problem = random_problem(random, 10);
    const Line cost = random_line(random, problem);
    std::vector<long double> finish{0};
    long double total = 0;
    for (std::size_t j = 0; j < problem.size.size(); ++j) {
      const auto ready = static_cast<long double>(problem.ready[j].count());
      long double best = 1e30L;
      long double bytes = 0;
      for (std::size_t i = j + 1; i-- > 0;) {
        bytes += static_cast<long double>(problem.size[i].count());
        const long double base = static_cast<long double>(cost.base.count());
        best = std::min(best, std::max(ready, finish[i]) + base + bytes * cost.ns_per_byte);
      }
      finish.push_back(best);
      total = bytes;
    }
    const Curve curve{{Bytes(0), static_cast<double>(cost.base.count()), cost.ns_per_byte}};
    const auto found =
        static_cast<long double>(enumerate_partitions(problem, curve).finish.count());
    const long double horizon = std::max(0x1p29L, 64 * finish.back());  // generous: all base costs
    EXPECT_NEAR(static_cast<double>(found - finish.back()), 0,
                static_cast<double>(0.501L + total * horizon * 0x1p-62L));
  }
}

// ---- the methods against each other on large problems

PartitionProblem large_problem(Random& random, std::size_t n, std::int64_t most_bytes) {
  PartitionProblem problem;
  Duration ready{};
  for (std::size_t i = 0; i < n; ++i) {
    ready += Duration(random.between(0, 100'000));
    problem.ready.push_back(ready);
    problem.size.push_back(Bytes(random.between(1, most_bytes)));
  }
  return problem;
}

TEST(ExactTest, ALineHasTheGroupingOfTheJudgeOfThreeThousandGradients) {
  // With whole nanoseconds a byte the judge has the very cost of the line. 50 us of
  // compute a gradient against 10 us + 1 ns a byte: from an idle link to one eight times too slow.
  for (const std::int64_t most_bytes : {20'000, 80'000, 100'000, 800'000}) {
    SCOPED_TRACE(most_bytes);
    Random random(static_cast<std::uint64_t>(most_bytes));
    const PartitionProblem problem = large_problem(random, 3000, most_bytes);
    const BucketCost table = [](Bytes size) { return Duration(10'000 + size.count()); };
    const Partition found = exact_partition(problem, kTenPlusBytes);
    EXPECT_EQ(found, best_of_any_cost(problem, table));
    EXPECT_EQ(found.finish, ends_of(problem, found.ends, kTenPlusBytes).back());
  }
}

TEST(ExactTest, PiecewiseAndAnyCostChooseTheSameGroupingOfThreeThousandGradients) {
  // A curve as measured: a jump at 64 KiB, cheaper bytes beyond 1 MiB, then dearer ones.
  const std::vector<LinearPiece> pieces{{Bytes(0), 8000, 2},
                                        {kib(64), 150'000, 1},
                                        {mib(1), 150'000, 1},
                                        {mib(4), 150'000 - (3 << 22), 4}};
  const BucketCost table = [](Bytes size) {
    if (size < kib(64)) return Duration(8000 + 2 * size.count());
    if (size < mib(4)) return Duration(150'000 + size.count());
    return Duration(150'000 - (3 << 22) + 4 * size.count());
  };
  for (const std::int64_t most_bytes : {20'000, 80'000, 200'000, 1'600'000}) {
    SCOPED_TRACE(most_bytes);
    Random random(static_cast<std::uint64_t>(most_bytes));
    const PartitionProblem problem = large_problem(random, 3000, most_bytes);
    EXPECT_EQ(exact_partition(problem, pieces), best_of_any_cost(problem, table));
  }
}

TEST(ExactTest, StaysExactOverAMillionGradients) {
  // A step of a minute leaves fewer bits to a tick. The finish must be that of the grouping itself,
  // and lies between the bound and one bucket for everything.
  Random random(7);
  const PartitionProblem problem = large_problem(random, 1'000'000, 100'000);
  const Partition found = exact_partition(problem, kTenPlusBytes);
  EXPECT_EQ(found.finish, ends_of(problem, found.ends, kTenPlusBytes).back());
  EXPECT_GE(found.finish, suffix_bound(problem, kTenPlusBytes));
  const std::vector<std::size_t> one_bucket{problem.size.size()};
  EXPECT_LT(found.finish, ends_of(problem, one_bucket, kTenPlusBytes).back());
}

// ---- what callers must guarantee

TEST(ExactTest, RefusesReadyTimesThatFall) {
  const PartitionProblem problem = problem_of({20, 10}, {1, 1});
  EXPECT_THAT([&] { static_cast<void>(exact_partition(problem, kTenPlusBytes)); },
              ThrowsMessage<CheckError>(HasSubstr("ready times must not fall")));
}

// From 65.536 ms at 5 B to 4295 s at 12 B (found by fuzzing): the second piece begins at -51 minutes, and
// the line through both points misses the first by the rounding of that.
TEST(ExactTest, ASteepPieceMeetsTheOneBeforeItUpToRounding) {
  const double slope = (4294967296e3 - 65536e3) / 7;
  const std::vector<LinearPiece> pieces{{Bytes(0), 65536e3, 0},
                                        {Bytes(5), 65536e3 - 5 * slope, slope}};
  EXPECT_EQ(exact_partition(problem_of({10}, {4}), pieces).finish, Duration(65'546'000));
  EXPECT_EQ(exact_partition(problem_of({10}, {5}), pieces).finish, Duration(65'546'000));
}

TEST(ExactTest, RefusesACurveThatFallsAtAKnot) {
  const PartitionProblem problem = problem_of({10, 20}, {1, 1});
  const std::vector<LinearPiece> pieces{{Bytes(0), 100, 1}, {Bytes(1000), 99, 1}};
  EXPECT_EQ(pieces.size(), 2U);  // T(999) = 1099 = T(1000): still allowed
  EXPECT_EQ(exact_partition(problem, pieces).ends.back(), 2U);
  const std::vector<LinearPiece> falling{{Bytes(0), 100, 1}, {Bytes(1000), 98, 1}};
  EXPECT_THAT([&] { static_cast<void>(exact_partition(problem, falling)); },
              ThrowsMessage<CheckError>(HasSubstr("the cost falls at 1000 B")));
}

// 3 s: 2^-29 ns are the unit.
TEST(ExactTest, SaysHowFarItMayBeOff) {
  const std::vector<LinearPiece> pieces{{Bytes(0), 0, 0.1984}};
  EXPECT_EQ(rounding_of(problem_of({10}, {std::int64_t{1} << 34}), pieces), Duration(32));
  EXPECT_EQ(rounding_of(problem_of({10}, {std::int64_t{1} << 20}), pieces), Duration(0));
}

// A terabyte at one byte a millisecond: 32 years.
TEST(ExactTest, RefusesTimesThatTicksCannotCount) {
  const PartitionProblem problem = problem_of({10}, {1'000'000'000'000});
  const Curve slow{{Bytes(0), 0, 1e6}};
  const Curve quick{{Bytes(0), 0, 1e2}};
  EXPECT_THROW(exact_partition(problem, slow), InputError);
  EXPECT_NO_THROW(exact_partition(problem, quick));
}

TEST(ExactTest, RefusesToEnumerateMoreThanTwenty) {
  const PartitionProblem problem =
      problem_of(std::vector<std::int64_t>(21, 10), std::vector<std::int64_t>(21, 1));
  EXPECT_THAT([&] { static_cast<void>(enumerate_partitions(problem, kTenPlusBytes)); },
              ThrowsMessage<CheckError>(HasSubstr("too many groupings")));
}

TEST(ExactTest, RefusesAGroupingThatLeavesGradientsOut) {
  const PartitionProblem problem = problem_of({10, 20}, {1, 1});
  const std::vector<std::size_t> ends{1};
  EXPECT_THAT([&] { static_cast<void>(ends_of(problem, ends, kTenPlusBytes)); },
              ThrowsMessage<CheckError>(HasSubstr("the last bucket ends at 2")));
}

}  // namespace
}  // namespace dovetail::search

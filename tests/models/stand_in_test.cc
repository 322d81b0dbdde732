// Repetitions that stand in for timed work.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/clusters/stand_in.h"

#include "base/error.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace dovetail::models {
namespace {

using dovetail::testing::error_of;
using schedule::GemmWork;
using schedule::TimedWork;
using std::chrono::microseconds;
using ::testing::HasSubstr;

schedule::Program timed(std::vector<Duration> by_rank) {
  schedule::Program program;
  schedule::Op op;
  op.name = "conv";
  op.work = TimedWork{std::move(by_rank)};
  program.ops.push_back(op);
  return program;
}

// One product of two 64 x 64 matrices takes `time`.
Cluster with_unit(Duration time) {
  Cluster cluster;
  cluster.name = "here";
  cluster.unit_kernel = UnitKernel{.gemm = {.m = 64, .n = 64, .k = 64}, .time = time};
  return cluster;
}

GemmWork work_of(const StandIn& result) {
  return std::get<GemmWork>(result.program.ops.front().work);
}

TEST(StandInTest, RepetitionsFillTheMeanOverRanks) {
  const StandIn result =
      stand_in(timed({microseconds(90), microseconds(110)}), with_unit(microseconds(8)));
  EXPECT_EQ(result.replaced, 1);
  EXPECT_EQ(work_of(result), (GemmWork{.m = 64, .n = 64, .k = 64, .count = 13}));  // 12.5 up
}

TEST(StandInTest, AShortOpIsOneRepetition) {
  EXPECT_EQ(work_of(stand_in(timed({microseconds(1)}), with_unit(microseconds(8)))).count, 1);
}

TEST(StandInTest, SaysThatThereIsNoUnitKernel) {
  Cluster cluster = with_unit(microseconds(8));
  cluster.unit_kernel.reset();
  EXPECT_THAT(error_of([&] { stand_in(timed({microseconds(1)}), cluster); }),
              HasSubstr("op conv is known only by its time, and cluster here has no unit_kernel"));
}

// Eleven days of one nanosecond each: 10^15 repetitions of 48 KiB.
TEST(StandInTest, RefusesRepetitionsThatCannotBeCounted) {
  const Cluster cluster = with_unit(Duration(1));
  EXPECT_NO_THROW(stand_in(timed({std::chrono::seconds(1)}), cluster));
  EXPECT_THAT(error_of([&] { stand_in(timed({kLongestTime}), cluster); }),
              HasSubstr("op conv stands for more repetitions of the unit_kernel of cluster here"));
}

}  // namespace
}  // namespace dovetail::models

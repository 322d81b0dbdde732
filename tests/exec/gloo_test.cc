// Gloo's collectives behind Transport: exact sums, the same as the ring's, and errors with a name.
//
// Skipped where the build has no Gloo, and under the thread sanitizer, which cannot see into it.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/gloo.h"

#include "base/error.h"
#include "exec/cpu/ring.h"
#include "tests/exec/own_address.h"
#include "tests/exec/transports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <random>
#include <string>
#include <thread>

namespace dovetail::exec::cpu {
namespace {

using launch::Session;
using schedule::ReduceOp;
using testing::count_wrong;
using testing::data_of;
using ::testing::HasSubstr;
using testing::kPatient;
using testing::on_ranks;
using ::testing::StartsWith;

std::unique_ptr<Transport> open_on_gloo(Session& session) { return open_gloo(session); }

// Longer than any test may last: what ends a wait is not the deadline.
constexpr Duration kNever = std::chrono::minutes(10);

bool can_run() {
#if defined(__SANITIZE_THREAD__)
  return false;
#else
  return has_gloo();
#endif
}

class GlooOnRanks : public ::testing::TestWithParam<std::int32_t> {
 protected:
  void SetUp() override {
    if (!can_run()) GTEST_SKIP() << "no Gloo in this build, or not to be seen by its sanitizer";
  }
};
INSTANTIATE_TEST_SUITE_P(Gloo, GlooOnRanks, ::testing::Values(1, 2, 3, 4));

TEST_P(GlooOnRanks, AllReduceIsExactForEveryLength) {
  const std::int32_t n = GetParam();
  on_ranks(n, open_on_gloo, [&](Session& session, Transport& gloo) {
    for (const std::size_t length : {0, 1, 2, 3, 4, 5, 64, 1000, 65'537, 1'000'003}) {
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Average}) {
        std::vector<float> data = data_of(session.rank(), length);
        gloo.all_reduce(data, op, "all-reduce of bucket 0");
        EXPECT_EQ(count_wrong(data, 0, n, op), 0U) << length << " elements on " << n << " ranks";
      }
    }
  });
}

// Scatter, then gather: element i must be reduced, wherever its shard was.
TEST_P(GlooOnRanks, ReduceScatterAndAllGatherMakeAnAllReduce) {
  const std::int32_t n = GetParam();
  on_ranks(n, open_on_gloo, [&](Session& session, Transport& gloo) {
    for (const std::size_t length : {0, 1, 5, 100'001}) {
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Average}) {
        const std::vector<float> mine =
            data_of(session.rank(), length * static_cast<std::size_t>(n));
        std::vector<float> data = mine;
        std::vector<float> shard(length);
        gloo.reduce_scatter(data, shard, op, "reduce-scatter of bucket 0");
        const std::size_t first = length * static_cast<std::size_t>(session.rank().value);
        EXPECT_EQ(count_wrong(shard, first, n, op), 0U) << length << " per rank";
        std::vector<float> whole(mine.size());
        gloo.all_gather(std::as_bytes(std::span(shard)), std::as_writable_bytes(std::span(whole)),
                        "all-gather of bucket 0");
        EXPECT_EQ(count_wrong(whole, 0, n, op), 0U) << length << " per rank";
      }
    }
  });
}

// Whole numbers up to 1000: every sum is exact, so both rings must give the same bits.
TEST_P(GlooOnRanks, AgreesWithTheRing) {
  const std::int32_t n = GetParam();
  on_ranks(n, open_on_gloo, [&](Session& session, Transport& gloo) {
    const std::unique_ptr<Transport> ring = open_ring(session);
    std::mt19937 random(static_cast<unsigned>(session.rank().value + 1));
    std::vector<float> by_gloo(10'007);
    for (float& value : by_gloo) value = static_cast<float>(random() % 1001);
    std::vector<float> by_ring = by_gloo;
    gloo.all_reduce(by_gloo, ReduceOp::Average, "all-reduce of bucket 0");
    ring->all_reduce(by_ring, ReduceOp::Average, "all-reduce of bucket 0");
    EXPECT_EQ(by_gloo, by_ring);
  });
}

TEST(GlooTest, FailureOfTheJobEndsAWaitInsideGloo) {
  if (!can_run()) GTEST_SKIP() << "no Gloo in this build, or not to be seen by its sanitizer";
  std::string words;
  std::latch has_ended(1);
  launch::run_local_ranks({.ranks = 2, .graces = kPatient}, [&](Session& session) {
    const std::unique_ptr<Transport> gloo = open_gloo(session, {.deadline = kNever});
    std::vector<float> data(1000);
    session.barrier();
    if (session.rank() == Rank{1}) {
      // Rank 0 is inside by then, most likely; if it comes later, its wait must not begin.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      session.abort("its kernel failed");
      has_ended.wait();  // it stays connected: only the session tells rank 0 what happened
      return;
    }
    try {
      gloo->all_reduce(data, ReduceOp::Sum, "all-reduce of bucket 3");
    } catch (const DeviceError& error) {
      words = error.what();
    }
    has_ended.count_down();
  });
  EXPECT_EQ(words, "rank 0: rank 1 failed: its kernel failed during all-reduce of bucket 3");
}

TEST(GlooTest, RankThatLeavesGivesAnErrorWithTheBucket) {
  if (!can_run()) GTEST_SKIP() << "no Gloo in this build, or not to be seen by its sanitizer";
  std::string words;
  try {
    launch::run_local_ranks({.ranks = 2}, [](Session& session) {
      std::unique_ptr<Transport> gloo = open_gloo(session);
      std::vector<float> data(1000);
      gloo->all_reduce(data, ReduceOp::Sum, "all-reduce of bucket 2");
      if (session.rank() == Rank{1}) {
        gloo.reset();
      } else {
        gloo->all_reduce(data, ReduceOp::Sum, "all-reduce of bucket 3");
      }
    });
  } catch (const DeviceError& error) {
    words = error.what();
  }
  EXPECT_THAT(words, StartsWith("rank 0: Gloo: "));
  EXPECT_THAT(words, HasSubstr("during all-reduce of bucket 3"));
}

TEST(GlooTest, BuildWithoutGlooSaysSo) {
  if (has_gloo()) GTEST_SKIP() << "this build has Gloo";
  launch::run_local_ranks({.ranks = 1},
                          [](Session& session) { EXPECT_THROW(open_gloo(session), InputError); });
}

}  // namespace
}  // namespace dovetail::exec::cpu

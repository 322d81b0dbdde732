// The ring on loopback, ranks as threads: sums, shards, and what happens when ranks disagree.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cpu/ring.h"

#include "base/error.h"
#include "tests/exec/own_address.h"
#include "tests/exec/transports.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

namespace dovetail::exec::cpu {
namespace {

using dovetail::testing::error_of;
using launch::Session;
using schedule::ReduceOp;
using testing::count_wrong;
using testing::data_of;
using ::testing::HasSubstr;
using testing::kPatient;
using testing::on_ranks;

std::unique_ptr<Transport> open_on_ring(Session& session) { return open_ring(session); }

class RingOnRanks : public ::testing::TestWithParam<std::int32_t> {};
INSTANTIATE_TEST_SUITE_P(Ring, RingOnRanks, ::testing::Values(1, 2, 3, 4));

// Lengths around the number of ranks leave segments empty; 1'000'003 is no multiple of 2, 3 or 4.
TEST_P(RingOnRanks, AllReduceIsExactForEveryLength) {
  const std::int32_t n = GetParam();
  on_ranks(n, open_on_ring, [&](Session& session, Transport& ring) {
    for (const std::size_t length : {0, 1, 2, 3, 4, 5, 64, 1000, 65'537, 1'000'003}) {
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Average}) {
        std::vector<float> data = data_of(session.rank(), length);
        ring.all_reduce(data, op, "all-reduce of bucket 0");
        EXPECT_EQ(count_wrong(data, 0, n, op), 0U) << length << " elements on " << n << " ranks";
      }
    }
  });
}

TEST_P(RingOnRanks, ReduceScatterGivesEachRankItsShard) {
  const std::int32_t n = GetParam();
  on_ranks(n, open_on_ring, [&](Session& session, Transport& ring) {
    for (const std::size_t length : {0, 1, 5, 100'001}) {
      for (const ReduceOp op : {ReduceOp::Sum, ReduceOp::Average}) {
        std::vector<float> data = data_of(session.rank(), length * static_cast<std::size_t>(n));
        std::vector<float> shard(length);
        ring.reduce_scatter(data, shard, op, "reduce-scatter of bucket 0");
        const std::size_t first = length * static_cast<std::size_t>(session.rank().value);
        EXPECT_EQ(count_wrong(shard, first, n, op), 0U) << length << " per rank";
      }
    }
  });
}

// Shard r holds r + 1 everywhere, so element i of the whole is i / length + 1.
TEST_P(RingOnRanks, AllGatherPutsShardsInRankOrder) {
  const std::int32_t n = GetParam();
  on_ranks(n, open_on_ring, [&](Session& session, Transport& ring) {
    for (const std::size_t length : {0, 1, 5, 100'001}) {
      const std::vector<float> shard(length, static_cast<float>(session.rank().value + 1));
      std::vector<float> data(length * static_cast<std::size_t>(n));
      ring.all_gather(std::as_bytes(std::span(shard)), std::as_writable_bytes(std::span(data)),
                      "all-gather of bucket 0");
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < data.size(); ++i) {
        const std::size_t rank_of_element = i / length;
        wrong += data[i] == static_cast<float>(rank_of_element + 1) ? 0 : 1;
      }
      EXPECT_EQ(wrong, 0U) << length << " per rank";
    }
  });
}

// Reduce-scatter into the rank's own place in the data and all-gather from there: an all-reduce.
TEST_P(RingOnRanks, ShardMayLieInsideTheData) {
  const std::int32_t n = GetParam();
  constexpr std::size_t kLength = 1001;
  on_ranks(n, open_on_ring, [&](Session& session, Transport& ring) {
    std::vector<float> data = data_of(session.rank(), kLength * static_cast<std::size_t>(n));
    const std::span<float> shard =
        std::span(data).subspan(kLength * static_cast<std::size_t>(session.rank().value), kLength);
    ring.reduce_scatter(data, shard, ReduceOp::Average, "reduce-scatter of bucket 0");
    ring.all_gather(std::as_bytes(std::span(shard)), std::as_writable_bytes(std::span(data)),
                    "all-gather of bucket 0");
    EXPECT_EQ(count_wrong(data, 0, n, ReduceOp::Average), 0U);
  });
}

// A chunk of 4 bytes: every element is received on its own, and most arrive in parts.
TEST_P(RingOnRanks, ChunksOfOneElementGiveTheSameSums) {
  const std::int32_t n = GetParam();
  const auto open_small = [](Session& session) { return open_ring(session, {.chunk = Bytes(4)}); };
  on_ranks(n, open_small, [&](Session& session, Transport& ring) {
    std::vector<float> data = data_of(session.rank(), 1003);
    ring.all_reduce(data, ReduceOp::Sum, "all-reduce of bucket 0");
    EXPECT_EQ(count_wrong(data, 0, n, ReduceOp::Sum), 0U);
  });
}

// Ranks run ahead of each other: a fast rank's next collective must not mix with this one.
TEST_P(RingOnRanks, CollectivesInARowDoNotMix) {
  const std::int32_t n = GetParam();
  on_ranks(n, open_on_ring, [&](Session& session, Transport& ring) {
    for (std::size_t round = 0; round < 50; ++round) {
      std::vector<float> data = data_of(session.rank(), round * 37);
      ring.all_reduce(data, ReduceOp::Sum, "all-reduce");
      EXPECT_EQ(count_wrong(data, 0, n, ReduceOp::Sum), 0U) << round;
    }
  });
}

TEST_P(RingOnRanks, TwoRingsOfOneJobAreIndependent) {
  const std::int32_t n = GetParam();
  on_ranks(n, open_on_ring, [&](Session& session, Transport& first) {
    const std::unique_ptr<Transport> second = open_ring(session);
    std::vector<float> large = data_of(session.rank(), 10'000);
    std::vector<float> small = data_of(session.rank(), 10);
    // The ranks use them in different orders, which one ring would not survive: 10'000 elements
    // fit into the sockets' buffers, but their sums need the other ranks. So each rank has a thread
    // per ring.
    {
      const std::jthread other(
          [&] { second->all_reduce(small, ReduceOp::Sum, "all-reduce of bucket 1"); });
      first.all_reduce(large, ReduceOp::Sum, "all-reduce of bucket 0");
    }
    EXPECT_EQ(count_wrong(large, 0, n, ReduceOp::Sum), 0U);
    EXPECT_EQ(count_wrong(small, 0, n, ReduceOp::Sum), 0U);
  });
}

// 20 Mbit/s, so that the ring does wait for its link: 40'000 bytes and more leave each rank at a time.
TEST_P(RingOnRanks, APacedRingGivesTheSameSums) {
  const std::int32_t n = GetParam();
  const auto open_paced = [](Session& session) {
    return open_ring(session, {.link = std::make_shared<PacedLink>(parse_bit_rate("20mbit"))});
  };
  on_ranks(n, open_paced, [&](Session& session, Transport& ring) {
    for (const std::size_t length : {0, 1, 5, 1000, 65'537}) {
      std::vector<float> data = data_of(session.rank(), length);
      ring.all_reduce(data, ReduceOp::Average, "all-reduce of bucket 0");
      EXPECT_EQ(count_wrong(data, 0, n, ReduceOp::Average), 0U) << length;
      std::vector<float> whole = data_of(session.rank(), length * static_cast<std::size_t>(n));
      std::vector<float> received(whole.size());
      ring.all_to_all(whole, received, "all-to-all");
      ring.broadcast(data, 0, "broadcast");
      EXPECT_EQ(count_wrong(data, 0, n, ReduceOp::Average), 0U) << length;
    }
  });
}

TEST(RingTest, TwoRingsOfARankShareOnePacedLink) {
  launch::run_local_ranks({.ranks = 2}, [&](Session& session) {
    const auto link = std::make_shared<PacedLink>(parse_bit_rate("50mbit"));
    const std::unique_ptr<Transport> first = open_ring(session, {.link = link});
    const std::unique_ptr<Transport> second = open_ring(session, {.link = link});
    std::vector<float> large = data_of(session.rank(), 100'000);
    std::vector<float> small = data_of(session.rank(), 10);
    {
      const std::jthread other(
          [&] { second->all_reduce(small, ReduceOp::Sum, "all-reduce of bucket 1"); });
      first->all_reduce(large, ReduceOp::Sum, "all-reduce of bucket 0");
    }
    EXPECT_EQ(count_wrong(large, 0, 2, ReduceOp::Sum), 0U);
    EXPECT_EQ(count_wrong(small, 0, 2, ReduceOp::Sum), 0U);
    session.barrier("the end of the test");
  });
}

TEST(RingTest, WaitingForThePacedLinkIsNoSilence) {
  launch::run_local_ranks({.ranks = 2}, [](Session& session) {
    // 1 Mbit/s lets 64 KiB leave at once; the other 234'464 bytes wait 1.9 s, beyond the deadline. That is longer than a
    // busy machine keeps the other rank from its processor.
    const auto link = std::make_shared<PacedLink>(parse_bit_rate("1mbit"));
    const Duration deadline = std::chrono::milliseconds(session.rank() == Rank{0} ? 1000 : 30'000);
    const std::unique_ptr<Transport> ring =
        open_ring(session, {.deadline = deadline, .link = link});
    std::vector<float> data(75'000, 1.0F);
    if (session.rank() == Rank{0}) {
      ring->send(data, "a send");
    } else {
      ring->receive(data, "a receive");
    }
    EXPECT_EQ(std::ranges::count(data, 1.0F), 75'000);
  });
}

TEST(RingTest, RanksThatDisagreeAreTold) {
  std::atomic<int> told = 0;
  const std::string error = error_of<DeviceError>([&] {
    launch::run_local_ranks({.ranks = 2, .graces = kPatient}, [&](Session& session) {
      const std::unique_ptr<Transport> ring = open_ring(session);
      std::vector<float> data(session.rank() == Rank{0} ? 4 : 8);
      const std::string mine =
          error_of<DeviceError>([&] { ring->all_reduce(data, ReduceOp::Sum, "bucket 5"); });
      EXPECT_THAT(mine, HasSubstr("during bucket 5"));
      ++told;
      throw DeviceError(mine);
    });
  });
  EXPECT_EQ(told, 2);
  // Whoever finds out first names both lengths.
  EXPECT_THAT(error, HasSubstr("collective 1 (all-reduce of 16 bytes)"));
  EXPECT_THAT(error, HasSubstr("collective 1 (all-reduce of 32 bytes)"));
}

TEST(RingTest, RankThatLeavesIsNamedWithTheBucket) {
  const auto break_ring = [] {
    launch::run_local_ranks({.ranks = 2}, [](Session& session) {
      std::unique_ptr<Transport> ring = open_ring(session);
      std::vector<float> data(1000);
      ring->all_reduce(data, ReduceOp::Sum, "all-reduce of bucket 2");
      if (session.rank() == Rank{1}) {
        ring.reset();
      } else {
        ring->all_reduce(data, ReduceOp::Sum, "all-reduce of bucket 3");
      }
    });
  };
  EXPECT_EQ(error_of<DeviceError>(break_ring),
            "rank 0: rank 1 closed the connection during all-reduce of bucket 3");
}

// Rank 1 is alive but never calls; after 200 ms without a byte rank 0 gives up.
TEST(RingTest, RankThatNeverCallsIsNamedAfterTheDeadline) {
  const auto stall = [] {
    launch::run_local_ranks({.ranks = 2}, [](Session& session) {
      const RingOptions options{.deadline = std::chrono::milliseconds(200)};
      const std::unique_ptr<Transport> ring = open_ring(session, options);
      std::vector<float> data(1000);
      if (session.rank() == Rank{0}) {
        ring->all_reduce(data, ReduceOp::Sum, "all-reduce of bucket 3");
      } else {
        session.barrier("waiting for rank 0");
      }
    });
  };
  EXPECT_EQ(error_of<DeviceError>(stall),
            "rank 0: no byte moved between this rank and rank 1 for 200 ms during all-reduce of "
            "bucket 3");
}

}  // namespace
}  // namespace dovetail::exec::cpu

// NCCL's own log: facts of the communicator, and the table of its model of times.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/nccl_log.h"

#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CollectiveLog read_text(const std::string& text) {
  const std::array<Source, 1> files = {Source{"nccl.log", text}};
  return read_nccl_log(files);
}

std::string info(const std::string& message) {
  return "[1,0]<stdout>:node0:4321:4399 [0] NCCL INFO " + message + "\n";
}

const std::string kCommunicator =
    info("comm 0x55d0 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0");

TEST(NcclLogTest, TellsTheCommunicatorItsChannelsAndItsChoices) {
  const CollectiveLog log = read_text(
      "NCCL version 2.28.3+cuda13.0\nnoise\n" + kCommunicator +
      info("24 coll channels, 24 collnet channels, 0 nvls channels, 32 p2p channels") +
      info("Using network IBext_v8") +
      info("AllReduce: opCount 1a sendbuff 0x1 recvbuff 0x1 count 262144 datatype 7 op 0 root 0") +
      info("AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..23}"));
  EXPECT_EQ(log.nccl, "2.28.3+cuda13.0");
  for (const char* what :
       {"communicators of 16 ranks on 2 nodes", "24 channels for collectives", "network: IBext_v8",
        "AllReduce: called 1 time", "AllReduce of 1 MiB: algorithm RING, protocol LL128"}) {
    EXPECT_THAT(log.read, Contains(HasSubstr(what)));
  }
  EXPECT_THAT(log.samples, IsEmpty());
  EXPECT_THAT(log.left_out, Contains(HasSubstr("NCCL_DEBUG_SUBSYS=INIT,TUNING")));
}

TEST(NcclLogTest, TakesTheLeastOfLatencyPlusBytesOverBandwidth) {
  // Tree LL 10 us + B / 2.5 GB/s, ring simple 60 us + B / 100 GB/s; LL128 is off (0.0 GB/s).
  const CollectiveLog log = read_text(
      kCommunicator +
      info("  Algorithm   |                           Tree                   |      Ring |") +
      info("  Protocol    |             LL |          LL128 |         Simple |") +
      info("    AllReduce |    10.0/   2.5 |   20.0/   0.0 |   60.0/ 100.0 |"));
  const auto tables = tables_of(log.samples);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].ranks, 16);
  EXPECT_EQ(tables[0].nodes, 2);
  const auto& points = std::get<std::vector<models::CollectivePoint>>(tables[0].times);
  ASSERT_EQ(points.front().bytes, kib(1));
  EXPECT_EQ(points.front().isolated, from_us(10 + 1024 / 2500.0));
  EXPECT_EQ(points.back().bytes, gib(4));
  EXPECT_EQ(points.back().isolated, from_us(60 + 4294967296 / 100e3));
  EXPECT_THAT(log.left_out, Contains(HasSubstr("NCCL's own model, not measured")));
}

TEST(NcclLogTest, RefusesATextWithoutALineOfNccl) {
  EXPECT_THAT(error_of([] { read_text("hello\n"); }), HasSubstr("no line of NCCL's log"));
  EXPECT_THAT(error_of([] { read_text(""); }), HasSubstr("no line of NCCL's log"));
  // Cells that are no numbers, ranks beyond all bounds, lines that end early.
  const CollectiveLog log = read_text(
      info("AllReduce | nan/1 | /5 | 1e400/2 |") + info(" coll channels") +
      info("nNodes 99999999999999999999 nRanks 5 rank 1") + info("AllReduce: x Bytes -> Algo "));
  EXPECT_THAT(log.samples, IsEmpty());
}

}  // namespace
}  // namespace dovetail::imports

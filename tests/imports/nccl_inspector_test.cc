// Logs of NCCL's inspector. No log of a real job was found in public; the entries here follow its sources.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/nccl_inspector.h"

#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using schedule::Collective;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string entry(int rank, int serial, const std::string& kind, std::int64_t bytes, int us,
                  int ranks = 2) {
  return R"({"header":{"id":"0xab","rank":)" + std::to_string(rank) + R"(,"n_ranks":)" +
         std::to_string(ranks) +
         R"(,"nnodes":1},"metadata":{"inspector_output_format_version":"v4.0","pid":18446744073709551615},)"
         R"("coll_perf":{"coll":")" +
         kind + R"(","coll_sn":)" + std::to_string(serial) + R"(,"coll_msg_size_bytes":)" +
         std::to_string(bytes) + R"(,"coll_exec_time_us":)" + std::to_string(us) +
         R"(,"coll_timing_source":"kernel_gpu","coll_algobw_gbs":1.5,"coll_busbw_gbs":1.5}})" +
         "\n";
}

CollectiveLog read_lines(const std::string& first, const std::string& second = "") {
  const std::array<Source, 2> files = {Source{"r0.log", first}, Source{"r1.log", second}};
  return read_nccl_inspector(files);
}

TEST(NcclInspectorTest, TakesTheShortestTimeOverTheRanksOfEachCollective) {
  // Rank 0 waits in serial 1, rank 1 in serial 2: moving 1 MiB takes 40 and 44 us, median 42.
  const CollectiveLog log =
      read_lines(entry(0, 1, "AllReduce", 1 << 20, 900) + entry(0, 2, "AllReduce", 1 << 20, 44),
                 entry(1, 1, "AllReduce", 1 << 20, 40) + entry(1, 2, "AllReduce", 1 << 20, 700));
  const auto tables = tables_of(log.samples);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].ranks, 2);
  const auto& points = std::get<std::vector<models::CollectivePoint>>(tables[0].times);
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].bytes, mib(1));
  EXPECT_EQ(points[0].isolated, from_us(42));
  // (860 + 656) of (860 + 656 + 84) us
  EXPECT_THAT(log.read, Contains(HasSubstr("waits 95 % of its time")));
}

TEST(NcclInspectorTest, CountsTheShareOfOneRankAsTheWholeBuffer) {
  const CollectiveLog log = read_lines(entry(0, 1, "AllGather", 1000, 50, 4));
  EXPECT_EQ(log.samples.at(0).bytes, Bytes(4000));
  EXPECT_EQ(read_lines(entry(0, 1, "AlltoAll", 1000, 50, 4)).samples.at(0).bytes, Bytes(1000));
}

TEST(NcclInspectorTest, SaysThatATimeOfOneRankHoldsItsWait) {
  const CollectiveLog log =
      read_lines(entry(0, 1, "AllReduce", 1000, 90) + entry(0, 2, "AllReduce", 1000, 50));
  ASSERT_EQ(log.samples.size(), 1u);
  EXPECT_EQ(log.samples[0].time, from_us(50));
  EXPECT_THAT(log.left_out, Contains(HasSubstr("an upper bound")));
}

TEST(NcclInspectorTest, LeavesOutWhatItCannotUseAndSaysSo) {
  std::string cpu = entry(0, 3, "AllReduce", 1000, 50);
  cpu.replace(cpu.find("kernel_gpu"), 10, "kernel_cpu");
  const CollectiveLog log =
      read_lines(entry(0, 1, "AllReduce", 1000, 50) + cpu + entry(0, 4, "Reduce", 1000, 50) +
                 entry(0, 5, "AllReduce", 1000, 0) + entry(0, 6, "AllReduce", 1000, 9, 1) +
                 R"({"header":{},"metadata":{},"p2p_perf":{"p2p":"Send"}})" + "\nsome noise\n" +
                 entry(0, 7, "AllReduce", 1000, 50).substr(0, 100));
  EXPECT_EQ(log.samples.size(), 1u);
  for (const char* what :
       {"1 entry timed by the CPU", "1 entry of collectives that plans do not use",
        "1 entry of 0 us or 0 bytes", "1 entry of communicators with one rank",
        "1 entry of sends and receives", "1 line that hold no entry",
        "the last entry is cut off"}) {
    EXPECT_THAT(log.left_out, Contains(HasSubstr(what)));
  }
}

TEST(NcclInspectorTest, NamesFileLineAndPlaceOfAMistake) {
  std::string text = entry(0, 1, "AllReduce", 1000, 50) + entry(0, 2, "AllReduce", 1000, 50);
  text.replace(text.rfind("\"coll_exec_time_us\":50"), 22, "\"coll_exec_time_us\":-5");
  EXPECT_THAT(
      error_of([&] { read_lines(text); }),
      HasSubstr("r0.log: line 2: /coll_perf/coll_exec_time_us: expected an integer from 0"));
  EXPECT_THAT(error_of([&] { read_lines(entry(2, 1, "AllReduce", 1000, 50)); }),
              HasSubstr("/header/rank: expected a rank below 2"));
  // 2^50 bytes on 2^24 ranks would not fit 63 bits.
  EXPECT_THAT(
      error_of([&] { read_lines(entry(0, 1, "AllGather", std::int64_t{1} << 50, 5, 1 << 24)); }),
      HasSubstr("expected at most 2^50 bytes over all ranks"));
  EXPECT_THAT(error_of([&] { read_lines(std::string(100, '{')); }),
              HasSubstr("nested deeper than 64 levels"));
  EXPECT_THAT(error_of([&] { read_lines(""); }),
              HasSubstr("no usable collective of the NCCL inspector"));
}

}  // namespace
}  // namespace dovetail::imports

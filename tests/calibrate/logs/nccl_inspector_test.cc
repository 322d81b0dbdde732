// Logs of NCCL's inspector. No log of a real job was found in public; the entries here follow its sources.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/nccl_inspector.h"

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

// What stands before the records of one communicator's dump: all of it, and from v4.3 on alone.
std::string marker(int rank, int lost, const std::string& version, const std::string& id = "0xab") {
  return R"({"header":{"id":")" + id + R"(","rank":)" + std::to_string(rank) +
         R"(,"n_ranks":2,"nnodes":1},"metadata":{"inspector_output_format_version":")" + version +
         R"(","hostname":"a","pid":1},"dump_stats":{"coll_records":1,"coll_dropped_total":9,)"
         R"("coll_dropped_since_last_dump":)" +
         std::to_string(lost) + R"(,"p2p_records":0,"p2p_dropped_total":0}})" + "\n";
}

// A record as from v4.3 on: whose it is stands in the marker before it.
std::string without_header(const std::string& entry) {
  return "{" + entry.substr(entry.find("\"coll_perf\""));
}

TEST(NcclInspectorTest, ReadsVersionsWhoseDumpsBeginWithCounts) {
  const auto of_rank = [](int rank, const std::string& us) {
    std::string one = entry(rank, 1, "AllReduce", 1 << 20, 61);
    one.replace(one.find(":61"), 3, ":" + us);
    return one;
  };
  const CollectiveLog full =
      read_lines(marker(0, 3, "v4.1") + of_rank(0, "61"), marker(1, 0, "v4.1") + of_rank(1, "78"));
  ASSERT_EQ(full.samples.size(), 1u);
  EXPECT_EQ(full.samples[0].time, from_us(61));
  EXPECT_EQ(full.tool, "nccl-inspector v4.1");
  EXPECT_THAT(full.left_out, Contains(HasSubstr("3 collectives that the plugin overwrote")));
  // Two communicators in one file, records of network proxies, times with fractions and in quotes.
  const CollectiveLog short_form = read_lines(
      marker(0, 0, "v4.3") + without_header(of_rank(0, "61.5")) +
          "{\"proxy_trace\": {\"record_type\": \"proxy_step\"}}\n" + marker(0, 0, "v4.3", "0xcd") +
          without_header(entry(0, 1, "AllReduce", 1 << 21, 99)),
      marker(1, 0, "v4.3") + without_header(of_rank(1, "\"78\"")) + marker(1, 0, "v4.3", "0xcd") +
          without_header(entry(1, 1, "AllReduce", 1 << 21, 90)));
  ASSERT_EQ(short_form.samples.size(), 2u);
  EXPECT_EQ(short_form.samples[0].time, from_us(61.5));
  EXPECT_EQ(short_form.samples[1].time, from_us(90));
  EXPECT_THAT(short_form.left_out,
              Contains(HasSubstr("1 entry of proxies, calls and other events")));
  // A file whose beginning is lost, and one of another rank's: nothing of it says whose it is.
  const CollectiveLog cut = read_lines(marker(0, 0, "v4.3") + without_header(of_rank(0, "61")),
                                       without_header(of_rank(1, "50")));
  ASSERT_EQ(cut.samples.size(), 1u);
  EXPECT_EQ(cut.samples[0].time, from_us(61));
  EXPECT_THAT(cut.left_out, Contains(HasSubstr("1 entry whose communicator is unknown")));
}

TEST(NcclInspectorTest, ReadsWhatPrintfMakesOfABandwidthOfNoTime) {
  for (const char* word : {"inf", "-inf", "nan", "-nan", "NaN", "Infinity", "\"nan\""}) {
    std::string text = entry(0, 1, "AllReduce", 1000, 50);
    text.replace(text.find("1.5,"), 4, std::string(word) + ",");
    const CollectiveLog log = read_lines("\xef\xbb\xbf" + text);
    EXPECT_EQ(log.samples.size(), 1u) << word;
    EXPECT_EQ(log.left_out.size(), 1u) << word;  // of one rank only
  }
}

TEST(NcclInspectorTest, NamesTheMetricsThatItDoesNotRead) {
  EXPECT_THAT(
      error_of([] {
        read_lines(
            "nccl_collective_exec_time_microseconds{version=\"v5.1\",nranks=\"4\"} 9498.47\n");
      }),
      HasSubstr("r0.log: the inspector's metrics for Prometheus"));
}

TEST(NcclInspectorTest, NamesFileLineAndPlaceOfAMistake) {
  std::string text = entry(0, 1, "AllReduce", 1000, 50) + entry(0, 2, "AllReduce", 1000, 50);
  text.replace(text.rfind("\"coll_exec_time_us\":50"), 22, "\"coll_exec_time_us\":-5");
  EXPECT_THAT(error_of([&] { read_lines(text); }),
              HasSubstr("r0.log: line 2: /coll_perf/coll_exec_time_us: expected a number from 0"));
  EXPECT_THAT(error_of([&] { read_lines(entry(2, 1, "AllReduce", 1000, 50)); }),
              HasSubstr("/header/rank: expected a rank below 2"));
  // 2^50 bytes on 2^24 ranks would not fit 63 bits.
  EXPECT_THAT(
      error_of([&] { read_lines(entry(0, 1, "AllGather", std::int64_t{1} << 50, 5, 1 << 24)); }),
      HasSubstr("expected at most 2^50 bytes over all ranks"));
  EXPECT_THAT(error_of([&] { read_lines(std::string(600, '{')); }),
              HasSubstr("nested deeper than 512 levels"));
  EXPECT_THAT(error_of([&] { read_lines(""); }),
              HasSubstr("no usable collective of the NCCL inspector"));
}

}  // namespace
}  // namespace dovetail::imports

// Logs of nccl-tests: what is understood, what is refused, what is said of the rest.
//
// The logs here are made by the formats of its sources (nccl_tests_log.h) or written out by hand in the
// forms of older versions; real logs were read by hand only, as their texts are not ours to copy.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/nccl_tests.h"

#include "tests/imports/nccl_tests_log.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using schedule::Collective;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<models::CollectivePoint> points_of(const CollectiveLog& log, std::size_t table = 0) {
  return std::get<std::vector<models::CollectivePoint>>(tables_of(log.samples).at(table).times);
}

void expect_rows(const CollectiveLog& log, Collective collective, std::int64_t ranks,
                 std::int64_t nodes, const std::vector<LogRow>& rows) {
  const auto tables = tables_of(log.samples);
  ASSERT_EQ(tables.size(), 1u);
  EXPECT_EQ(tables[0].collective, collective);
  EXPECT_EQ(tables[0].ranks, ranks);
  EXPECT_EQ(tables[0].nodes, nodes);
  const auto points = points_of(log);
  ASSERT_EQ(points.size(), rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(points[i].bytes, Bytes(rows[i].bytes));
    // Seven places are printed, so a time is right to half of the last digit that fits.
    EXPECT_NEAR(to_us(points[i].isolated), rows[i].in_us, rows[i].in_us < 10000 ? 0.051 : 0.51);
  }
}

TEST(NcclTestsTest, ReadsTheInPlaceTimesOfEverySizeOfWorld) {
  for (const int ranks : {2, 8, 16, 72, 1024}) {
    const double n = ranks;
    const LogForm form{.ranks = ranks, .factor = 2 * (n - 1) / n};
    const CollectiveLog log = read_nccl_tests("a.log", log_text(some_rows(), form));
    expect_rows(log, Collective::AllReduce, ranks, (ranks + 7) / 8, some_rows());
    EXPECT_THAT(log.left_out, IsEmpty()) << ranks;
    EXPECT_EQ(log.gpu, "NVIDIA H100 80GB HBM3");
    EXPECT_EQ(log.nccl, "2.28.3");
    EXPECT_EQ(log.tool, "nccl-tests 2.19.6");
  }
}

TEST(NcclTestsTest, ReadsLinesBehindWhateverALauncherPutsThere) {
  for (const std::string prefix :
       {"[1,0]<stdout>:", " 0: ", "2025-03-14T10:00:01.123456789Z ", "worker-0 | ", "\t"}) {
    const LogForm form{.prefix = prefix};
    const CollectiveLog log = read_nccl_tests("a.log", log_text(some_rows(), form));
    expect_rows(log, Collective::AllReduce, 8, 1, some_rows());
  }
}

TEST(NcclTestsTest, ReadsThroughNoiseBetweenTheLines) {
  std::string text = "Warning: Permanently added 'node1' (ED25519) to the list of known hosts.\n" +
                     log_text(some_rows(), {});
  std::string noisy;
  for (const char c : text) {
    noisy += c;
    if (c == '\n') noisy += "node0:4321:4399 [0] NCCL INFO Channel 00/24 : 0 1 2 3 4 5 6 7\r\n";
  }
  expect_rows(read_nccl_tests("a.log", noisy), Collective::AllReduce, 8, 1, some_rows());
}

TEST(NcclTestsTest, KnowsTheCollectiveByTheProgramsName) {
  struct Case {
    std::string program, redop;
    Collective collective;
    double factor;
    int root;
  };
  for (const Case& one : {Case{"all_gather_perf", "none", Collective::AllGather, 0.875, -1},
                          Case{"reduce_scatter_perf", "sum", Collective::ReduceScatter, 0.875, -1},
                          Case{"alltoall_perf", "none", Collective::AllToAll, 0.875, -1},
                          Case{"broadcast_perf", "none", Collective::Broadcast, 1, 0},
                          Case{"sendrecv_perf", "sum", Collective::SendRecv, 1, -1}}) {
    const LogForm form{
        .factor = one.factor, .program = one.program, .redop = one.redop, .root = one.root};
    expect_rows(read_nccl_tests("a.log", log_text(some_rows(), form)), one.collective, 8, 1,
                some_rows());
  }
}

TEST(NcclTestsTest, KnowsTheCollectiveByTheCommandThatAShellEchoed) {
  const LogForm form{.factor = 0.875, .names_program = false, .redop = "none"};
  const std::string text = "+ mpirun -np 8 /opt/nccl-tests/build/all_gather_perf_mpi -b 8K -e 1G\n";
  expect_rows(read_nccl_tests("a.log", text + log_text(some_rows(), form)), Collective::AllGather,
              8, 1, some_rows());
}

TEST(NcclTestsTest, TellsAllReduceFromReduceScatterByTheirBandwidths) {
  const LogForm all_reduce{.names_program = false};
  expect_rows(read_nccl_tests("a.log", log_text(some_rows(), all_reduce)), Collective::AllReduce, 8,
              1, some_rows());
  const LogForm scatter{.factor = 0.875, .names_program = false};
  expect_rows(read_nccl_tests("a.log", log_text(some_rows(), scatter)), Collective::ReduceScatter,
              8, 1, some_rows());
}

TEST(NcclTestsTest, AsksWhichCollectiveItIsWhereTheLogLeavesItOpen) {
  const LogForm form{.factor = 0.875, .names_program = false, .redop = "none"};
  const std::string text = log_text(some_rows(), form);
  EXPECT_THAT(error_of([&] { read_nccl_tests("a.log", text); }),
              HasSubstr("it may be an all-gather or an all-to-all; say which with --collective"));
  const NcclTestsOptions options{.collective = Collective::AllToAll};
  expect_rows(read_nccl_tests("a.log", text, options), Collective::AllToAll, 8, 1, some_rows());
}

TEST(NcclTestsTest, FindsTheRanksByTheBandwidthsWhereTheirLinesAreMissing) {
  // 2 (n - 1) / n of n = 16 is 1.875.
  const LogForm form{.ranks = 0, .factor = 1.875};
  expect_rows(read_nccl_tests("a.log", log_text(some_rows(), form)), Collective::AllReduce, 16, 1,
              some_rows());
  // Of n = 4096 it is 1.9995: the printed digits do not tell it from 2.
  const LogForm large{.ranks = 0, .factor = 2.0 * 4095 / 4096};
  const std::string text = log_text(some_rows(), large);
  EXPECT_THAT(error_of([&] { read_nccl_tests("a.log", text); }), HasSubstr("--ranks"));
  const NcclTestsOptions options{.ranks = 4096};
  expect_rows(read_nccl_tests("a.log", text, options), Collective::AllReduce, 4096, 1, some_rows());
}

TEST(NcclTestsTest, RefusesARunThatContradictsItself) {
  // The bandwidths are those of eight ranks, four are listed.
  const std::string text = log_text(some_rows(), {.ranks = 4});
  EXPECT_THAT(
      error_of([&] { read_nccl_tests("a.log", text); }),
      HasSubstr("its busbw / algbw is 1.750, but that of all_reduce_perf over 4 ranks is 1.500"));
}

TEST(NcclTestsTest, SeparatesTheRunsOfOneFile) {
  const std::string text =
      log_text(some_rows(), {}) +
      log_text(some_rows(), {.factor = 0.875, .program = "all_gather_perf", .redop = "none"}) +
      log_text(some_rows(), {.ranks = 16, .factor = 1.875});
  const auto tables = tables_of(read_nccl_tests("a.log", text).samples);
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[0].ranks, 8);
  EXPECT_EQ(tables[1].ranks, 16);
  EXPECT_EQ(tables[1].nodes, 2);
  EXPECT_EQ(tables[2].collective, Collective::AllGather);
}

TEST(NcclTestsTest, SeparatesRunsWhoseFirstLinesAreMissing) {
  // As in a README that shows two runs: from the devices on, and from the columns on.
  const std::string whole = log_text(some_rows(), {});
  const std::string devices = log_text(some_rows(), {.ranks = 16, .factor = 1.875});
  const std::string columns = log_text(some_rows(), {.ranks = 0, .factor = 1.5});
  const std::string text = whole + "EXE=all_reduce_perf\n" +
                           devices.substr(devices.find("#  Rank")) +
                           columns.substr(columns.find("#       size"));
  const auto tables = tables_of(read_nccl_tests("a.log", text).samples);
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[0].ranks, 4);
  EXPECT_EQ(tables[1].ranks, 8);
  EXPECT_EQ(tables[2].ranks, 16);
}

TEST(NcclTestsTest, TakesTheMedianOfSizesThatStandSeveralTimesInAnyOrder) {
  const std::vector<LogRow> rows = {
      {2048, 9, 30}, {1024, 9, 10}, {2048, 9, 20}, {2048, 9, 90}, {1024, 9, 10}};
  const auto points = points_of(read_nccl_tests("a.log", log_text(rows, {})));
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].bytes, Bytes(1024));
  EXPECT_EQ(points[1].isolated, from_us(30));
}

TEST(NcclTestsTest, LeavesOutRowsOfNoBytesAndOfWrongValuesAndSaysSo) {
  std::vector<LogRow> rows = some_rows();
  rows[3].wrong = "1e+06";
  rows.insert(rows.begin(), {0, 5.7, 5.5});
  const CollectiveLog log = read_nccl_tests("a.log", log_text(rows, {}));
  EXPECT_EQ(points_of(log).size(), some_rows().size() - 1);
  EXPECT_THAT(log.left_out, Contains(HasSubstr("1 row of 0 bytes")));
  EXPECT_THAT(log.left_out, Contains(HasSubstr("1 row with wrong values")));
}

TEST(NcclTestsTest, TakesValuesThatWereNotCheckedAsTheyAre) {
  std::vector<LogRow> rows = some_rows();
  for (LogRow& row : rows) row.wrong = "N/A";
  expect_rows(read_nccl_tests("a.log", log_text(rows, {})), Collective::AllReduce, 8, 1, rows);
}

TEST(NcclTestsTest, ReadsTheFormsOfOlderVersions) {
  // Without the column root, with the largest error instead of the count of wrong values, without "#".
  const std::string text =
      " nThread 1 nGpus 1 minBytes 32 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: "
      "20\n"
      "   Rank  0 Pid 1821213 on node0 device  0 [0x00] Tesla V100-SXM2-16GB\n"
      "   Rank  1 Pid 1821214 on node0 device  1 [0x00] Tesla V100-SXM2-16GB\n"
      "                                                     out-of-place           in-place\n"
      "       size         count    type   redop     time   algbw   busbw  error     time   algbw  "
      " "
      "busbw  error\n"
      "    1048576        262144   float     sum    41.00   25.57   25.57  2e-07    40.00   26.21  "
      " "
      "26.21  2e-07\n"
      "    2097152        524288   float     sum    61.00   34.38   34.38  2e-07    60.00   34.95  "
      " "
      "34.95    N/A\n";
  const CollectiveLog log = read_nccl_tests("a.log", text);
  expect_rows(log, Collective::AllReduce, 2, 1, {{1048576, 41, 40}, {2097152, 61, 60}});
  EXPECT_THAT(log.left_out, IsEmpty());
}

TEST(NcclTestsTest, ReadsTheColumnsPerIterationAndTheTimeStamp) {
  const std::string text =
      "# Collective test starting: all_reduce_perf\n# nThread 1 nGpus 8 minBytes 1 maxBytes 1\n"
      "#       size         count      type   redop    root     time   algbw   busbw  #wrong    "
      "i_min    "
      "i_max    i_p99    i_cv%     time   algbw   busbw  #wrong    i_min    i_max    i_p99    "
      "i_cv%  "
      "           timestamp\n"
      "     8388608       2097152     float     sum      -1    91.10   92.08  161.14       0    "
      "90.00    "
      "95.00    94.00     1.00    94.94   88.36  154.63       0    93.00    99.00    98.00     "
      "1.20  "
      "2026-07-09 16:03:21\n"
      "    16777216       4194304     float     sum      -1   171.10   98.06  171.60       0   "
      "170.00   "
      "175.00   174.00     1.00   174.94   95.90  167.83       0   173.00   179.00   178.00     "
      "1.20  "
      "2026-07-09 16:03:22\n";
  expect_rows(read_nccl_tests("a.log", text), Collective::AllReduce, 8, 1,
              {{8388608, 91.1, 94.94}, {16777216, 171.1, 174.94}});
}

TEST(NcclTestsTest, TakesARunWithBlockingAsTimesOfLoneCollectives) {
  std::string alone = log_text({{1024, 9, 50}, {2048, 9, 60}}, {});
  alone.insert(alone.find("#\n"),
               "# Blocking Enabled: wait and barrier after each inner iteration\n");
  const std::string queued = log_text({{1024, 9, 40}, {2048, 9, 45}}, {});
  const auto points = points_of(read_nccl_tests("a.log", alone + queued));
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].isolated, from_us(50));
  EXPECT_EQ(points[0].back_to_back, from_us(40));
}

TEST(NcclTestsTest, ReadsWhatARunThatWasKilledHasPrinted) {
  const std::string text = log_text(some_rows(), {});
  const std::size_t last = text.find("  1073741824");
  const CollectiveLog cut = read_nccl_tests("a.log", text.substr(0, last + 88));
  EXPECT_EQ(points_of(cut).size(), some_rows().size());
  EXPECT_THAT(cut.left_out, Contains(HasSubstr("its in-place columns are cut off")));
  const CollectiveLog shorter = read_nccl_tests("a.log", text.substr(0, last + 50));
  EXPECT_EQ(points_of(shorter).size(), some_rows().size() - 1);
}

TEST(NcclTestsTest, NamesTheBuildWithoutMpi) {
  std::string text = log_text(some_rows(), {.ranks = 1});
  text.insert(text.find("#  Rank"), "#  Rank  0 Group  0 Pid  99 on node1 device  0 [0x00] V100\n");
  EXPECT_THAT(error_of([&] { read_nccl_tests("a.log", text); }),
              HasSubstr("rank 0 stands twice in one run: nccl-tests was built without MPI=1"));
}

TEST(NcclTestsTest, RefusesTimesOfTheProcessor) {
  std::string text = log_text(some_rows(), {});
  text.replace(text.find("    time   algbw"), 8, " cputime");
  EXPECT_THAT(error_of([&] { read_nccl_tests("a.log", text); }),
              HasSubstr("the CPU's time (-C 1)"));
}

TEST(NcclTestsTest, RefusesWhatIsNoLogOfIt) {
  for (const std::string text : {"", "hello\n", "{\"a\": 1}", "# size count\n"}) {
    EXPECT_THAT(error_of([&] { read_nccl_tests("a.log", text); }), HasSubstr("a.log: ")) << text;
  }
  const std::string one_rank = log_text(some_rows(), {.ranks = 1, .factor = 0});
  EXPECT_THAT(error_of([&] { read_nccl_tests("a.log", one_rank); }),
              HasSubstr("one rank, which communicates with nobody"));
}

// Two processes of one thread with four GPUs each: the file lists the first device of each.
constexpr const char* kJson = R"({"version":3,"start_time":"2026-07-09 16:03:21",
 "args":["\/opt\/build\/all_reduce_perf_mpi","-g","4","-J","a.json"],"env":["A=b"],"nccl_version":22803,
 "config":{"nthreads":1,"ngpus":4,"minimum_bytes":1024,"maximum_bytes":2048,"step_factor":2,
  "warmup_iters":1,"iterations":20,"blocking_collectives":"false","devices":[
   {"rank":0,"group":0,"pid":1,"hostname":"node0","device":0,"device_hex":"0000:05:00","device_info":"NVIDIA H200"},
   {"rank":4,"group":0,"pid":2,"hostname":"node1","device":0,"device_hex":"0000:05:00","device_info":"NVIDIA H200"}]},
 "results":[
  {"size":1048576,"count":262144,"type":"float","redop":"sum","root":"    -1",
   "out_of_place":{"time":41.0,"alg_bw":25.575,"bus_bw":44.756,"nwrong":0.0},
   "in_place":{"time":40.0,"alg_bw":26.2144,"bus_bw":45.8752,"nwrong":null},
   "actual_iterations":20,"experiment_name":"AllReduce"},
  {"size":2097152,"count":524288,"type":"float","redop":"sum","root":"    -1","out_of_place":null,
   "in_place":{"time":60.0,"alg_bw":34.9525,"bus_bw":61.1669,"nwrong":0.0},
   "actual_iterations":20,"experiment_name":"AllReduce"},
  {"size":4194304,"count":1048576,"type":"float","redop":"sum","root":"    -1","out_of_place":null,
   "in_place":{"time":"nan","alg_bw":"nan","bus_bw":"nan","nwrong":0.0},
   "actual_iterations":20,"experiment_name":"AllReduce"}],
 "out_of_bounds":{"count":0,"okay":"true"},"average_bus_bandwidth":{"bandwidth":50.0,"okay":"unchecked"}})";

TEST(NcclTestsTest, ReadsItsJson) {
  const CollectiveLog log = read_nccl_tests("a.json", kJson);
  expect_rows(log, Collective::AllReduce, 8, 2, {{1048576, 41, 40}, {2097152, 0, 60}});
  EXPECT_EQ(log.gpu, "NVIDIA H200");
  EXPECT_EQ(log.nccl, "2.28.3");
  EXPECT_THAT(log.left_out, Contains(HasSubstr("/results/2: it has no usable time")));
}

TEST(NcclTestsTest, NamesThePlaceOfAMistakeInItsJson) {
  std::string text = kJson;
  text.replace(text.find("1048576"), 7, "-1");
  EXPECT_THAT(error_of([&] { read_nccl_tests("a.json", text); }),
              HasSubstr("a.json: /results/0/size: expected an integer >= 0, found -1"));
  EXPECT_THAT(error_of([&] { read_nccl_tests("a.json", std::string(kJson).substr(0, 900)); }),
              HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace dovetail::imports

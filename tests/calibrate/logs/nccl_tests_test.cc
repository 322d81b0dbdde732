// Logs of nccl-tests: what is understood, what is refused, what is said of the rest.
//
// The logs here are made by the formats of its sources (nccl_tests_log.h) or written out by hand in the
// forms of older versions; real logs were read by hand only, as their texts are not ours to copy.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/nccl_tests.h"

#include "tests/calibrate/logs/nccl_tests_log.h"
#include "tests/support/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using schedule::Collective;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

CollectiveLog read_text(const std::string& name, const std::string& text,
                        const NcclTestsOptions& options = {}) {
  const std::array<Source, 1> files = {Source{name, text}};
  return read_nccl_tests(files, options);
}

std::vector<models::CollectivePoint> points_of(const CollectiveLog& log, std::size_t table = 0) {
  return std::get<std::vector<models::CollectivePoint>>(tables_of(log.samples).at(table).times);
}

void expect_rows(const CollectiveLog& log, Collective collective, std::int64_t ranks,
                 std::optional<std::int64_t> nodes, const std::vector<LogRow>& rows) {
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
    const CollectiveLog log = read_text("a.log", log_text(some_rows(), form));
    expect_rows(log, Collective::AllReduce, ranks, (ranks + 7) / 8, some_rows());
    EXPECT_THAT(log.left_out, IsEmpty()) << ranks;
    EXPECT_EQ(log.gpu, "NVIDIA H100 80GB HBM3");
    EXPECT_EQ(log.nccl, "2.28.3");
    EXPECT_EQ(log.tool, "nccl-tests 2.19.6");
  }
}

// mpirun --tag-output, srun -l, torchrun, time stamps, Kubernetes, Ray with and without colours, grep of one file.
const std::vector<std::string> kPrefixes = {"[0] ",
                                            "[1,0]<stdout>:",
                                            "[1,0]<stdout> ",
                                            "[node0:0]",
                                            "[host-a.cluster:0] ",
                                            "[rank0]: ",
                                            "[default0]:",
                                            "[10:00:01] ",
                                            "[2025-03-14 10:00:01,123] ",
                                            "Fri Mar 14 10:00:01 2025[1,0]<stdout>:",
                                            "2025-03-14T10:00:01.123456789Z ",
                                            "2025-03-14T10:00:01.123456789Z stdout F ",
                                            "[pod/mpi-launcher-x7f2q/mpi] ",
                                            "worker-0 | ",
                                            "[x] | ",
                                            " 0: ",
                                            "(worker-0) ",
                                            "(RayTrainWorker pid=615, ip=10.0.0.6) ",
                                            "\x1b[36m(RayTrainWorker pid=615, ip=10.0.0.6)\x1b[0m ",
                                            "node0 4321 ",
                                            "run.log:",
                                            "\t"};

TEST(NcclTestsTest, ReadsLinesBehindWhateverALauncherPutsThere) {
  for (const std::string& prefix : kPrefixes) {
    SCOPED_TRACE(prefix);
    const LogForm form{.ranks = 16, .factor = 1.875, .prefix = prefix};
    const CollectiveLog log = read_text("a.log", log_text(some_rows(), form));
    expect_rows(log, Collective::AllReduce, 16, 2, some_rows());
    EXPECT_EQ(log.gpu, "NVIDIA H100 80GB HBM3");
    EXPECT_THAT(log.left_out, IsEmpty());
  }
}

TEST(NcclTestsTest, ReadsRowsWithTheLaunchersTagInside) {
  for (const std::string& prefix : kPrefixes) {
    if (prefix.find_first_of("[(|") == std::string::npos) continue;  // no tag of pieces
    SCOPED_TRACE(prefix);
    const LogForm form{.prefix = prefix, .inside = prefix};
    const CollectiveLog log = read_text("a.log", log_text(some_rows(), form));
    expect_rows(log, Collective::AllReduce, 8, 1, some_rows());
    EXPECT_THAT(log.left_out, IsEmpty());
  }
}

// What NCCL writes while nccl-tests is in the middle of a row: with a launcher's tag and without, a warning, which
// begins a line of its own, and a host whose name begins with a digit.
TEST(NcclTestsTest, JoinsRowsThatNcclsOwnLinesCutApart) {
  const std::string info =
      ":497888:497899 [0] NCCL INFO 1048576 Bytes -> Algo 0 proto 0 time 25.229528\n";
  for (const std::string tag : {"", "[0] ", "[1,0]<stdout>:", "(worker-0) "}) {
    for (const std::string& other :
         {"node0" + info, "node0" + info + tag + "node0" + info, "\n" + tag + "node1" + info,
          std::string("\nnode0:1:2 [0] misc/socket.cc:57 NCCL WARN Net : Connection refused\n"),
          std::string("node0:1:2 [0] misc/socket.cc:57 (main) NCCL ATTN 8 retries of 34\n")}) {
      SCOPED_TRACE(tag + other);
      const LogForm form{.ranks = 16, .factor = 1.875, .prefix = tag, .inside = tag + other + tag};
      const CollectiveLog log = read_text("a.log", log_text(some_rows(), form));
      expect_rows(log, Collective::AllReduce, 16, 2, some_rows());
      EXPECT_THAT(log.left_out, IsEmpty());
    }
  }
}

// The end of a row that never comes, and lines of numbers that are none of it.
TEST(NcclTestsTest, DoesNotTakeOtherNumbersIntoARowThatIsCutApart) {
  const std::string head = log_text({{1048576, 41, 40}, {2097152, 61, 60}}, {});
  const std::string cut = "     4194304       1048576     float     sum      -1";
  for (const std::string other :
       {"\n12 processes ended\n", "\n1 2 3\n", " 12 13 srun: error\n", "\n"}) {
    const CollectiveLog log = read_text("a.log", head + cut + other);
    EXPECT_EQ(points_of(log).size(), 2u) << other;
    EXPECT_THAT(log.left_out, Contains(HasSubstr("it is cut off"))) << other;
  }
}

// The rows alone of a log, behind `prefix`.
std::string bare_rows(const std::vector<LogRow>& rows, const LogForm& form) {
  std::string text;
  for (const LogRow& row : rows) text += form.prefix + row_text(row, form) + "\n";
  return text;
}

std::vector<LogRow> slower(double factor) {
  std::vector<LogRow> rows = some_rows();
  for (LogRow& row : rows) {
    row.out_us = std::round(row.out_us * factor);
    row.in_us = std::round(row.in_us * factor);
  }
  return rows;
}

TEST(NcclTestsTest, CutsRowsWithoutHeadersIntoRunsByTheirBandwidths) {
  // 2 (n - 1) / n of 8, 16, 24 and 32 ranks, the same sizes four times, as grep of four logs gives them.
  std::string text;
  for (const int ranks : {8, 16, 24, 32}) {
    text += bare_rows(some_rows(), {.factor = 2.0 * (ranks - 1) / ranks});
  }
  const auto tables = tables_of(read_text("a.log", text).samples);
  ASSERT_EQ(tables.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(tables[i].ranks, 8 * (static_cast<std::int64_t>(i) + 1));
    EXPECT_EQ(tables[i].nodes, std::nullopt);
  }
  // Beside an all-reduce a reduce-scatter, and an all-gather, which must be named.
  text = bare_rows(some_rows(), {}) + bare_rows(some_rows(), {.factor = 0.875}) +
         bare_rows(some_rows(), {.factor = 0.875, .redop = "none"});
  const CollectiveLog mixed = read_text("a.log", text);
  const auto both = tables_of(mixed.samples);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1].collective, Collective::ReduceScatter);
  EXPECT_THAT(mixed.left_out, Contains(HasSubstr("lines 37 to 54: it may be an all-gather")));
}

TEST(NcclTestsTest, CutsRowsWithoutHeadersInAnyOrderOfSizes) {
  // A table by size and number of nodes, put together by hand, with a column of its own in front.
  std::string text;
  for (const std::int64_t bytes : {1 << 28, 1 << 30}) {
    for (const int nodes : {1, 2, 3, 4}) {
      const int ranks = 8 * nodes;
      const LogRow row{bytes, 1e-5 * nodes * static_cast<double>(bytes),
                       1e-5 * nodes * static_cast<double>(bytes)};
      text += std::to_string(nodes) + row_text(row, {.factor = 2.0 * (ranks - 1) / ranks}) + "\n";
    }
  }
  const auto tables = tables_of(read_text("a.log", text).samples);
  ASSERT_EQ(tables.size(), 4u);
  for (const auto& table : tables) EXPECT_EQ(std::get<0>(table.times).size(), 2u);
}

// 383 and 95 GB/s are two machines; their mean of 153 is neither.
TEST(NcclTestsTest, RefusesRowsThatContradictEachOtherByName) {
  const std::string two = bare_rows(some_rows(), {}) + bare_rows(slower(4), {});
  EXPECT_THAT(
      error_of([&] { read_text("a.log", two); }),
      HasSubstr("a.log: lines 1 to 18 and a.log: lines 19 to 36: both are all-reduce over 8 "
                "ranks and contradict each other: "));
  // Also of two whole logs, in one file and in two.
  const std::string first = log_text(some_rows(), {});
  const std::string second = log_text(slower(4), {});
  EXPECT_THAT(error_of([&] { read_text("a.log", first + second); }),
              HasSubstr("contradict each other"));
  const std::array<Source, 2> files = {Source{"a.log", first}, Source{"b.log", second}};
  EXPECT_THAT(error_of([&] { read_nccl_tests(files); }),
              HasSubstr("a.log: line 3 and b.log: line 3: both are all-reduce over 8 ranks"));
  // What they do not contradict stays: a run over other ranks.
  const CollectiveLog other = read_text("a.log", two + bare_rows(some_rows(), {.factor = 1.875}));
  EXPECT_THAT(other.left_out, Contains(HasSubstr("383")).Times(0));
  ASSERT_EQ(tables_of(other.samples).size(), 1u);
  EXPECT_EQ(tables_of(other.samples)[0].ranks, 16);
}

// Two runs that agree but for 5 of 18 sizes, at which one took up to 4.5 times as long: no mean is made there.
TEST(NcclTestsTest, LeavesOutTheSizesAtWhichRepetitionsAreApart) {
  std::vector<LogRow> rows = some_rows();
  const std::vector<double> factors = {1.6, 2.4, 4.5, 2, 1.51};
  for (std::size_t i = 0; i < factors.size(); ++i) {
    rows[i + 5].in_us = std::round(rows[i + 5].in_us * factors[i]);
  }
  const std::string first = log_text(some_rows(), {});
  const std::string second = log_text(rows, {});
  const std::array<Source, 2> files = {Source{"a.log", first}, Source{"b.log", second}};
  const CollectiveLog log = read_nccl_tests(files);
  const auto points = points_of(log);
  ASSERT_EQ(points.size(), some_rows().size() - factors.size());
  for (const models::CollectivePoint& point : points) {
    const auto row = std::ranges::find(rows, point.bytes.count(), &LogRow::bytes);
    EXPECT_NEAR(to_us(point.isolated), row->in_us, 0.51);
  }
  ASSERT_EQ(log.left_out.size(), 1U);
  EXPECT_THAT(log.left_out[0], ::testing::MatchesRegex(
                                   "5 sizes of all-reduce over 8 ranks \\(.* and .*\\), at which "
                                   "measurements are more than a factor of 1.5 apart: .* takes "
                                   ".* in a.log: line 3 and b.log: line 3; .*"));
}

TEST(NcclTestsTest, TakesRunsThatAgreeAsRepetitions) {
  // Small sizes that differ more, as the host does, and one run of five that something disturbed.
  const std::string text = bare_rows(some_rows(), {}) + bare_rows(slower(1.2), {}) +
                           bare_rows(slower(1.1), {}) + bare_rows(slower(1.1), {}) +
                           bare_rows(slower(3), {});
  const auto points = points_of(read_text("a.log", text));
  ASSERT_EQ(points.size(), some_rows().size());
  EXPECT_EQ(points.back().isolated, from_us(std::round(some_rows().back().in_us * 1.1)));
}

TEST(NcclTestsTest, CutsRowsWhereGrepNamesAnotherFile) {
  // One size each: only the file's name tells that sizes that go on rising are of another run.
  const std::string text =
      bare_rows({{1 << 20, 41, 40}, {1 << 21, 61, 60}}, {.prefix = "a.log:"}) +
      bare_rows({{1 << 22, 91, 90}, {1 << 23, 161, 160}}, {.prefix = "b.log:"});
  const CollectiveLog log = read_text("a.log", text);
  EXPECT_EQ(points_of(log).size(), 4u);
  EXPECT_THAT(log.read, ElementsAre(HasSubstr("lines 1 to 2 and lines 3 to 4: all-reduce over 8 "
                                              "ranks (by busbw / algbw), nodes unknown; 4 sizes")));
}

TEST(NcclTestsTest, ReadsTablesOfOtherHands) {
  std::string markdown =
      "| size | count | type | redop | root | time | algbw | busbw | #wrong | time | algbw "
      "| busbw | #wrong |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
  std::string commas;
  for (const LogRow& row : some_rows()) {
    const std::string blanks = row_text(row, {});
    std::string cells, line;
    for (const std::string_view word : words_of(blanks)) {
      cells += " | " + std::string(word);
      line += "," + std::string(word);
    }
    markdown += cells + " |\n";
    commas += line.substr(1) + "\n";
  }
  for (const std::string& text : {markdown, commas}) {
    expect_rows(read_text("a.md", text), Collective::AllReduce, 8, std::nullopt, some_rows());
  }
}

// Rows of older programs, without the root and with an error for the count, whose header line is lost.
TEST(NcclTestsTest, KnowsOlderRowsWithoutTheirHeaderLine) {
  const CollectiveLog log = read_text(
      "a.log",
      "    1048576        262144   float     sum    41.00   25.57   25.57  2e-07    40.00   26.21"
      "   26.21  2e-07\n"
      "    2097152        524288   float     sum    61.00   34.38   34.38  2e-07    60.00   34.95"
      "   34.95    N/A\n");
  expect_rows(log, Collective::AllReduce, 2, std::nullopt, {{1048576, 41, 40}, {2097152, 61, 60}});
}

TEST(NcclTestsTest, TakesTheSumOfARunOfAllOperations) {
  std::string text = log_text(some_rows(), {});
  const std::string end = text.substr(text.find("# Out of bounds"));
  text.resize(text.size() - end.size());
  for (const char* operation : {"prod", "max", "min"}) {
    text += bare_rows(slower(2), {.redop = operation});
  }
  const CollectiveLog log = read_text("a.log", text + end);
  expect_rows(log, Collective::AllReduce, 8, 1, some_rows());
  EXPECT_THAT(log.left_out,
              Contains(HasSubstr("54 rows of other types or operations than float sum")));
}

TEST(NcclTestsTest, LeavesOutRowsWhoseTimeAndBandwidthContradictEachOther) {
  std::string text = log_text(some_rows(), {});
  text.replace(text.rfind("  1073741824"), 12, "  2073741824");
  const CollectiveLog log = read_text("a.log", text);
  EXPECT_EQ(points_of(log).size(), some_rows().size() - 1);
  EXPECT_THAT(log.left_out,
              Contains(HasSubstr("1 row whose time and bandwidth contradict each other")));
}

TEST(NcclTestsTest, DoesNotCountHostsWhereLinesOfRanksAreMissing) {
  std::string text = log_text(some_rows(), {.ranks = 16, .factor = 1.875});
  const std::size_t at = text.find("#  Rank  3");
  text.erase(at, text.find('\n', at) + 1 - at);
  expect_rows(read_text("a.log", text), Collective::AllReduce, 16, std::nullopt, some_rows());
}

TEST(NcclTestsTest, NamesFormsThatItDoesNotRead) {
  const std::string fork =
      "WARNING: noise of MPI\n{\"identifier\": \"nccl-tests structured output\", \"benchmark\": "
      "[{}]}\n";
  EXPECT_THAT(error_of([&] { read_text("a.log", fork); }),
              HasSubstr("a.log: the JSON of a fork of nccl-tests"));
  EXPECT_THAT(error_of([&] { read_text("a.log", "[{\"size\":8,\"busBw\":\"1.5\"}]"); }),
              HasSubstr("the JSON of rccl-tests (-Z json)"));
}

TEST(CollectiveLogTest, PointsAtSizesWhoseTimesFall) {
  const auto doubts = [](const std::vector<int>& us) {
    models::CollectiveSeries series{.collective = Collective::AllReduce, .ranks = 8, .times = {}};
    std::vector<models::CollectivePoint> points;
    for (std::size_t i = 0; i < us.size(); ++i) {
      points.push_back({.bytes = mib(std::int64_t{1} << i), .isolated = from_us(us[i])});
    }
    series.times = points;
    return doubts_of(series);
  };
  EXPECT_THAT(doubts({100, 110, 200, 400}), IsEmpty());
  EXPECT_THAT(doubts({2302, 417, 626}),
              ElementsAre(HasSubstr("8 ranks: 1 MiB takes longer (2.3 ms) than 2 MiB (417 us): "
                                    "a change of protocol or a disturbance")));
  EXPECT_THAT(doubts({124, 100, 200, 400}), IsEmpty());  // within a factor of 1.25
  // 4 MiB in 210 us between 200 and 1000: 447 us would lie between. A link that gives way above a size is no doubt.
  EXPECT_THAT(doubts({100, 200, 210, 1000}),
              ElementsAre(HasSubstr("4 MiB takes 210 us, far below what its neighbours lead to")));
  EXPECT_THAT(doubts({1000, 1337, 2285, 24425, 48558}), IsEmpty());
}

// The last lines of a run count what was wrong of both kinds of buffers; the in-place columns of this one do not.
TEST(NcclTestsTest, TellsARunThatEndedWithWrongValues) {
  const std::string text = log_text(some_rows(), {});
  const std::string failed = text + "# Out of bounds values : 3 FAILED\n";
  EXPECT_THAT(
      read_text("a.log", failed).left_out,
      Contains(HasSubstr("a.log: line 3: the run ended with \"Out of bounds values : 3 FAILED\", "
                         "though no row of the columns taken shows a wrong value")));
  EXPECT_THAT(read_text("a.log", text + "# Out of bounds values : 0 OK\n").left_out, IsEmpty());
  // 73472 wrong values out of place at 1 MiB only.
  std::string other = failed;
  const std::size_t at = other.find("     0", other.find("     1048576"));
  other.replace(at, 6, " 73472");
  EXPECT_THAT(read_text("a.log", other).left_out,
              Contains(HasSubstr("shows a wrong value; wrong in the other columns: 1 row")));
  std::vector<LogRow> rows = some_rows();
  rows[2].wrong = "7";
  EXPECT_THAT(
      read_text("a.log", log_text(rows, {}) + "# Out of bounds values : 1 FAILED\n").left_out,
      Contains(HasSubstr("1 row with wrong values")));
  for (LogRow& row : rows) row.wrong = "N/A";
  EXPECT_THAT(
      read_text("a.log", log_text(rows, {}) + "# Out of bounds values : 1 FAILED\n").left_out,
      Contains(HasSubstr("which were not checked in 18 rows")));
}

TEST(NcclTestsTest, ReadsThroughNoiseBetweenTheLines) {
  std::string text = "Warning: Permanently added 'node1' (ED25519) to the list of known hosts.\n" +
                     log_text(some_rows(), {});
  std::string noisy;
  for (const char c : text) {
    noisy += c;
    if (c == '\n') noisy += "node0:4321:4399 [0] NCCL INFO Channel 00/24 : 0 1 2 3 4 5 6 7\r\n";
  }
  expect_rows(read_text("a.log", noisy), Collective::AllReduce, 8, 1, some_rows());
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
    expect_rows(read_text("a.log", log_text(some_rows(), form)), one.collective, 8, 1, some_rows());
  }
}

TEST(NcclTestsTest, KnowsTheCollectiveByTheCommandThatAShellEchoed) {
  const LogForm form{.factor = 0.875, .names_program = false, .redop = "none"};
  const std::string text = "+ mpirun -np 8 /opt/nccl-tests/build/all_gather_perf_mpi -b 8K -e 1G\n";
  expect_rows(read_text("a.log", text + log_text(some_rows(), form)), Collective::AllGather, 8, 1,
              some_rows());
}

TEST(NcclTestsTest, TellsAllReduceFromReduceScatterByTheirBandwidths) {
  const LogForm all_reduce{.names_program = false};
  expect_rows(read_text("a.log", log_text(some_rows(), all_reduce)), Collective::AllReduce, 8, 1,
              some_rows());
  const LogForm scatter{.factor = 0.875, .names_program = false};
  expect_rows(read_text("a.log", log_text(some_rows(), scatter)), Collective::ReduceScatter, 8, 1,
              some_rows());
}

TEST(NcclTestsTest, AsksWhichCollectiveItIsWhereTheLogLeavesItOpen) {
  const LogForm form{.factor = 0.875, .names_program = false, .redop = "none"};
  const std::string text = log_text(some_rows(), form);
  EXPECT_THAT(error_of([&] { read_text("a.log", text); }),
              HasSubstr("it may be an all-gather or an all-to-all; say which with --collective"));
  const NcclTestsOptions options{.collective = Collective::AllToAll};
  expect_rows(read_text("a.log", text, options), Collective::AllToAll, 8, 1, some_rows());
}

TEST(NcclTestsTest, FindsTheRanksByTheBandwidthsWhereTheirLinesAreMissing) {
  // 2 (n - 1) / n of n = 16 is 1.875.
  const LogForm form{.ranks = 0, .factor = 1.875};
  expect_rows(read_text("a.log", log_text(some_rows(), form)), Collective::AllReduce, 16,
              std::nullopt, some_rows());
  // Of n = 4096 it is 1.9995: the printed digits do not tell it from 2.
  const LogForm large{.ranks = 0, .factor = 2.0 * 4095 / 4096};
  const std::string text = log_text(some_rows(), large);
  EXPECT_THAT(error_of([&] { read_text("a.log", text); }), HasSubstr("--ranks"));
  const NcclTestsOptions options{.ranks = 4096};
  const CollectiveLog log = read_text("a.log", text, options);
  expect_rows(log, Collective::AllReduce, 4096, std::nullopt, some_rows());
  EXPECT_THAT(log.read, Contains(HasSubstr("over 4096 ranks (as --ranks says), nodes unknown")));
}

TEST(NcclTestsTest, RefusesARunThatContradictsItself) {
  // The bandwidths are those of eight ranks, four are listed.
  const std::string text = log_text(some_rows(), {.ranks = 4});
  EXPECT_THAT(
      error_of([&] { read_text("a.log", text); }),
      HasSubstr("its busbw / algbw is 1.750, but that of all_reduce_perf over 4 ranks is 1.500"));
}

TEST(NcclTestsTest, SeparatesTheRunsOfOneFile) {
  const std::string text =
      log_text(some_rows(), {}) +
      log_text(some_rows(), {.factor = 0.875, .program = "all_gather_perf", .redop = "none"}) +
      log_text(some_rows(), {.ranks = 16, .factor = 1.875});
  const auto tables = tables_of(read_text("a.log", text).samples);
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
  const auto tables = tables_of(read_text("a.log", text).samples);
  ASSERT_EQ(tables.size(), 3u);
  EXPECT_EQ(tables[0].ranks, 4);
  EXPECT_EQ(tables[1].ranks, 8);
  EXPECT_EQ(tables[2].ranks, 16);
}

TEST(NcclTestsTest, TakesTheMedianOfSizesThatStandSeveralTimesInAnyOrder) {
  const std::vector<LogRow> rows = {
      {2048, 9, 30}, {1024, 9, 10}, {2048, 9, 20}, {2048, 9, 90}, {1024, 9, 10}};
  const auto points = points_of(read_text("a.log", log_text(rows, {})));
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].bytes, Bytes(1024));
  EXPECT_EQ(points[1].isolated, from_us(30));
}

TEST(NcclTestsTest, LeavesOutRowsOfNoBytesAndOfWrongValuesAndSaysSo) {
  std::vector<LogRow> rows = some_rows();
  rows[3].wrong = "1e+06";
  rows.insert(rows.begin(), {0, 5.7, 5.5});
  const CollectiveLog log = read_text("a.log", log_text(rows, {}));
  EXPECT_EQ(points_of(log).size(), some_rows().size() - 1);
  EXPECT_THAT(log.left_out, Contains(HasSubstr("1 row of 0 bytes")));
  EXPECT_THAT(log.left_out, Contains(HasSubstr("1 row with wrong values")));
}

TEST(NcclTestsTest, TakesValuesThatWereNotCheckedAsTheyAre) {
  std::vector<LogRow> rows = some_rows();
  for (LogRow& row : rows) row.wrong = "N/A";
  expect_rows(read_text("a.log", log_text(rows, {})), Collective::AllReduce, 8, 1, rows);
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
  const CollectiveLog log = read_text("a.log", text);
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
  expect_rows(read_text("a.log", text), Collective::AllReduce, 8, std::nullopt,
              {{8388608, 91.1, 94.94}, {16777216, 171.1, 174.94}});
}

TEST(NcclTestsTest, TakesARunWithBlockingAsTimesOfLoneCollectives) {
  std::string alone = log_text({{1024, 9, 50}, {2048, 9, 60}}, {});
  alone.insert(alone.find("#\n"),
               "# Blocking Enabled: wait and barrier after each inner iteration\n");
  const std::string queued = log_text({{1024, 9, 40}, {2048, 9, 45}}, {});
  const auto points = points_of(read_text("a.log", alone + queued));
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].isolated, from_us(50));
  EXPECT_EQ(points[0].back_to_back, from_us(40));
}

TEST(NcclTestsTest, ReadsWhatARunThatWasKilledHasPrinted) {
  const std::string text = log_text(some_rows(), {});
  const std::size_t last = text.find("  1073741824");
  const CollectiveLog cut = read_text("a.log", text.substr(0, last + 88));
  EXPECT_EQ(points_of(cut).size(), some_rows().size());
  EXPECT_THAT(cut.left_out, Contains(HasSubstr("its in-place columns are cut off")));
  const CollectiveLog shorter = read_text("a.log", text.substr(0, last + 50));
  EXPECT_EQ(points_of(shorter).size(), some_rows().size() - 1);
}

TEST(NcclTestsTest, NamesTheBuildWithoutMpi) {
  std::string text = log_text(some_rows(), {.ranks = 1});
  text.insert(text.find("#  Rank"), "#  Rank  0 Group  0 Pid  99 on node1 device  0 [0x00] V100\n");
  EXPECT_THAT(error_of([&] { read_text("a.log", text); }),
              HasSubstr("rank 0 stands twice in one run: nccl-tests was built without MPI=1"));
}

TEST(NcclTestsTest, RefusesTimesOfTheProcessor) {
  std::string text = log_text(some_rows(), {});
  text.replace(text.find("    time   algbw"), 8, " cputime");
  EXPECT_THAT(error_of([&] { read_text("a.log", text); }), HasSubstr("the CPU's time (-C 1)"));
}

TEST(NcclTestsTest, RefusesWhatIsNoLogOfIt) {
  for (const std::string text : {"", "hello\n", "{\"a\": 1}", "# size count\n"}) {
    EXPECT_THAT(error_of([&] { read_text("a.log", text); }), HasSubstr("a.log: ")) << text;
  }
  const std::string one_rank = log_text(some_rows(), {.ranks = 1, .factor = 0});
  EXPECT_THAT(error_of([&] { read_text("a.log", one_rank); }),
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
  const CollectiveLog log = read_text("a.json", kJson);
  expect_rows(log, Collective::AllReduce, 8, 2, {{1048576, 41, 40}, {2097152, 0, 60}});
  EXPECT_EQ(log.gpu, "NVIDIA H200");
  EXPECT_EQ(log.nccl, "2.28.3");
  EXPECT_THAT(log.left_out, Contains(HasSubstr("/results/2: it has no usable time")));
}

TEST(NcclTestsTest, NamesThePlaceOfAMistakeInItsJson) {
  std::string text = kJson;
  text.replace(text.find("1048576"), 7, "-1");
  EXPECT_THAT(error_of([&] { read_text("a.json", text); }),
              HasSubstr("a.json: /results/0/size: expected an integer >= 0, found -1"));
  EXPECT_THAT(error_of([&] { read_text("a.json", std::string(kJson).substr(0, 900)); }),
              HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace dovetail::imports

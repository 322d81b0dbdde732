// The self-test as a person runs it, and its parts: rows, ranks as processes, what is missing.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/selftest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/selftest_cuda.h"
#include "tests/cli/tool.h"

namespace dovetail::cli {
namespace {

using exec::selftest::Row;
using exec::selftest::Verdict;
using testing::Ended;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_tool;

const Row* find(const std::vector<Row>& rows, const std::string& name) {
  const auto row = std::ranges::find(rows, name, &Row::name);
  return row == rows.end() ? nullptr : &*row;
}

bool has_driver() { return std::filesystem::exists("/proc/driver/nvidia/version"); }

TEST(SelftestTest, TheCpuBackendPassesOnThisMachine) {
  const Ended ended = run_tool("selftest --backend cpu --json");
  EXPECT_EQ(ended.code, 0) << ended.output;
  const std::vector<Row> rows = rows_from_json(ended.output);
  for (const Row& row : rows) EXPECT_NE(row.verdict, Verdict::Fail) << row.name << row.detail;
  for (const char* name :
       {"all-reduce, sum over ring", "all-reduce, average over ring",
        "reduce-scatter, sum over ring", "all-gather over ring", "all-to-all over ring",
        "broadcast over ring", "send-recv over ring", "2 ranks as processes",
        "same weights: one-bucket", "clock", "CUDA loader"}) {
    const Row* row = find(rows, name);
    ASSERT_NE(row, nullptr) << name << " is missing from " << ended.output;
    EXPECT_EQ(row->verdict, Verdict::Pass) << name << ": " << row->detail;
  }
}

// Shares 0, 1, 5, 1000 and 16411 sum up to 17417 elements per rank. An all-reduce of n shares on n
// ranks checks n * n * 17417: (1 + 4 + 9 + 16) * 17417 = 522510.
TEST(SelftestTest, ARowSaysHowManyElementsItCompared) {
  const Ended ended = run_tool("selftest --backend cpu");
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("1, 2, 3 and 4 ranks, f32, 522510 elements, 0 wrong"));
  EXPECT_THAT(ended.output, HasSubstr(" passed, 0 failed, "));
}

TEST(SelftestTest, WithoutADriverEveryDeviceCheckIsSkippedWithTheReason) {
  if (has_driver()) GTEST_SKIP() << "this machine has a driver";
  const Ended ended = run_tool("selftest --backend cuda --json");
  EXPECT_EQ(ended.code, 0) << ended.output;
  for (const Row& row : rows_from_json(ended.output)) {
    if (row.part != "cuda") continue;
    EXPECT_EQ(row.verdict, Verdict::Skipped) << row.name;
    EXPECT_THAT(row.detail, HasSubstr("cuda")) << row.name;
    EXPECT_GT(row.detail.size(), 20u) << row.name;
  }
}

TEST(SelftestTest, AnUnknownBackendIsAnInputError) {
  const Ended ended = run_tool("selftest --backend tpu");
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.output, HasSubstr("expected cpu, cuda or all, found \"tpu\""));
}

TEST(SelftestRowTest, WhatACheckThrowsBecomesAFailedRow) {
  const Row row = exec::selftest::row_of(
      {"cpu", "x"}, []() -> exec::selftest::Outcome { throw DeviceError("rank 1 died"); });
  EXPECT_EQ(row, (Row{"cpu", "x", Verdict::Fail, "rank 1 died"}));
}

TEST(SelftestRowTest, JsonBringsTheSameRowsBack) {
  const std::vector<Row> rows = {{"build", "a", Verdict::Pass, "x \"y\""},
                                 {"cuda", "b", Verdict::Skipped, "no driver"},
                                 {"cuda", "c", Verdict::Fail, "2 wrong"},
                                 {"cuda", "d", Verdict::Known, "3 wrong"}};
  EXPECT_EQ(rows_from_json(rows_to_json(rows)), rows);
  // A library may have printed a line of its own before.
  EXPECT_EQ(rows_from_json("NCCL version 2.28.9\n" + rows_to_json(rows)), rows);
}

TEST(SelftestRowTest, BytesThatAreNoTextDoNotBreakTheReport) {
  const std::string report = rows_to_json({{"cuda", "devices", Verdict::Pass, "\xff\xfe GPU"}});
  EXPECT_EQ(rows_from_json(report).size(), 1u);
}

TEST(SelftestRowTest, TheTableEndsWithTheCounts) {
  std::ostringstream out;
  put_rows({},
           {{"cpu", "clock", Verdict::Pass, "1 ns"},
            {"cuda", "b", Verdict::Fail, "bad"},
            {"cuda", "c", Verdict::Known, "fault"}},
           out);
  EXPECT_EQ(out.str(),
            "part  check  verdict  what was seen\n"
            "cpu   clock  pass     1 ns\n"
            "cuda  b      FAIL     bad\n"
            "cuda  c      known    fault\n"
            "1 passed, 1 failed, 0 skipped, 1 known fault of libraries\n");
}

// Longer than any machine needs.
constexpr Duration kPatience = std::chrono::minutes(4);

std::vector<Row> rows_of_shell(const std::string& script, Duration deadline) {
  return rows_of_processes(
      {"cpu", "shell"},
      {.command = {"/bin/sh", "-c", script}, .ranks = 2, .deadline = deadline, .grace = kPatience});
}

TEST(SelftestProcessesTest, RanksThatHangAreKilledAtTheDeadline) {
  const std::vector<Row> rows = rows_of_shell("exec sleep 300", std::chrono::milliseconds(300));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].verdict, Verdict::Fail);
  // SIGKILL is 9.
  EXPECT_EQ(rows[0].detail, "killed at the deadline; exit codes 137 137");
}

TEST(SelftestProcessesTest, ARankThatFailsSilentlyIsAFailedRowWithItsLastWords) {
  const std::vector<Row> rows =
      rows_of_shell("echo first >&2; echo no peer >&2; exit 3", kPatience);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].verdict, Verdict::Fail);
  EXPECT_EQ(rows[0].detail, "exit codes 3 3; no peer");
}

TEST(SelftestProcessesTest, RowsOfRankZeroArePassedOn) {
  const std::string report = rows_to_json({{"cuda", "sum", Verdict::Pass, "0 wrong"}});
  const std::vector<Row> rows = rows_of_shell("cat <<'END'\n" + report + "END\n", kPatience);
  EXPECT_EQ(rows, (std::vector<Row>{{"cuda", "sum", Verdict::Pass, "0 wrong"}}));
}

TEST(SelftestProcessesTest, AFailureThatRankZeroDidNotReportIsARowOfItsOwn) {
  const std::string report = rows_to_json({{"cuda", "sum", Verdict::Pass, "0 wrong"}});
  const std::vector<Row> rows =
      rows_of_shell("cat <<'END'\n" + report + "END\nexit $RANK\n", kPatience);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].verdict, Verdict::Fail);
  EXPECT_EQ(rows[1].detail, "exit codes 0 1");
}

TEST(SelftestCudaTest, RanksOnOneGpuLookLikeHostsOfTheirOwn) {
  EXPECT_NE(one_gpu_variables(0).at("NCCL_HOSTID"), one_gpu_variables(1).at("NCCL_HOSTID"));
  EXPECT_EQ(one_gpu_variables(0).at("NCCL_SOCKET_IFNAME"), "lo");
}

}  // namespace
}  // namespace dovetail::cli

// What Nsight Systems' exports may lack or hold wrongly, and the steps of all-reduces made of them. The tables here have the documented columns.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/load/nsys_step.h"
#include "recordings/nsys/reader.h"

#include <sqlite3.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/recordings/nsys/as_nsys.h"
#include "tests/support/errors.h"
#include "tests/support/gzip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using dovetail::testing::gzipped;
using ::testing::HasSubstr;

class NsysTest : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             ("dovetail_nsys." + std::to_string(::getpid()) + ".sqlite"))
                .string();
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void write(const std::string& statements) const {
    dovetail::testing::write_database(path_, statements);
  }

  // Steps of 1 ms: kernels 100..300 and 320..500 us, all-reduces behind each (310..400, 510..700), an
  // update 710..760. Launches come 50 us before.
  [[nodiscard]] static std::string tables(int steps) {
    std::string text =
        "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
        "INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL'), "
        "(3, 'step');"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, correlationId INT, shortName "
        "INT);"
        "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, correlationId INT);"
        "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT);";
    int id = 0;
    for (int step = 0; step < steps; ++step) {
      const int at = 1'000'000 * step;
      text += "INSERT INTO NVTX_EVENTS VALUES (" + std::to_string(at) + "," +
              std::to_string(at + 990'000) + ", 59, NULL, 3);";
      const auto kernel = [&](int start_us, int end_us, int name) {
        ++id;
        text += "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (" +
                std::to_string(at + 1000 * start_us) + "," + std::to_string(at + 1000 * end_us) +
                "," + std::to_string(id) + "," + std::to_string(name) +
                ");INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (" +
                std::to_string(at + 1000 * (start_us - 50)) + ",0," + std::to_string(id) + ");";
      };
      kernel(100, 300, 1);
      kernel(310, 400, 2);
      kernel(320, 500, 1);
      kernel(510, 700, 2);
      kernel(710, 760, 1);
    }
    return text;
  }

  ImportedStep read(const std::string& step = "step",
                    std::vector<Bytes> bytes = {mib(1), mib(2)}) const {
    return nsys_step(read_nsys(path_, {}),
                     {.step = step, .all_reduces = {.bytes = std::move(bytes), .ranks = 8}});
  }

  std::string path_;
};

TEST_F(NsysTest, MakesAProfileOfTheStepsThatAreNamed) {
  write(tables(3));
  const models::Profile profile = read().profile;
  EXPECT_EQ(profile.world_size, 8);
  EXPECT_EQ(profile.by_rank[0].forward, from_us(200));
  EXPECT_EQ(profile.by_rank[0].backward, from_us(200));
  EXPECT_EQ(profile.by_rank[0].optimizer, from_us(50));
  ASSERT_EQ(profile.gradients.size(), 2u);
  EXPECT_EQ(profile.gradients[1].numel, 1 << 19);
  ASSERT_TRUE(profile.collectives.has_value());
  EXPECT_EQ(profile.collectives->points[0].isolated, from_us(90));
  EXPECT_EQ(profile.collectives->points[1].isolated, from_us(190));
}

TEST_F(NsysTest, NamesTheRangesThatThereAre) {
  write(tables(3));
  EXPECT_THAT(error_of([&] { read("iteration"); }),
              HasSubstr("no annotation is called \"iteration\"; there are step"));
  EXPECT_THAT(error_of([&] { read("step", {mib(1)}); }),
              HasSubstr("a step has 2 NCCL all-reduces, but --bytes gives 1 size"));
}

TEST_F(NsysTest, RefusesWhatIsNoExport) {
  EXPECT_THAT(error_of([&] { read(); }), HasSubstr("unable to open database file"));
  write_file(path_, std::string(5000, 'x'));
  EXPECT_THAT(error_of([&] { read(); }), HasSubstr("file is not a database"));
  std::filesystem::remove(path_);
  write("CREATE TABLE a (b INT);");
  EXPECT_THAT(error_of([&] { read(); }), HasSubstr("no such table: CUPTI_ACTIVITY_KIND_KERNEL"));
  // A view that never ends, where the table should be.
  write(
      "CREATE VIEW NVTX_EVENTS AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
      "SELECT i AS start, i + 1 AS end, 'step' AS text, 1 AS textId FROM n;"
      "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);");
  EXPECT_NE(error_of([&] { read(); }), "");
}

TEST_F(NsysTest, ReadsTheSameFromAFileThatIsPacked) {
  write(tables(3));
  const ImportedStep plain = read();
  write_file(path_, gzipped(read_file(path_)));
  const ImportedStep packed = read();
  EXPECT_EQ(profile_to_json(packed), profile_to_json(plain));
  EXPECT_EQ(packed.read, plain.read);
  write_file(path_, read_file(path_).substr(0, 300));
  EXPECT_THAT(error_of([&] { read(); }), HasSubstr("the gzip stream is cut off"));
}

// As torchrun's ranks in one report: correlation ids are those of both, pid 12 is slower by half.
TEST_F(NsysTest, ReadsOneProcessOfSeveral) {
  std::string text = tables(3) +
                     "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL ADD globalPid INT; ALTER TABLE "
                     "CUPTI_ACTIVITY_KIND_RUNTIME "
                     "ADD globalTid INT; ALTER TABLE NVTX_EVENTS ADD globalTid INT;";
  const auto set_pid = [](int pid, const std::string& where) {
    const std::string of_pid = std::to_string((std::int64_t{1} << 48) + (std::int64_t{pid} << 24));
    return "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = " + of_pid + where +
           ";UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = " + of_pid + " + 5" + where +
           ";UPDATE NVTX_EVENTS SET globalTid = " + of_pid + " + 5" + where + ";";
  };
  text += set_pid(11, "");
  write(
      text +
      "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL SELECT start * 3 / 2, end * 3 / 2, correlationId, "
      "shortName, NULL FROM CUPTI_ACTIVITY_KIND_KERNEL;"
      "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME SELECT start * 3 / 2, end, correlationId, NULL FROM "
      "CUPTI_ACTIVITY_KIND_RUNTIME;"
      "INSERT INTO NVTX_EVENTS SELECT start * 3 / 2, end * 3 / 2, eventType, text, textId, NULL "
      "FROM "
      "NVTX_EVENTS;"
      "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = 281474976710656 + (12 << 24) WHERE "
      "globalPid "
      "IS NULL; UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET globalTid = 281474976710656 + (12 << 24) + "
      "7 "
      "WHERE globalTid IS NULL; UPDATE NVTX_EVENTS SET globalTid = 281474976710656 + (12 << 24) + "
      "7 "
      "WHERE globalTid IS NULL;");
  const auto of = [&](std::optional<std::int64_t> pid) {
    return nsys_step(
        read_nsys(path_, {}),
        {.step = "step", .pid = pid, .all_reduces = {.bytes = {mib(1), mib(2)}, .ranks = 8}});
  };
  EXPECT_EQ(of({}).profile.by_rank[0].forward, from_us(200));
  EXPECT_EQ(of({}).read.front(), "2 processes and devices in the report: this is " + path_ +
                                     " (process 11, GPU 0); --pid names another, of 12");
  EXPECT_EQ(of(11).profile.by_rank[0].forward, from_us(200));
  EXPECT_EQ(of(12).profile.by_rank[0].forward, from_us(300));
  EXPECT_EQ(of(12).read.back(), "3 steps, 15 kernels, 2 all-reduces a step");
  EXPECT_THAT(error_of([&] { of(13); }),
              HasSubstr("--pid 13: no kernel of that process; there are 11 and 12"));
}

TEST_F(NsysTest, ReadsTablesWithSomethingBehindTheirNames) {
  write(tables(3) +
        "ALTER TABLE NVTX_EVENTS RENAME TO NVTX_EVENTS_V2;"
        "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO CUPTI_ACTIVITY_KIND_KERNEL_V9;");
  EXPECT_EQ(read().profile.by_rank[0].forward, from_us(200));
}

TEST_F(NsysTest, SaysWhatWasNotRecorded) {
  write(tables(3) + "DROP TABLE NVTX_EVENTS;");
  EXPECT_THAT(error_of([&] { read(); }), HasSubstr("it has no NVTX ranges"));
  std::filesystem::remove(path_);
  write(tables(3) + "DROP TABLE CUPTI_ACTIVITY_KIND_KERNEL;");
  EXPECT_THAT(error_of([&] { read(); }), HasSubstr("it has no kernels and launches of CUDA"));
  std::filesystem::remove(path_);
  write(tables(3) +
        "UPDATE StringIds SET value = 'ncclDevKernel_ReduceScatter_Sum_f32_RING_LL' WHERE id = 2;");
  EXPECT_THAT(
      error_of([&] { read(); }),
      HasSubstr("0 NCCL all-reduces, but --bytes gives 2 sizes; it also has 2 reduce-scatter"));
}

// The two launches share their id, so each would own both kernels.
TEST_F(NsysTest, RefusesExportsOfSeveralProcesses) {
  write(tables(3) +
        "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET correlationId = 1;"
        "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET correlationId = 1;");
  EXPECT_THAT(error_of([&] { read(); }), HasSubstr("a correlation id stands for several launches"));
}

}  // namespace
}  // namespace dovetail::imports

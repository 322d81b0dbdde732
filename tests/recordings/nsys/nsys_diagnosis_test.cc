// Recordings of Nsight Systems, diagnosed: a real one, and one step that PyTorch's profiler recorded, told in its tables.
//
// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "recordings/diagnose/diagnosis.h"
#include "recordings/load/load_job.h"
#include "tests/recordings/kineto/traces.h"
#include "tests/recordings/nsys/as_nsys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

namespace dovetail::diagnose {
namespace {

using imports::CollectiveKind;
using imports::JobTrace;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kReal =
    std::string(DOVETAIL_SOURCE_DIR) + "/tests/recordings/nsys/h100x2-all-to-all.sqlite.gz";

// 80 ms of two processes on two H100 (README.md beside it). Counted by hand in SQL: 1,014 kernels of which 18 are of NCCL, all sends and
// receives in ncclGroupEnd under nccl:all_to_all; 105 waits.
TEST(NsysDiagnosisTest, ReadsARealReportOfTwoProcesses) {
  const JobTrace job = imports::load_job({kReal}, {});
  ASSERT_EQ(job.ranks.size(), 2u);
  std::size_t kernels = 0;
  std::size_t collectives = 0;
  for (const imports::RankTrace& rank : job.ranks) {
    EXPECT_EQ(rank.trace.recorder, imports::Recorder::Nsys);
    for (const imports::RecordedEvent& event : rank.trace.events) {
      kernels += event.kind == imports::EventKind::Kernel ? 1 : 0;
    }
    for (const imports::TracedCollective& collective : rank.line.collectives) {
      EXPECT_EQ(collective.kind, CollectiveKind::AllToAll);
      EXPECT_FALSE(collective.bytes.has_value());  // exported without --include-blobs
      ++collectives;
    }
    EXPECT_THAT(rank.trace.names, Contains("c10d::alltoall_base_"));
    EXPECT_THAT(rank.trace.names, Not(Contains(HasSubstr("op_id"))));
    EXPECT_THAT(rank.line.unknowns, Contains(HasSubstr("--include-blobs=true")));
  }
  EXPECT_EQ(kernels, 1014u);
  EXPECT_EQ(collectives, 18u);
  const Diagnosis diagnosis = diagnose(job);
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    EXPECT_LT(std::abs(rank.replay.error.step), 0.001);
  }
}

class MadeReportTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove(path_); }
  void TearDown() override { std::filesystem::remove(path_); }

  // Five steps of 16 ms by kernels alone, all of one stream: 10 ms of compute, an all-reduce of 3 ms, 3 ms of compute. The host is done with a
  // step in 1 ms and waits for nothing. Of a process that calls itself rank 0 of 2.
  static std::string one_stream(int pid, std::int64_t communicator) {
    std::string text;
    const std::string process = std::to_string(std::int64_t{pid} << 24);
    int id = 0;
    const auto kernel = [&](std::int64_t launch_us, std::int64_t start_us, std::int64_t end_us,
                            int name) {
      ++id;
      text += "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (" +
              std::to_string(1000 * launch_us) + "," + std::to_string(1000 * launch_us + 5000) +
              "," + process + "," + std::to_string(id) + ",3);" +
              "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (" + std::to_string(1000 * start_us) +
              "," + std::to_string(1000 * end_us) + ",0,7," + std::to_string(id) + "," + process +
              "," + std::to_string(name) + ");";
    };
    std::string blob = "x'" + std::string(16, '0') + "0200000000000000" + std::string(32, '0');
    blob += std::string(1, static_cast<char>('0' + communicator)) + std::string(15, '0') +
            "0200000000000000'";
    text += "INSERT INTO NVTX_EVENTS VALUES (1,2,59,'ncclCommInitRank',NULL," + process + "," +
            blob + ");";
    for (int step = 0; step < 5; ++step) {
      const std::int64_t host = 1000 + 1000 * step;
      const std::int64_t at = 1010 + 16'000 * step;
      text += "INSERT INTO NVTX_EVENTS VALUES (" + std::to_string(1000 * host) + "," +
              std::to_string(1000 * (host + 1000)) + ",59,'iteration',NULL," + process + ",NULL);";
      kernel(host, at, at + 10'000, 1);
      kernel(host + 100, at + 10'000, at + 13'000, 2);
      kernel(host + 200, at + 13'000, at + 16'000, 1);
    }
    return text;
  }
  static std::string tables() {
    return "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);"
           "INSERT INTO StringIds VALUES (1, 'gemm'), (2, "
           "'ncclDevKernel_AllReduce_Sum_f32_RING_LL'), "
           "(3, 'cudaLaunchKernel_v7000');"
           "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId "
           "INT, correlationId "
           "INT, globalPid INT, shortName INT);"
           "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, "
           "correlationId INT, nameId INT);"
           "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, "
           "globalTid INT, "
           "binaryData BLOB);"
           "CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (schemaId INT, name TEXT, type INT, offset "
           "INT);"
           "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (2, 'NCCL communicator ID', 18, NULL), "
           "(2, 'No. of ranks', 5, "
           "8), (2, 'Rank', 5, 12);";
  }
  [[nodiscard]] JobTrace load(const std::string& statements) const {
    testing::write_database(path_, statements);
    return imports::load_job({path_}, {.join = {.step = "iteration"}});
  }

  std::string path_ = (std::filesystem::temp_directory_path() /
                       ("dovetail_made." + std::to_string(::getpid()) + ".sqlite"))
                          .string();
};

// What follows a collective on its own stream waits for it, and no host is to blame.
TEST_F(MadeReportTest, ACollectiveOnTheStreamOfComputeIsWaitedFor) {
  const JobTrace job = load(tables() + one_stream(5, 1));
  EXPECT_EQ(job.world_size(), 2);
  const Diagnosis diagnosis = diagnose(job);
  const StepCauses& causes = diagnosis.ranks[0].causes[1];
  EXPECT_EQ(causes.by[static_cast<std::size_t>(Cause::Link)], from_us(3000));
  EXPECT_EQ(causes.by[static_cast<std::size_t>(Cause::Host)], Duration{});
  const WhatIf* const free = diagnosis.ranks[0].what_if(Change::NoNetwork);
  ASSERT_NE(free, nullptr);
  EXPECT_GT(free->gain.middle, from_us(2900));
}

// Two groups of two, each with a rank 0: none of them is the job's.
TEST_F(MadeReportTest, RanksOfGroupsAreNotThoseOfTheJob) {
  const JobTrace job = load(tables() + one_stream(5, 1) + one_stream(6, 2));
  ASSERT_EQ(job.ranks.size(), 2u);
  EXPECT_EQ(job.ranks[0].rank, 0);
  EXPECT_EQ(job.ranks[1].rank, 1);
}

TEST_F(MadeReportTest, GraphsAsAWholeKeepTheGpuBusyWithWhatNobodyKnows) {
  const JobTrace job =
      load(tables() + one_stream(5, 1) +
           "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE AS SELECT start, end, deviceId, streamId, "
           "correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE shortName = 2;"
           "DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE shortName = 2;");
  const Diagnosis diagnosis = diagnose(job);
  EXPECT_TRUE(diagnosis.has_whole_graphs);
  EXPECT_EQ(diagnosis.ranks[0].recorded[1].figures.comp, from_us(16'000));
  EXPECT_THAT(diagnosis.unknowns, Contains(HasSubstr("5 executions of CUDA graphs")));
}

class ToldTwiceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ToldTwiceTest, IsDiagnosedAlike) {
  const JobTrace job = imports::load_job({testing::trace_file(GetParam())}, {});
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("dovetail_told." + std::to_string(::getpid()) + ".sqlite"))
                               .string();
  std::filesystem::remove(path);
  testing::write_database(path, testing::as_nsys(job.ranks[0].trace, job.ranks[0].line));
  const JobTrace again = imports::load_job({path}, {});
  std::filesystem::remove(path);
  ASSERT_EQ(again.ranks.size(), 1u);
  EXPECT_EQ(again.world_size(), job.world_size());
  ASSERT_EQ(again.ranks[0].line.collectives.size(), job.ranks[0].line.collectives.size());
  for (std::size_t c = 0; c < job.ranks[0].line.collectives.size(); ++c) {
    EXPECT_EQ(again.ranks[0].line.collectives[c].kind, job.ranks[0].line.collectives[c].kind);
    EXPECT_EQ(again.ranks[0].line.collectives[c].bytes, job.ranks[0].line.collectives[c].bytes);
  }
  const Diagnosis first = diagnose(job);
  const Diagnosis second = diagnose(again);
  ASSERT_EQ(second.ranks[0].recorded.size(), first.ranks[0].recorded.size());
  for (std::size_t s = 0; s < first.ranks[0].recorded.size(); ++s) {
    EXPECT_EQ(second.ranks[0].recorded[s].figures, first.ranks[0].recorded[s].figures);
  }
  ASSERT_EQ(second.findings.size(), first.findings.size());
  for (std::size_t f = 0; f < first.findings.size(); ++f) {
    EXPECT_EQ(second.findings[f].kind, first.findings[f].kind);
    EXPECT_EQ(second.findings[f].amount, first.findings[f].amount);
  }
  ASSERT_EQ(second.buckets.has_value(), first.buckets.has_value());
}

INSTANTIATE_TEST_SUITE_P(Steps, ToldTwiceTest,
                         ::testing::Values("ddp-resnet50-a100x2-rank0.json.gz",
                                           "h100/ddp-rank0.json.gz"));

}  // namespace
}  // namespace dovetail::diagnose

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

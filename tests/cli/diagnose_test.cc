// dovetail diagnose and import kineto, as a person would use them.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/json_reader.h"
#include "tests/cli/asked.h"
#include "tests/recordings/kineto/made_trace.h"
#include "tests/support/perfetto_rules.h"

namespace dovetail::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kTraces = std::string(DOVETAIL_SOURCE_DIR) + "/tests/recordings/kineto/traces/";
// A file of this process alone.
std::string own_file(const std::string& name) {
  return ::testing::TempDir() + "diagnose_test." + std::to_string(::getpid()) + "." + name;
}

// The two buckets of the corpus, with a host that synchronises when everything is done: it never waits for the GPU.
struct SmallTrace {
  SmallTrace() {
    std::string text =
        read_file(std::string(DOVETAIL_SOURCE_DIR) + "/tests/fuzz/corpus/kineto/two_buckets.json");
    const std::string sync = R"("ts":120,"dur":39)";
    write_file(path, text.replace(text.find(sync), sync.size(), R"("ts":160,"dur":1)"));
  }
  ~SmallTrace() { std::filesystem::remove(path); }
  SmallTrace(const SmallTrace&) = delete;
  SmallTrace& operator=(const SmallTrace&) = delete;
  std::string path = own_file("two_buckets.json");
};
const std::string& small_trace() {
  static const SmallTrace kTrace;
  return kTrace.path;
}

TEST(DiagnoseTest, TheSentenceThatMattersComesFirst) {
  const Ended ended = ask("diagnose " + kTraces + "dlrm-v100x8/rank0.json.gz");
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output,
              HasSubstr("\n\n5.54 ms of 14.5 ms is exposed communication: host 2.81 ms, "));
}

// Two gradients of 4000 and 2000 bytes in a bucket each: every default makes one bucket of them.
TEST(DiagnoseTest, EveryFrameworkHasItsOwnOptionsFlatRangeLineAndLosses) {
  struct Expected {
    const char* framework;
    const char* row;
    const char* line;
    const char* lost;
  };
  for (const Expected& expected : {
           Expected{"fsdp", "fully_shard lists of 1 MiB",
                    "paste: for modules in groups: fully_shard(modules)",
                    "not replayed: groups are of whole modules"},
           Expected{"megatron", "--ddp-bucket-size 262144", "paste: --overlap-grad-reduce\n",
                    "not replayed: buckets follow the reverse of the order"},
           Expected{"deepspeed", "\"reduce_bucket_size\": 500000000  (default)",
                    "\"overlap_comm\": true",
                    "given up: several reductions in flight: DeepSpeed has one"},
           Expected{"horovod", "HOROVOD_FUSION_THRESHOLD=134217728 HOROVOD_CYCLE_TIME=1  (default)",
                    "HOROVOD", "not replayed: a bucket is launched at the next cycle"},
           Expected{"xla", "--xla_gpu_all_reduce_combine_threshold_bytes=31457287  (default)",
                    "xla", "not replayed: when a collective starts"},
       }) {
    const Ended ended = ask("diagnose " + small_trace() + " --framework " + expected.framework);
    EXPECT_EQ(ended.code, 0) << ended.output;
    EXPECT_THAT(ended.output, AllOf(HasSubstr(expected.row), HasSubstr("\nflat range (within "),
                                    HasSubstr(expected.line), HasSubstr(expected.lost)));
  }
}

TEST(DiagnoseTest, JsonAndPerfettoAreWellFormed) {
  const std::string trace = own_file("perfetto.json");
  const Ended ended = ask("diagnose " + small_trace() + " --json --trace " + trace);
  EXPECT_EQ(ended.code, 0) << ended.output;
  const JsonFile report("report", ended.output);
  EXPECT_EQ(report.root().string("schema"), "dovetail.diagnosis/1");
  const nlohmann::json perfetto = nlohmann::json::parse(read_file(trace));
  EXPECT_THAT(PerfettoRules::problems(perfetto), ::testing::IsEmpty());
  EXPECT_GT(perfetto.at("traceEvents").size(), 20U);
  EXPECT_THAT(read_file(trace), HasSubstr("\"name\":\"exposed communication of the step\""));
  std::filesystem::remove(trace);
}

// Twelve ranks of one step each: tables have rows of eight, what a change gives has one, the JSON has all.
TEST(DiagnoseTest, OfManyRanksThoseWithMostExposedCommunicationAreShown) {
  std::string files;
  std::vector<std::string> written;
  for (int rank = 0; rank < 12; ++rank) {
    std::string text = read_file(small_trace());
    const std::string place = R"("rank": 0, "world_size": 2)";
    text.replace(text.find(place), place.size(),
                 R"("rank": )" + std::to_string(rank) + R"(, "world_size": 12)");
    const std::string file = own_file("rank" + std::to_string(rank) + ".json");
    write_file(file, text);
    files += ' ' + file;
    written.push_back(file);
  }
  const Ended ended = ask("diagnose" + files);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("(measured, ms), 8 of 12 ranks: most exposed communication"));
  const auto rows_of = [](const std::string& output) {
    std::size_t rows = 0;
    for (std::size_t at = 0;
         (at = output.find(" a network that takes no time", at)) != std::string::npos; ++at) {
      ++rows;
    }
    return rows;
  };
  EXPECT_EQ(rows_of(ended.output), 1U);  // on the rank where it gives most
  EXPECT_EQ(rows_of(ask("diagnose --all" + files).output), 12U);
  const Ended all = ask("diagnose --json" + files);
  EXPECT_EQ(nlohmann::json::parse(all.output).at("ranks").size(), 12U);
  for (const std::string& file : written) std::filesystem::remove(file);
}

// 8 MiB in 3 ms over 8 ranks is 4.9 GB/s: an A100's node has more than twice that, and the first lines say so.
TEST(DiagnoseTest, ABusFarBelowTheShippedMachinesIsSaid) {
  const Ended ended = ask("diagnose " + kTraces + "reported/weights-to-host.json.gz");
  EXPECT_THAT(ended.output,
              HasSubstr("all-reduce of 8 MiB moves 4.9 GB/s over 8 ranks, where a100x8"));
  EXPECT_THAT(ended.output, HasSubstr("collectives by themselves"));
}

// Twelve steps alike are one line, unless all are asked for.
TEST(DiagnoseTest, ManyStepsAreTheirMedianAndTheOddOnes) {
  const std::string path = own_file("many_steps.json");
  write_file(path, testing::text({.steps = 12}));
  const Ended folded = ask("diagnose " + path);
  const Ended all = ask("diagnose " + path + " --all");
  std::filesystem::remove(path);
  EXPECT_THAT(folded.output, AllOf(HasSubstr("0 median of 12"), HasSubstr("--all"),
                                   Not(HasSubstr("0 ProfilerStep#14 "))));
  EXPECT_THAT(all.output, HasSubstr("0 ProfilerStep#14 "));
}

TEST(DiagnoseTest, AnImportedTraceCanBePlanned) {
  const std::string step = own_file("step.json");
  const Ended imported = ask("import kineto " + small_trace() + " -o " + step);
  EXPECT_EQ(imported.code, 0) << imported.output;
  EXPECT_THAT(imported.output, HasSubstr("2 gradients"));
  const Ended explored =
      ask("explore --workload " + step + " --policies exact,torch-ddp:cap=1MiB,first=1MiB");
  EXPECT_EQ(explored.code, 0) << explored.output;
  std::filesystem::remove(step);
}

TEST(DiagnoseTest, WhatIsNoTraceIsRefusedInOneLine) {
  for (const char* const arguments :
       {"diagnose /no/such.json", "diagnose README.md", "diagnose --framework touch x.json"}) {
    const Ended ended = ask(arguments);
    EXPECT_EQ(ended.code, 2) << arguments;
    EXPECT_EQ(std::count(ended.output.begin(), ended.output.end(), '\n'), 1) << ended.output;
  }
}

// No figure of what was not measured; "1 rank of 1" where nobody says so.
TEST(DiagnoseTest, WithoutReadableGpuWorkThereAreNoRowsOfZeros) {
  const std::string path = own_file("mtia.json");
  write_file(path, R"([{"ph":"X","cat":"mtia_ccp_events","name":"k","ts":1,"dur":1,"pid":0,"tid":7},
                       {"ph":"X","cat":"cpu_op","name":"aten::mm","ts":1,"dur":9,"pid":0,"tid":1}])");
  const Ended ended = ask("diagnose " + path);
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(
      ended.output,
      AllOf(::testing::StartsWith("1 rank; world size unknown, dovetail "),
            HasSubstr("\n\nno GPU work that can be read: the 1 events of category mtia_ccp"),
            Not(HasSubstr("measured")), Not(HasSubstr("0.000"))));
  const nlohmann::json report = nlohmann::json::parse(ask("diagnose --json " + path).output);
  EXPECT_TRUE(report.at("world_size").is_null());
  const nlohmann::json& rank = report.at("ranks").at(0);
  EXPECT_TRUE(rank.at("steps").empty());
  for (const char* const key : {"replay", "contention", "host"})
    EXPECT_TRUE(rank.at(key).is_null());
  const Ended refused = ask("import kineto " + path);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.output, HasSubstr("no GPU work that can be read"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace dovetail::testing

// dovetail diagnose and import kineto, as a person would use them.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "base/json_reader.h"
#include "tests/cli/tool.h"

namespace dovetail::testing {
namespace {

using ::testing::HasSubstr;

const std::string kTraces = std::string(DOVETAIL_SOURCE_DIR) + "/tests/imports/kineto/traces/";
const std::string kSmall =
    std::string(DOVETAIL_SOURCE_DIR) + "/tests/fuzz/corpus/kineto/two_buckets.json";

TEST(DiagnoseTest, TheSentenceThatMattersComesFirst) {
  const Ended ended = run_tool("diagnose " + kTraces + "ddp-resnet50-a100x2-rank0.json.gz");
  EXPECT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("\n\nhost-bound: no bucket size will help; the GPU waits "));
  EXPECT_THAT(ended.output, HasSubstr("those of bucket_cap_mb=None"));
}

TEST(DiagnoseTest, JsonAndPerfettoAreWellFormed) {
  const std::string trace = ::testing::TempDir() + "diagnose_test.perfetto.json";
  const Ended ended = run_tool("diagnose " + kSmall + " --json --trace " + trace);
  EXPECT_EQ(ended.code, 0) << ended.output;
  const JsonFile report("report", ended.output);
  EXPECT_EQ(report.root().string("schema"), "dovetail.diagnosis/1");
  const JsonFile perfetto(trace);
  EXPECT_GT(perfetto.root().array("traceEvents").size(), 20U);
  std::filesystem::remove(trace);
}

TEST(DiagnoseTest, AnImportedTraceCanBePlanned) {
  const std::string step = ::testing::TempDir() + "diagnose_test.step.json";
  const Ended imported = run_tool("import kineto " + kSmall + " -o " + step);
  EXPECT_EQ(imported.code, 0) << imported.output;
  EXPECT_THAT(imported.output, HasSubstr("2 gradients"));
  const Ended explored =
      run_tool("explore --workload " + step + " --policies exact,torch-ddp:cap=1MiB,first=1MiB");
  EXPECT_EQ(explored.code, 0) << explored.output;
  std::filesystem::remove(step);
}

TEST(DiagnoseTest, WhatIsNoTraceIsRefusedInOneLine) {
  for (const char* const arguments :
       {"diagnose /no/such.json", "diagnose README.md", "diagnose --framework touch x.json"}) {
    const Ended ended = run_tool(arguments);
    EXPECT_EQ(ended.code, 2) << arguments;
    EXPECT_EQ(std::count(ended.output.begin(), ended.output.end(), '\n'), 1) << ended.output;
  }
}

}  // namespace
}  // namespace dovetail::testing

// The table of formats, and who has to name each of them.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/formats.h"

#include "base/file.h"
#include "recordings/guess.h"
#include "recordings/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace dovetail::imports {
namespace {

using ::testing::UnorderedElementsAreArray;

// Rows of its table begin with the word: "| `nsys` | Nsight Systems' SQLite export ...".
TEST(FormatsTest, AreEachARowOfDocsImport) {
  const std::string text = read_file(std::string(DOVETAIL_SOURCE_DIR) + "/docs/import.md");
  std::vector<std::string> rows;
  for_each_line(text, [&rows](std::string_view line, std::size_t) {
    if (line.starts_with("| `")) rows.emplace_back(line.substr(3, line.find('`', 3) - 3));
  });
  const auto known = words_of(Format{});
  EXPECT_THAT(rows, UnorderedElementsAreArray(known.begin(), known.end()));
}

// A log of nccl-tests with NCCL's own lines is still one; a profiler's trace names process groups, and kernels anyhow.
TEST(FormatsTest, OfAFileWithMarksOfSeveralTheRowsDecide) {
  const std::string row = "# nThread 1 nGpus 1";
  const std::string line = "node0:1:2 [0] NCCL INFO Using network Socket";
  EXPECT_EQ(guess_format(line), Format::NcclLog);
  EXPECT_EQ(guess_format(line + "\n" + row), Format::NcclTests);
  const std::string groups = R"("pg_config": [{"name": "HloModule algbw"}])";
  EXPECT_EQ(guess_format("{" + groups + "}"), Format::FlightRecorder);
  EXPECT_EQ(guess_format("{" + groups + R"(, "traceEvents": []})"), Format::Kineto);
  EXPECT_EQ(guess_format("SQLite format 3 traceEvents"), Format::Nsys);
  EXPECT_EQ(guess_format("a copy of SQLite format 3"), std::nullopt);
  EXPECT_EQ(guess_format(""), std::nullopt);
}

TEST(FormatsTest, SayWhatImportsAFileAndWithWhatBesides) {
  EXPECT_EQ(import_command(Format::Chakra, "s.et"), "dovetail import chakra s.et --ranks N");
  EXPECT_EQ(import_to_file(Format::Hlo, "m.txt"), "dovetail import hlo m.txt -o step.json");
  EXPECT_EQ(import_to_file(Format::NcclLog, "n.log"),
            "dovetail import nccl-log n.log -o cluster.json");
  EXPECT_TRUE(is_recording(Format::Kineto));
  EXPECT_FALSE(is_recording(Format::NcclTests));
}

}  // namespace
}  // namespace dovetail::imports

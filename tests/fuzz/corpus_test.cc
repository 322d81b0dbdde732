// Every file of the kept corpus through its reader, whole and cut off at every 97th byte: each is read or
// refused with an InputError of one line, never anything else.
//
// The corpus holds seeds, and every input that once broke a reader. Longer runs: fuzz_readers.cc.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "base/file.h"
#include "tests/fuzz/readers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace dovetail {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> files_of(std::string_view reader) {
  std::vector<std::string> files;
  const fs::path folder = fs::path(DOVETAIL_SOURCE_DIR) / "tests/fuzz/corpus" / reader;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path().string());
  std::ranges::sort(files);
  return files;
}

class CorpusTest : public ::testing::TestWithParam<FuzzedReader> {};

TEST_P(CorpusTest, ReadsOrRefusesEveryFileWholeAndCutOff) {
  const std::vector<std::string> files = files_of(GetParam().name);
  ASSERT_FALSE(files.empty());
  std::size_t accepted = 0;
  for (const std::string& file : files) {
    const std::string text = read_file(file);
    for (std::size_t size = text.size();; size -= std::min<std::size_t>(size, 97)) {
      SCOPED_TRACE(file + ", the first " + std::to_string(size) + " bytes");
      try {
        GetParam().read(std::string_view(text).substr(0, size));
        ++accepted;
      } catch (const InputError& error) {
        EXPECT_EQ(std::count(error.what(), error.what() + std::string(error.what()).size(), '\n'),
                  0)
            << error.what();
      }
      if (size == 0) break;
    }
  }
  EXPECT_GT(accepted, 0u);  // at least one seed is a good file
}

INSTANTIATE_TEST_SUITE_P(Readers, CorpusTest,
                         ::testing::ValuesIn(fuzzed_readers().begin(), fuzzed_readers().end()),
                         [](const auto& reader) {
                           std::string name(reader.param.name);
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace dovetail

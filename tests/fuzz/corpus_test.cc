// Every file of the kept corpus through its reader, whole, cut off at every 97th byte (under a sanitizer every 388th) and with some of its
// tokens changed: each is read or refused with an InputError of one line, never anything else.
//
// The corpus holds seeds, and every input that once broke a reader. Longer runs: fuzz_readers.cc.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "base/file.h"
#include "recordings/formats.h"
#include "recordings/guess.h"
#include "tests/fuzz/readers.h"
#include "tests/fuzz/token_mutator.h"
#include "tests/support/cases.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace dovetail {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains;
using ::testing::Field;

constexpr std::size_t kCut = 97 * (testing::kHasSanitizer ? 4 : 1);
constexpr std::size_t kMostCuts = 256 / (testing::kHasSanitizer ? 4 : 1);  // of a file

std::vector<std::string> files_of(std::string_view reader) {
  std::vector<std::string> files;
  const fs::path folder = fs::path(DOVETAIL_SOURCE_DIR) / "tests/fuzz/corpus" / reader;
  for (const auto& entry : fs::directory_iterator(folder)) files.push_back(entry.path().string());
  std::ranges::sort(files);
  return files;
}

// 1: read. 0: refused, as it should be. The text lies alone in its memory, without a 0 behind it: a sanitizer does not see
// who reads beyond the end of a part of a larger text.
std::size_t reads(const FuzzedReader& reader, std::string_view text) {
  const auto alone = std::make_unique<char[]>(text.size());
  std::ranges::copy(text, alone.get());
  try {
    reader.read(std::string_view(alone.get(), text.size()));
    return 1;
  } catch (const InputError& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return 0;
  }
}

// How many are read of every second cut of each file, from the whole text (0) or from the first cut (1) on.
std::size_t reads_cut_off(const FuzzedReader& reader, std::size_t from) {
  std::size_t accepted = 0;
  for (const std::string& file : files_of(reader.name)) {
    const std::string text = read_file(file);
    const std::size_t cut = std::max(kCut, text.size() / kMostCuts);
    for (std::size_t off = from * cut; off < text.size() + cut; off += 2 * cut) {
      const std::size_t size = text.size() - std::min(text.size(), off);
      SCOPED_TRACE(file + ", the first " + std::to_string(size) + " bytes");
      accepted += reads(reader, std::string_view(text).substr(0, size));
    }
  }
  return accepted;
}

class CorpusTest : public ::testing::TestWithParam<FuzzedReader> {};

TEST_P(CorpusTest, ReadsOrRefusesEveryFileWholeAndCutOff) {
  EXPECT_GT(reads_cut_off(GetParam(), 0), 0u);  // at least one seed is a good file
}

TEST_P(CorpusTest, ReadsOrRefusesEveryFileCutOffInBetween) { reads_cut_off(GetParam(), 1); }

TEST_P(CorpusTest, ReadsOrRefusesEveryFileWithOtherTokens) {
  constexpr auto kSeeds = testing::few_cases<std::uint64_t>(100);
  // A trace that is read is diagnosed, too, with a search over its buckets: that takes ten times as long as to read it.
  const std::uint64_t seeds =
      GetParam().name == to_string(imports::Format::Kineto) ? kSeeds / 3 : kSeeds;
  std::size_t accepted = 0;
  std::size_t changed = 0;
  for (const std::string& file : files_of(GetParam().name)) {
    const std::string text = read_file(file);
    for (std::uint64_t seed = 0; seed < seeds; ++seed) {
      SCOPED_TRACE(file + ", tokens changed with seed " + std::to_string(seed));
      const std::string other = mutate_tokens(text, seed);
      changed += other == text ? 0 : 1;
      accepted += reads(GetParam(), other);
    }
  }
  EXPECT_GT(changed, seeds / 2);
  EXPECT_GT(accepted, 0u);  // not every change is seen by the parser
}

INSTANTIATE_TEST_SUITE_P(Readers, CorpusTest,
                         ::testing::ValuesIn(fuzzed_readers().begin(), fuzzed_readers().end()),
                         [](const auto& reader) {
                           std::string name(reader.param.name);
                           std::erase(name, '-');
                           return name;
                         });

// What dovetail import takes is fuzzed, all of it.
TEST(FuzzedReadersTest, ReadEveryFormatOfImport) {
  for (const imports::Format format : kAllOf<imports::Format>) {
#ifndef DOVETAIL_SQLITE
    if (format == imports::Format::Nsys) continue;  // no reader in this build
#endif
    EXPECT_THAT(fuzzed_readers(), Contains(Field(&FuzzedReader::name, to_string(format))));
  }
}

// The kept files of a format are told to be of it, or of none: some are cut off, and Chakra's protobuf has no mark.
TEST(FuzzedReadersTest, HaveFilesThatAreKnownByTheirMarks) {
  for (const imports::Format format : kAllOf<imports::Format>) {
    std::size_t known = 0;
    for (const std::string& file : files_of(to_string(format))) {
      const auto guessed = imports::guess_format_of_file(file);
      EXPECT_EQ(guessed.value_or(format), format) << file;
      known += guessed ? 1 : 0;
    }
    EXPECT_GT(known, 0u) << to_string(format);
  }
}

}  // namespace
}  // namespace dovetail

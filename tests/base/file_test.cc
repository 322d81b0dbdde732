// Files: read whole, written whole or not at all.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>

namespace dovetail {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  FileTest()
      : folder_(fs::path(::testing::TempDir()) /
                ("dovetail_file_test." + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const {
    return (folder_ / name).string();
  }
  [[nodiscard]] std::ptrdiff_t entries() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }
  static std::string failure_to_write(const std::string& path) {
    try {
      write_file(path, "content");
    } catch (const InputError& error) {
      return error.what();
    }
    return "written";
  }

 private:
  fs::path folder_;
};

TEST_F(FileTest, WhatWasWrittenIsReadBack) {
  std::string content(300'000, 'x');
  content[70'000] = '\0';
  content += "end\n";
  write_file(path("a"), content);
  EXPECT_EQ(read_file(path("a")), content);
  write_file(path("empty"), "");
  EXPECT_EQ(read_file(path("empty")), "");
}

TEST_F(FileTest, ReplacesAFileAsAWholeAndLeavesNoTemporary) {
  write_file(path("a"), "a long first content");
  fs::create_hard_link(path("a"), path("old"));
  write_file(path("a"), "short");
  EXPECT_EQ(read_file(path("a")), "short");
  // The old file was replaced, not overwritten in place: its other name still has all of it.
  EXPECT_EQ(read_file(path("old")), "a long first content");
  EXPECT_EQ(entries(), 2);
}

TEST_F(FileTest, LeavesNothingBehindWhereTheFolderIsMissing) {
  EXPECT_EQ(failure_to_write(path("missing/a")),
            path("missing/a") + ": cannot be written: No such file or directory");
  EXPECT_EQ(entries(), 0);
}

TEST_F(FileTest, LeavesNothingBehindWhereTheTargetIsAFolder) {
  fs::create_directory(path("folder"));
  EXPECT_EQ(failure_to_write(path("folder")),
            path("folder") + ": cannot be written: Is a directory");
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, ReadingNamesThePathAndTheReason) {
  try {
    static_cast<void>(read_file(path("absent")));
    FAIL() << "read a file that does not exist";
  } catch (const InputError& error) {
    EXPECT_EQ(error.what(), path("absent") + ": cannot be read: No such file or directory");
  }
  EXPECT_THROW(static_cast<void>(read_file(path(""))), InputError);
}

}  // namespace
}  // namespace dovetail

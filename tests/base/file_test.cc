// Files: read whole, written whole or not at all.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include "base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

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

TEST_F(FileTest, ReadsNoMoreThanTheLargestFile) {
  write_file(path("a"), "12345");
  EXPECT_EQ(read_file(path("a"), 5), "12345");
  try {
    read_file(path("a"), 4);
    FAIL() << "read";
  } catch (const InputError& error) {
    EXPECT_EQ(error.what(), path("a") + ": cannot be read: it holds more than 4 bytes");
  }
  // A file without an end.
  EXPECT_THROW(read_file("/dev/zero", 1 << 20), InputError);
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

TEST_F(FileTest, ALinkStaysAndItsTargetIsReplaced) {
  fs::create_directory(path("store"));
  write_file(path("store/plan"), "old");
  fs::create_symlink("store/plan", path("near"));
  fs::create_symlink(path("near"), path("far"));
  write_file(path("far"), "new");
  EXPECT_EQ(read_file(path("store/plan")), "new");
  EXPECT_TRUE(fs::is_symlink(path("near")));
  EXPECT_TRUE(fs::is_symlink(path("far")));
  EXPECT_EQ(entries(), 3);
}

TEST_F(FileTest, ALinkToNothingMakesItsTarget) {
  fs::create_symlink("absent", path("link"));
  write_file(path("link"), "content");
  EXPECT_EQ(read_file(path("absent")), "content");
  EXPECT_TRUE(fs::is_symlink(path("link")));
  fs::create_symlink("circle", path("circle"));
  EXPECT_EQ(failure_to_write(path("circle")),
            path("circle") + ": cannot be written: Too many levels of symbolic links");
}

TEST_F(FileTest, DevicesAreWrittenInPlace) {
  fs::create_symlink("/dev/null", path("null"));
  write_file(path("null"), "content");
  EXPECT_TRUE(fs::is_character_file(path("null")));
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(failure_to_write("/dev/full"), "/dev/full: cannot be written: No space left on device");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_EQ(entries(), 1);
}

TEST_F(FileTest, APipeIsWrittenThrough) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  require_writable(path("pipe"));  // waits for no reader
  std::string received;
  std::thread reader([&] { received = read_file(path("pipe")); });
  write_file(path("pipe"), "content");
  reader.join();
  EXPECT_EQ(received, "content");
  EXPECT_TRUE(fs::is_fifo(path("pipe")));
}

TEST_F(FileTest, SeveralFilesAreReplacedOnlyOnceAllAreWritten) {
  write_file(path("a"), "old");
  const std::vector<NewFile> none = {{path("a"), "new"}, {path("missing/b"), "new"}};
  EXPECT_THROW(write_files(none), InputError);
  EXPECT_EQ(read_file(path("a")), "old");
  if (fs::exists("/dev/full")) {
    const std::vector<NewFile> full = {{path("a"), "new"}, {"/dev/full", "new"}};
    EXPECT_THROW(write_files(full), InputError);
    EXPECT_EQ(read_file(path("a")), "old");
  }
  EXPECT_EQ(entries(), 1);
  const std::vector<NewFile> both = {{path("a"), "new"}, {path("b"), "too"}};
  write_files(both);
  EXPECT_EQ(read_file(path("a")) + read_file(path("b")), "newtoo");
  EXPECT_EQ(entries(), 2);
}

TEST_F(FileTest, WhatCanBeWrittenIsKnownBefore) {
  require_writable(path("a"));
  EXPECT_EQ(entries(), 0);
  EXPECT_THROW(require_writable(path("missing/a")), InputError);
  EXPECT_THROW(require_writable(path("")), InputError);
}

TEST_F(FileTest, OneFileIsKnownByAnyOfItsNames) {
  write_file(path("a"), "content");
  write_file(path("b"), "content");
  fs::create_hard_link(path("a"), path("hard"));
  fs::create_symlink("a", path("soft"));
  fs::create_symlink("later", path("dangling"));
  EXPECT_TRUE(is_same_file(path("a"), path("./a")));
  EXPECT_TRUE(is_same_file(path("a"), path("hard")));
  EXPECT_TRUE(is_same_file(path("soft"), path("hard")));
  EXPECT_FALSE(is_same_file(path("a"), path("b")));
  EXPECT_FALSE(is_same_file(path("a"), path("later")));
  EXPECT_TRUE(is_same_file(path("later"), path("./later")));
  EXPECT_TRUE(is_same_file(path("later"), path("dangling")));
  EXPECT_FALSE(is_same_file(path("later"), path("never")));
  EXPECT_FALSE(is_same_file("/dev/null", "/dev/null"));
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

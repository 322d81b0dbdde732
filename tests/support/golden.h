// Compares a text with a file under tests/golden, to the byte.
//
//   EXPECT_TRUE(matches_golden("traces/timeline.txt", timeline(trace)));
//
// A difference names the first line that differs. With DOVETAIL_UPDATE_GOLDEN set in the
// environment the file is written instead; review it line by line.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

namespace dovetail {

inline std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

inline ::testing::AssertionResult matches_golden(const std::string& name, std::string_view text) {
  const std::string path = std::string(DOVETAIL_SOURCE_DIR) + "/tests/golden/" + name;
  if (std::getenv("DOVETAIL_UPDATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_file(path, text);
  }
  const std::string golden = read_file(path);
  if (golden == text) return ::testing::AssertionSuccess();
  std::string_view expected = golden;
  std::string_view found = text;
  int line = 1;
  while (!expected.empty() && !found.empty()) {
    const std::string_view a = take_line(expected);
    const std::string_view b = take_line(found);
    if (a != b) {
      return ::testing::AssertionFailure() << name << ":" << line << ": expected\n"
                                           << a << "\nfound\n"
                                           << b << "\n";
    }
    ++line;
  }
  return ::testing::AssertionFailure() << name << ":" << line << ": one text ends before the other";
}

}  // namespace dovetail

// scripts/checks/check_rules.py finds a rule without tests, a test that does not exist, and a missing row.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "tests/base/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace dovetail {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Said;
using testing::said_by;

class CheckRulesTest : public ::testing::Test {
 protected:
  CheckRulesTest()
      : root_(fs::path(::testing::TempDir()) /
              ("dovetail_check_rules." + std::to_string(::getpid()))) {
    fs::create_directories(root_ / "tests");
    fs::create_directories(root_ / "docs");
    write_file((root_ / "tests/some_test.cc").string(), "TEST(SomeTest, P1IsShown) {\n}\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  // What the script says about a document of these rows. Most rules miss, so it must fail. The count
  // on its other stream is left out: it could stand anywhere between.
  [[nodiscard]] std::string violations(const std::string& rows) const {
    write_file((root_ / "docs/source-systems.md").string(), rows);
    const Said said = said_by("checks/check_rules.py --root " + root_.string() + " 2>/dev/null");
    EXPECT_EQ(said.exit_status, 1) << said.text;
    return said.text;
  }

 private:
  fs::path root_;
};

TEST_F(CheckRulesTest, ARuleWithATestThatExistsIsFine) {
  const std::string found =
      violations("| P1 | gate | improved: says why | `SomeTest.P1IsShown` |\n");
  EXPECT_THAT(found, Not(HasSubstr("P1:")));
  EXPECT_THAT(found, HasSubstr("docs/source-systems.md:1: P2: has no row"));
  EXPECT_THAT(found, HasSubstr("per-event-at-first-use: has no row"));
}

TEST_F(CheckRulesTest, ATestThatDoesNotExistIsFound) {
  EXPECT_THAT(violations("| P1 | gate | improved | `SomeTest.P1IsShownTwice` |\n"),
              HasSubstr("docs/source-systems.md:1: P1: no test SomeTest.P1IsShownTwice in tests/"));
}

TEST_F(CheckRulesTest, OnlyWhatIsLeftOutNeedsNoTest) {
  const std::string found = violations(
      "| P1 | gate | improved | |\n"
      "| P2 | inputs | left out: not needed | |\n"
      "| P3 | purpose | done | `SomeTest.P1IsShown` |\n");
  EXPECT_THAT(found, HasSubstr("P1: names no test"));
  EXPECT_THAT(found, Not(HasSubstr("P2:")));
  EXPECT_THAT(found, HasSubstr("P3: says none of: as the source, improved, refused, left out"));
}

TEST_F(CheckRulesTest, RowsThatAreNoRulesOrStandTwiceAreFound) {
  const std::string row = "gate | improved | `SomeTest.P1IsShown` |\n";
  const std::string found = violations("| P1 | " + row + "| P1 | " + row + "| P99 | " + row);
  EXPECT_THAT(found, HasSubstr(":2: P1: stands in line 1 already"));
  EXPECT_THAT(found, HasSubstr(":3: P99: no such rule"));
}

}  // namespace
}  // namespace dovetail

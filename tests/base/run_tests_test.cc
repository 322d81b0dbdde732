// scripts/checks/run_tests.py counts every test of a batch by itself: a program that prints as GoogleTest does stands
// for the tests of a build folder, and does what the names of its tests say.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "tests/cli/tool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

namespace dovetail {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Its last argument is the filter. "Both" ends badly only where two such tests run in one process.
constexpr const char* kProgram = R"sh(#!/bin/sh
both=0
for argument; do filter=${argument#--gtest_filter=}; done
for name in $(echo "$filter" | tr : ' '); do
  echo "left unended[ RUN      ] $name"
  case $name in
    *.Fails*) echo "expected 1, found 2"; echo "[  FAILED  ] $name, where GetParam() = 4 (1 ms)"; status=1 ;;
    *.Skipped*) echo "a.cc:1: Skipped"; echo "no such device"; echo "[  SKIPPED ] $name (0 ms)" ;;
    *.Crashes*) kill -KILL $$ ;;
    *.Hangs*) sleep 1000 ;;
    *.TakesLong*) echo "[       OK ] $name (31000 ms)" ;;
    *.Leaks*) echo "[       OK ] $name (1 ms)"; status=23 ;;
    *.Both*) echo "[       OK ] $name (1 ms)"; both=$((both + 1)) ;;
    *) echo "[       OK ] $name (1 ms)" ;;
  esac
done
[ $both -gt 1 ] && status=23
echo "all were run"
exit ${status:-0}
)sh";

class RunTestsTest : public ::testing::Test {
 protected:
  RunTestsTest()
      : root_(fs::path(::testing::TempDir()) /
              ("dovetail_run_tests." + std::to_string(::getpid()))) {
    fs::create_directories(root_);
    write_file(program(), kProgram);
    fs::permissions(program(), fs::perms::owner_all);
  }
  void TearDown() override { fs::remove_all(root_); }

  // Runs these tests and forty that pass, so many that several share a process. What is said of those that do
  // not, and the counts.
  std::vector<std::string> run(std::vector<std::string> names) {
    for (int i = 0; i < 40; ++i) names.push_back("Suite.Passes" + std::to_string(i));
    std::ostringstream tests;
    for (const std::string& name : names) {
      const std::string started = name == "Suite.IsNotThere" ? "/no/such/program" : program();
      tests << "add_test(" << name << " " << started << " --gtest_filter=" << name << ")\n";
      const int limit = name == "Suite.Hangs" ? 1 : 300;
      tests << "set_tests_properties(" << name << " PROPERTIES TIMEOUT " << limit << ")\n";
    }
    write_file((root_ / "CTestTestfile.cmake").string(), tests.str());
    const auto ended =
        testing::run_command(std::string("python3 -I ") + DOVETAIL_SOURCE_DIR +
                             "/scripts/checks/run_tests.py -j 1 --longest 30 " + root_.string());
    code_ = ended.code;
    output_ = ended.output;
    std::vector<std::string> said;
    std::istringstream lines(ended.output);
    for (std::string line; std::getline(lines, line);) {
      if (const std::size_t name = line.find(" s  Suite."); name != std::string::npos) {
        line.erase(0, name + 4);
        if (line.find(": ") == std::string::npos) continue;
        said.push_back(line);
      }
      if (line.find(" passed, ") != std::string::npos) said.push_back(line);
    }
    return said;
  }

  [[nodiscard]] int code() const { return code_; }
  [[nodiscard]] const std::string& output() const { return output_; }

 private:
  [[nodiscard]] std::string program() const { return (root_ / "program").string(); }

  fs::path root_;
  int code_ = -1;
  std::string output_;
};

TEST_F(RunTestsTest, AFailureAndASkipAreTold) {
  EXPECT_THAT(run({"Suite.Fails", "Suite.Skipped"}),
              ElementsAre("Suite.Fails: FAILED", "Suite.Skipped: skipped: no such device",
                          "40 passed, 1 failed, 1 skipped"));
  EXPECT_EQ(code(), 1);
  EXPECT_THAT(output(), HasSubstr("expected 1, found 2"));
  EXPECT_THAT(output(), HasSubstr("-R '^Suite\\.Fails( |$)'"));
}

TEST_F(RunTestsTest, TheRestOfABatchGoesOnAfterACrash) {
  EXPECT_THAT(run({"Suite.PassesBefore", "Suite.Crashes"}),
              ElementsAre("Suite.Crashes: FAILED", "41 passed, 1 failed, 0 skipped"));
  EXPECT_THAT(output(), HasSubstr("(exit status -9)"));
}

TEST_F(RunTestsTest, TheRestOfABatchGoesOnAfterATestThatPassesItsLimit) {
  EXPECT_THAT(run({"Suite.PassesBefore", "Suite.Hangs"}),
              ElementsAre("Suite.Hangs: FAILED", "41 passed, 1 failed, 0 skipped"));
  EXPECT_THAT(output(), HasSubstr("(it ran past its limit)"));
}

TEST_F(RunTestsTest, ALeakThatShowsAtTheEndOfAProcessIsFound) {
  EXPECT_THAT(run({"Suite.PassesBefore", "Suite.Leaks"}),
              ElementsAre("Suite.Leaks: FAILED", "41 passed, 1 failed, 0 skipped"));
}

TEST_F(RunTestsTest, ABadEndThatNoTestHasAloneFailsTheBatch) {
  run({"Suite.Both1", "Suite.Both2"});
  EXPECT_THAT(output(), HasSubstr("41 passed, 1 failed, 0 skipped"));
  EXPECT_THAT(output(), HasSubstr("at the end of the whole of"));
  EXPECT_EQ(code(), 1);
}

TEST_F(RunTestsTest, ATestThatTakesTooLongAlsoAloneFails) {
  run({"Suite.TakesLong"});
  EXPECT_THAT(output(), HasSubstr("Suite.TakesLong took 31.0 s, alone 31.0 s: FAILED"));
  EXPECT_THAT(output(), HasSubstr("40 passed, 1 failed, 0 skipped"));
}

TEST_F(RunTestsTest, NothingIsRunWhereAProgramIsMissing) {
  EXPECT_THAT(run({"Suite.IsNotThere"}), ElementsAre());
  EXPECT_EQ(output(), "run_tests: Suite.IsNotThere has not been built\n");
  EXPECT_EQ(code(), 1);
}

TEST_F(RunTestsTest, NothingFailsWhereNothingDoes) {
  EXPECT_THAT(run({}), ElementsAre("40 passed, 0 failed, 0 skipped"));
  EXPECT_EQ(code(), 0);
}

}  // namespace
}  // namespace dovetail

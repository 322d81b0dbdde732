// scripts/unity_groups.py: which source files it compiles as one, and under which names.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "tests/base/script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

namespace dovetail {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::said_by;

class UnityGroupsTest : public ::testing::Test {
 protected:
  UnityGroupsTest()
      : root_(fs::path(::testing::TempDir()) /
              ("dovetail_unity_groups." + std::to_string(::getpid()))) {
    fs::create_directories(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  // A source file with this in its anonymous namespace, and this behind it.
  void given(const std::string& name, const std::string& hidden,
             const std::string& rest = "") const {
    write_file((root_ / name).string(), "#include <vector>\n\nnamespace a {\nnamespace {\n\n" +
                                            hidden + "\n}  // namespace\n" + rest +
                                            "}  // namespace a\n");
  }

  // How many groups a.cc and b.cc make.
  [[nodiscard]] long groups() const {
    const std::string in = root_.string();
    write_file(in + "/list", in + "/out;" + in + "/a.cc;" + in + "/b.cc\n");
    const auto [text, status] = said_by("unity_groups.py 20 " + in + "/list");
    EXPECT_EQ(status, 0);
    return 1 + std::count(text.begin(), text.end(), ';');
  }

  [[nodiscard]] std::string first_group() const {
    return read_file((root_ / "out/group0.cc").string());
  }

 private:
  fs::path root_;
};

TEST_F(UnityGroupsTest, APrivateNameThatTwoFilesHaveIsCalledOtherwiseInEach) {
  given("a.cc", "int half(int x) {\n  return x / 2;\n}\n");
  given("b.cc", "double half(double x) {\n  return x / 2;\n}\n");
  EXPECT_EQ(groups(), 1);
  EXPECT_THAT(first_group(), HasSubstr("#include <vector>\n#define half half_of_0\n"));
  EXPECT_THAT(first_group(), HasSubstr("#undef half\n#include <vector>\n#define half half_of_1\n"));
}

TEST_F(UnityGroupsTest, ANameThatNoOtherFileKnowsStaysAsItIs) {
  given("a.cc", "int half(int x) {\n  return x / 2;\n}\n");
  given("b.cc", "int third(int x) {\n  return x / 3;\n}\n");
  EXPECT_EQ(groups(), 1);
  EXPECT_THAT(first_group(), Not(HasSubstr("#define")));
}

// The macro would change the member, too.
TEST_F(UnityGroupsTest, ANameThatIsAlsoAMembersIsNeverCalledOtherwise) {
  const std::string use = "int twice(Job job) {\n  return job.size() + size(job);\n}\n";
  given("a.cc", "int size(Job job) {\n  return job.length;\n}\n", use);
  given("b.cc", "int size(int x) {\n  return x;\n}\n");
  EXPECT_EQ(groups(), 1) << "the other file's name is free";
  EXPECT_THAT(first_group(), Not(HasSubstr("size_of_0")));
  EXPECT_THAT(first_group(), HasSubstr("size_of_1"));
  given("b.cc", "int size(int x) {\n  return x;\n}\n", use);
  EXPECT_EQ(groups(), 2) << "now neither is";
}

// What is read under a condition cannot be read before.
TEST_F(UnityGroupsTest, AFileWithOtherDirectivesKeepsItsNames) {
  given("a.cc", "#ifdef A\n#include <map>\n#endif\nint half(int x) {\n  return x / 2;\n}\n");
  given("b.cc", "#define B 1\nint half(int x) {\n  return x / 2;\n}\n");
  EXPECT_EQ(groups(), 2);
}

// GoogleTest makes the test's name of it.
TEST_F(UnityGroupsTest, ATestsFixtureKeepsItsName) {
  given("a.cc", "class HalfTest : public Test {\n};\n\nTEST_F(HalfTest, Halves) {\n}\n");
  given("b.cc", "class HalfTest : public Test {\n};\n\nTEST_F(HalfTest, Doubles) {\n}\n");
  EXPECT_EQ(groups(), 2);
}

}  // namespace
}  // namespace dovetail

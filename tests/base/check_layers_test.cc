// scripts/checks/check_layers.py finds what it must: each test breaks one rule in a small tree.
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
using testing::said_by;

class CheckLayersTest : public ::testing::Test {
 protected:
  CheckLayersTest()
      : root_(fs::path(::testing::TempDir()) /
              ("dovetail_check_layers." + std::to_string(::getpid()))) {
    write("base/units.h", "");
    write("models/costs/costs.h", "#include \"base/units.h\"\n");
  }
  void TearDown() override { fs::remove_all(root_); }

  // A file with a proper beginning and this text; returns nothing.
  void write(const std::string& path, const std::string& text) const {
    const std::string pragma = path.ends_with(".h") ? "#pragma once\n" : "\n";
    write_raw(path, "// What this is.\n// SPDX-License-Identifier: Apache-2.0\n" + pragma + text);
  }
  void write_raw(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    write_file((root_ / path).string(), text);
  }

  // What the script prints for the tree; "ok" where it prints nothing, counts none and exits with 0.
  // Its count goes to another stream: which of both is flushed first is none of our business.
  [[nodiscard]] std::string violations() const {
    const std::string count = root_.string() + ".count";
    const auto [text, status] =
        said_by("checks/check_layers.py --root " + root_.string() + " 2>" + count);
    const std::string counted = read_file(count);
    fs::remove(count);
    const bool clean = counted.find(" 0 violations") != std::string::npos;
    EXPECT_EQ(text.empty(), clean) << text << counted;
    EXPECT_EQ(status, clean ? 0 : 1) << text << counted;
    return clean ? "ok" : text;
  }

 private:
  fs::path root_;
};

TEST_F(CheckLayersTest, AcceptsWhatTheTableAllows) {
  write("base/json.h", "#include <nlohmann/json.hpp>\n");
  write("schedule/program_json.cc", "#include \"base/json.h\"\n");
  write("schedule/program_json.h", "#include <nlohmann/json_fwd.hpp>\n");
  write("sim/simulate.cc", "#include \"models/costs/costs.h\"\n#include <vector>\n");
  write("cli/main.cc", "#include \"models/costs/costs.h\"\n#include <CLI/CLI.hpp>\n");
  write("tests/support/golden.h", "#include <gtest/gtest.h>\n");
  write("tests/base/a_test.cc", "using namespace std::chrono_literals;\n");
  write("tests/bench/sim_bench.cc", "#include \"tests/support/golden.h\"\n");
  write("exec/cpu/ring.cc", "#include <sys/socket.h>\n#include <Eigen/Core>\n");
  EXPECT_EQ(violations(), "ok");
}

TEST_F(CheckLayersTest, RefusesARoomThatIsNotAllowed) {
  write("exec/backend.h", "");
  write("sim/simulate.cc", "#include \"exec/backend.h\"\n");
  EXPECT_THAT(violations(), ::testing::StartsWith(
                                "sim/simulate.cc:4: sim may not include exec/backend.h (allowed: "
                                "base, models/clusters, models/costs, models/rates, "
                                "models/workloads, schedule, traces)\n"));
  write("sim/simulate.cc", "");
  write("base/error.cc", "#include \"models/costs/costs.h\"\n");
  EXPECT_THAT(violations(),
              ::testing::StartsWith("base/error.cc:4: base may not include models/costs/costs.h"));
}

TEST_F(CheckLayersTest, KeepsTheFoldersOfARoomApart) {
  write("exec/run.h", "");
  write("exec/cpu/ring.h", "#include \"exec/run.h\"\n");
  write("exec/cuda/backend.cc", "#include \"exec/cpu/ring.h\"\n");
  EXPECT_THAT(violations(),
              ::testing::StartsWith("exec/cuda/backend.cc:4: exec/cuda may not include "
                                    "exec/cpu/ring.h (allowed: "));
  write("exec/cuda/backend.cc", "");
  write("exec/rocm/backend.cc", "#include \"exec/run.h\"\n");
  EXPECT_THAT(violations(), ::testing::HasSubstr("exec/rocm has no rule"));
  write("exec/rocm/backend.cc", "");
  write("exec/cuda/backend.cc", "#include \"exec/run.h\"\n");
  EXPECT_EQ(violations(), "ok");
  write("schedule/lower/lower.h", "");
  write("schedule/verify/ops.cc", "#include \"schedule/lower/lower.h\"\n");
  EXPECT_THAT(violations(), ::testing::HasSubstr("verify may not include schedule/lower/lower.h"));
}

TEST_F(CheckLayersTest, RefusesTestCodeInTheProduct) {
  write("tests/support/golden.h", "");
  write("sim/simulate.cc", "#include \"tests/support/golden.h\"\n");
  EXPECT_THAT(violations(), ::testing::HasSubstr("sim may not include tests/support/golden.h"));
}

TEST_F(CheckLayersTest, RefusesCyclesBetweenFiles) {
  write("base/a.h", "#include \"base/b.h\"\n");
  write("base/b.h", "#include \"base/c.h\"\n");
  write("base/c.h", "#include \"base/a.h\"\n");
  EXPECT_THAT(
      violations(),
      ::testing::StartsWith("base/c.h:4: cycle: base/a.h -> base/b.h -> base/c.h -> base/a.h\n"));
}

TEST_F(CheckLayersTest, KeepsOutsideLibrariesBehindTheirDoor) {
  const auto refused = [&](const std::string& path, const std::string& header) {
    write(path, "#include <" + header + ">\n");
    EXPECT_THAT(violations(),
                ::testing::StartsWith(path + ":4: <" + header + "> may only be included in "));
    write(path, "");
  };
  write("base/json.h", "");
  write("schedule/program.cc", "#include \"base/json.h\"\n");
  EXPECT_THAT(violations(),
              ::testing::StartsWith("schedule/program.cc:4: base/json.h may only be included in "));
  write("schedule/program.cc", "");
  refused("schedule/program_json.cc", "nlohmann/json.hpp");
  refused("schedule/program_json.h", "nlohmann/json.hpp");
  refused("models/costs/costs.cc", "CLI/CLI.hpp");
  refused("sim/simulate.cc", "Eigen/Dense");
  refused("exec/run.cc", "sys/socket.h");
  refused("sim/simulate.cc", "cuda_runtime.h");
  refused("exec/run.cc", "gloo/context.h");
  refused("cli/main.cc", "gtest/gtest.h");
  refused("tests/base/units_test.cc", "benchmark/benchmark.h");
}

TEST_F(CheckLayersTest, AHeaderIsIncludedByItsPathAndExists) {
  write("base/a.cc", "#include \"units.h\"\n");
  EXPECT_THAT(violations(), ::testing::HasSubstr("base/a.cc:4: \"units.h\": our headers are"));
  write("base/a.cc", "#include \"base/unit.h\"\n");
  EXPECT_THAT(violations(), ::testing::HasSubstr("base/a.cc:4: base/unit.h does not exist"));
  write("base/a.cc", "#include <base/units.h>\n");
  EXPECT_THAT(violations(), ::testing::HasSubstr("base/a.cc:4: our own header base/units.h"));
}

TEST_F(CheckLayersTest, EveryFileBeginsWithItsCommentAndLicence) {
  write_raw("base/a.cc", "#include <vector>\n");
  EXPECT_THAT(violations(),
              ::testing::AllOf(::testing::HasSubstr("base/a.cc:1: the first line is"),
                               ::testing::HasSubstr("base/a.cc:1: no line says SPDX")));
  write_raw("base/a.cc", "");
  EXPECT_THAT(violations(), ::testing::HasSubstr("base/a.cc:1: the first line is"));
  write_raw("base/a.cc", "// A file.\n// SPDX-License-Identifier: Apache-2.0\n");
  write_raw("base/a.h", "// A file.\n// SPDX-License-Identifier: Apache-2.0\n");
  EXPECT_THAT(violations(), ::testing::StartsWith("base/a.h:1: a header says #pragma once\n"));
}

TEST_F(CheckLayersTest, RefusesUsingNamespaceAndUnfinishedWork) {
  write("base/a.cc", "using namespace std;\n");
  EXPECT_THAT(violations(), ::testing::StartsWith("base/a.cc:4: `using namespace`"));
  write("base/a.cc",
        "int x;  // TO"
        "DO later\n");
  EXPECT_THAT(violations(), ::testing::StartsWith("base/a.cc:4: unfinished work"));
}

TEST_F(CheckLayersTest, LeavesTheCatchOfWhatIsRefusedToOneHelper) {
  const std::string call = "void f() try { g(); } catch (const InputError&) {}\n";
  write("cli/front_door.cc", call);
  EXPECT_EQ(violations(), "ok");
  write("sim/simulate.cc", call);
  EXPECT_THAT(violations(), ::testing::StartsWith("sim/simulate.cc:4: an InputError is caught by "
                                                  "attempt (base/attempt.h)\n"));
}

TEST_F(CheckLayersTest, AnEmptyTreeIsNoSuccess) {
  fs::remove_all(fs::path(::testing::TempDir()) /
                 ("dovetail_check_layers." + std::to_string(::getpid())) / "base");
  fs::remove_all(fs::path(::testing::TempDir()) /
                 ("dovetail_check_layers." + std::to_string(::getpid())) / "models");
  EXPECT_THAT(violations(), ::testing::HasSubstr("no source files here"));
}

}  // namespace
}  // namespace dovetail

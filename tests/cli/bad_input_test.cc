// Bad input of every kind: exit code 2, one line that names the file, the JSON path and what was
// expected, nothing written.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/file.h"
#include "tests/cli/asked.h"

namespace dovetail {
namespace {

using dovetail::testing::Ended;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Ended dovetail(const std::string& arguments) { return dovetail::testing::ask(arguments); }

// A directory of its own for each test, removed at its end.
class BadInputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    directory_ =
        std::filesystem::temp_directory_path() /
        ("dovetail-bad-input-" + std::string(info->name()) + "-" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string write(const std::string& name, const std::string& content) {
    const std::string path = (directory_ / name).string();
    std::ofstream(path) << content;
    return path;
  }

  // A shipped file of models/ with one text replaced.
  std::string shipped_with(const std::string& file, const std::string& from,
                           const std::string& to) {
    std::string text = read_file(std::string(DOVETAIL_SOURCE_DIR) + "/models/" + file);
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return write(std::filesystem::path(file).filename().string(),
                 text.replace(at, from.size(), to));
  }
  std::string profile_with(const std::string& from, const std::string& to) {
    return shipped_with("workloads/mlp-1000mbit.json", from, to);
  }

  void expect_refused(const std::string& arguments, const std::string& what) {
    const Ended ended = dovetail(arguments);
    EXPECT_EQ(ended.code, 2) << ended.output;
    EXPECT_THAT(ended.output, StartsWith("dovetail: "));
    EXPECT_THAT(ended.output, HasSubstr(what));
    EXPECT_EQ(std::count(ended.output.begin(), ended.output.end(), '\n'), 1) << ended.output;
  }

  std::filesystem::path directory_;
};

TEST_F(BadInputTest, MissingFile) {
  expect_refused("explore --workload " + (directory_ / "absent.json").string(),
                 "absent.json: cannot be read: No such file or directory");
}

TEST_F(BadInputTest, WrongType) {
  const std::string path = profile_with("\"numel\": 100", "\"numel\": \"many\"");
  expect_refused(
      "explore --workload " + path,
      "/profile/gradients/0/numel: expected an integer from 1 to 1099511627776, found \"many\"");
}

TEST_F(BadInputTest, UnknownKey) {
  const std::string path = profile_with("\"world_size\"", "\"wrld_size\"");
  expect_refused("explore --workload " + path, "missing key \"world_size\"");
  const std::string other = profile_with("\"rank1\": {", "\"rank1\": {\"forwrd_us\": 1,");
  expect_refused("explore --workload " + other,
                 "/profile/rank1/forwrd_us: unknown key; did you mean \"forward_us\"?");
}

TEST_F(BadInputTest, NegativeSize) {
  const std::string path = profile_with("\"numel\": 51200", "\"numel\": -51200");
  expect_refused(
      "explore --workload " + path,
      "/profile/gradients/1/numel: expected an integer from 1 to 1099511627776, found -51200");
}

TEST_F(BadInputTest, TruncatedJson) {
  const std::string text =
      read_file(std::string(DOVETAIL_SOURCE_DIR) + "/models/workloads/mlp-1000mbit.json");
  expect_refused("explore --workload " + write("half.json", text.substr(0, text.size() / 2)),
                 "half.json: not valid JSON");
}

TEST_F(BadInputTest, NotANumber) {
  const std::string path = profile_with("\"forward_us\": 91371.2", "\"forward_us\": NaN");
  expect_refused("explore --workload " + path, "mlp-1000mbit.json: not valid JSON");
  const std::string huge = profile_with("\"forward_us\": 91371.2", "\"forward_us\": 1e999");
  expect_refused("explore --workload " + huge, "mlp-1000mbit.json: not valid JSON");
}

TEST_F(BadInputTest, GradientsOutOfOrder) {
  const std::string path = profile_with("\"ready_us\": 25365.5", "\"ready_us\": 1.5");
  expect_refused("explore --workload " + path,
                 "/profile/gradients/2/ready_us: expected gradients in gradient-ready order");
}

// Two ops that each read what the other writes.
// Rates and times that files may state, but that make steps of months or centuries.
TEST_F(BadInputTest, WhatNoStepTakes) {
  const auto explore = [&](const std::string& from, const std::string& to) {
    return "explore --workload resnet50 --cluster " +
           shipped_with("clusters/a100x8.json", from, to);
  };
  expect_refused(explore("\"tf32\": 156000000000000.0", "\"tf32\": 1"),
                 "cluster a100x8: op conv1.forward would take 2305843009 s; expected at most "
                 "1000000 s (eleven days)");
  expect_refused(explore("\"run_op_us\": 26", "\"run_op_us\": 1e12"),
                 "in a row, which is too long to search: at most 562950 s");
}

TEST_F(BadInputTest, CyclicProgram) {
  const std::string path = write("cycle.json", R"({
    "schema": "dovetail.program/1", "kind": "program", "name": "cycle", "world_size": 2,
    "groups": [{"id": 0, "name": "dp", "ranks": [0, 1]}],
    "tensors": [{"id": 0, "name": "x", "kind": "activation", "dtype": "f32", "shape": [4]},
                {"id": 1, "name": "y", "kind": "activation", "dtype": "f32", "shape": [4]},
                {"id": 2, "name": "g", "kind": "gradient", "dtype": "f32", "shape": [4]}],
    "ops": [{"id": 0, "name": "a", "phase": "forward", "dtype": "f32",
             "work": {"kind": "gemm", "m": 1, "n": 1, "k": 1, "count": 1}, "reads": ["y"], "writes": ["x"]},
            {"id": 1, "name": "b", "phase": "forward", "dtype": "f32",
             "work": {"kind": "gemm", "m": 1, "n": 1, "k": 1, "count": 1}, "reads": ["x"], "writes": ["y"]},
            {"id": 2, "name": "c", "phase": "backward", "dtype": "f32",
             "work": {"kind": "gemm", "m": 1, "n": 1, "k": 1, "count": 1}, "reads": ["x"], "writes": ["g"]}],
    "reductions": [{"gradient": "g", "group": "dp", "op": "average"}]})");
  expect_refused("explore --workload " + path + " --cluster a100x2_nv12",
                 "cycle: a reads y from b, which itself depends on a");
}

TEST_F(BadInputTest, DuplicateNames) {
  const std::string path = profile_with("\"name\": \"net.12.weight\"", "\"name\": \"net.12.bias\"");
  expect_refused("explore --workload " + path,
                 "/profile/gradients/1/name: expected a name of its own, found \"net.12.bias\"");
}

TEST_F(BadInputTest, ZeroRanks) {
  const std::string path = profile_with("\"world_size\": 2", "\"world_size\": 0");
  expect_refused("explore --workload " + path,
                 "/world_size: expected an integer from 1 to 1048576, found 0");
  expect_refused("run --ranks 0 --plan x.json",
                 "--ranks: expected a whole number from 1 to 64, found \"0\"");
  expect_refused("explore --workload resnet50:world=0 --cluster a100x8",
                 "expected a whole number from 1 to 1048576, found \"0\"");
}

TEST_F(BadInputTest, FlagsAndPolicies) {
  expect_refused("explore --workload resnet50", "name a machine with --cluster");
  expect_refused("explore --workload resnet51 --cluster a100x8", "did you mean \"resnet50\"?");
  expect_refused("explore --workload llama3_8b:batch=2 --cluster h100x8",
                 "--job llama3_8b:dp_shard=8,");
  expect_refused("explore --workload llama2_7b:tp=8 --cluster h100x8",
                 "jobs say: --job llama2_7b:tp=8 ");
  expect_refused("explore --workload llama2_7b:bach=8 --cluster h100x8", "unknown option \"bach\"");
  expect_refused("explore --workload resnet50 --cluster a100x8 --thresholds 25",
                 "expected a size with its unit");
  expect_refused("explore --workload resnet50 --cluster a100x8 --thresholds 8MiB:1MiB",
                 "LOW is above HIGH in LOW:HIGH");
  expect_refused("explore --workload resnet50 --cluster a100x8 --policies torch-dpd",
                 "did you mean \"torch-ddp\"?");
  expect_refused("explore --workload resnet50 --cluster mi300x8 --world 4", "8");
  expect_refused("explore --workload resnet50 --cluster a100x8 --colour", "--colour");
}

TEST_F(BadInputTest, LayoutsOfWorkloads) {
  const std::string explore = "explore --workload mlp-1000mbit --cluster h100x64 ";
  expect_refused(explore, "was made for 2 ranks, not 64; --layout dp=64 asks for it on as many");
  expect_refused(explore + "--layout tp=2",
                 "--layout: expected dp=N, dp_shard=N or both, found \"tp=2\": a workload is what "
                 "one rank computes; --job divides a model by tp, cp, ep and pp");
  for (const char* const text : {"dp=0", "dp", "dp=1.5", "dp=2,dp=3", "dp_shard=1048577"}) {
    expect_refused(
        explore + "--layout " + text,
        ": expected a whole number from 1 to 1048576, once, found \"" + std::string(text) + "\"");
  }
  expect_refused(explore + "--layout dp=65536,dp_shard=32", "at most 1048576 ranks in all");
  expect_refused("explore --workload mlp-1000mbit --layout dp=16",
                 "has no collective times of its own: name a machine with --cluster");
  expect_refused("explore --workload mlp --cluster a100x8 --world 8 --layout dp=8",
                 "--world 8 and --layout dp=8 both say how many ranks");
  expect_refused("plan --job llama3_8b --cluster h100x8 --layout dp=8 -o x.json",
                 "--layout: a job says its layout");
  expect_refused(
      "explore --workload mlp --cluster h100x64 --layout dp_shard=8,dp=2 --policies exact",
      "policy exact: gradients owe two reductions");
  expect_refused("predict x.json --layout dp=8", "--layout is about a --workload");
}

TEST_F(BadInputTest, UnknownWordsAreNamedBesideTheNearest) {
  expect_refused("expolre --workload resnet50",
                 "unknown subcommand \"expolre\"; did you mean explore? there are: explore, plan,");
  expect_refused("hlp", "unknown subcommand \"hlp\"; did you mean help? there are: explore, plan,");
  expect_refused("--bogus", "unknown option --bogus; expected a subcommand: explore, plan,");
  expect_refused("--versoin", "unknown option --versoin; did you mean --version?");
  // Before what is missing: --workload may be what was misspelt.
  expect_refused("explore --thresold 1MiB",
                 "explore: unknown option --thresold; did you mean --thresholds?");
  expect_refused("explore --workload mlp --for fsdp",
                 "explore: unknown option --for; did you mean --framework?");
  expect_refused("diagnose rank0.json.gz --for megatron",
                 "diagnose: unknown option --for; did you mean --framework?");
  expect_refused("predict plan.json --machine h100x8", "--machine; did you mean --cluster?");
  expect_refused("plan --wrkload=mlp -o x.json", "--wrkload; did you mean --workload?");
  expect_refused("plan -x", "plan: unknown option -x; dovetail plan --help lists them");
  expect_refused("show plan.json other.json", "other.json");
}

TEST_F(BadInputTest, NumbersOfFlags) {
  expect_refused("explore --workload mlp --world abc",
                 "--world: expected a whole number from 1 to 2147483647, found \"abc\"");
  expect_refused("explore --workload mlp --points 100001",
                 "--points: expected a whole number from 2 to 100000, found \"100001\"");
  expect_refused("predict --plan x --cluster y --steps abc",
                 "--steps: expected a whole number from 1 to 10000, found \"abc\"");
  expect_refused("reshard --to-first-rank abc",
                 "--to-first-rank: expected a whole number from 0 to 2147483647, found \"abc\"");
  expect_refused("calibrate --ranks 2 --workload mlp --budget 5 -o " + (directory_ / "c").string(),
                 "--budget: expected a time with its unit, e.g. 1.5ms, found \"5\"");
  expect_refused(
      "calibrate --ranks 2 --workload mlp --policy exakt -o " + (directory_ / "c").string(),
      "unknown policy; did you mean \"exact\"?");
}

TEST_F(BadInputTest, CalibratesWithAWorkloadOrAJobOfAsManyRanks) {
  const std::string command = "calibrate --ranks 2 -o " + (directory_ / "c").string();
  expect_refused(command, "calibrate: --workload or --job: give one of them");
  expect_refused(command + " --workload mlp --job qwen3_0.6b:dp=2",
                 "calibrate: --workload or --job: give one of them");
  expect_refused(command + " --job qwen3_0.6b:dp=4",
                 "calibrate: --job qwen3_0.6b:dp=4 has 4 ranks, but 2 measure");
}

// 64 ranks with 25 GiB of gradients each: the kernel would end them.
TEST_F(BadInputTest, APlanThatNeedsMoreMemoryThanThereIsIsRefusedBeforeARankStarts) {
  const std::string plan = write("large.json", "");
  ASSERT_EQ(
      dovetail("plan --workload llama2_7b --cluster h100x64 --policy one-bucket -o " + plan).code,
      0);
  expect_refused("run --ranks 64 --plan " + plan, "large.json: its ranks here hold at least 1");
}

// Each refused before a rank starts, by run and calibrate alike.
TEST_F(BadInputTest, RatesOfLinks) {
  const std::string plan = write("plan.json", "");
  ASSERT_EQ(dovetail("plan --workload mlp --cluster a100x2_nv12 -o " + plan).code, 0);
  const std::string output = (directory_ / "here.json").string();
  for (const std::string& command :
       {"run --ranks 2 --plan " + plan, "calibrate --ranks 2 --workload mlp -o " + output}) {
    expect_refused(command + " --rate 1",
                   "--rate: expected a rate with its unit, e.g. 1gbit or 500mbit, found \"1\"");
    expect_refused(command + " --rate 1GB/s", "--rate: expected a rate in bit, kbit, ");
    expect_refused(command + " --rate -1gbit", "--rate: expected a rate with its unit");
    expect_refused(command + " --rate 999kbit",
                   "--rate: expected at least 1mbit, found \"999kbit\"");
    expect_refused(command + " --rate 1gbit --netns dovetail",
                   "--rate and --netns: a link is paced by the ranks or shaped, not both");
    expect_refused(command + " --rate 1gbit --collectives gloo",
                   "--rate paces the ring; --collectives gloo stays on what the machine has");
    expect_refused(command + " --rate 1gbit --backend cuda", "--rate belongs to --backend cpu");
  }
  EXPECT_FALSE(std::filesystem::exists(output));
}

TEST_F(BadInputTest, ShowRefusesWhatItWouldIgnore) {
  expect_refused("show schedule --plan x.json --workload mlp",
                 "show schedule: --workload has no effect beside --plan");
  expect_refused("show gradients --workload resnet50",
                 "show: \"gradients\" is no file and no name here");
  expect_refused("show commands --plan x.json --policy naive", "--policy has no effect");
  expect_refused("show program --plan x.json --world 4", "--world has no effect beside --plan");
  expect_refused("show x.json --policy naive", "show x.json: --policy has no effect here");
  expect_refused("show x.json --plan y.json", "show x.json: --plan has no effect here");
  expect_refused("show workloads --plan x.json", "show workloads: --plan has no effect here");
  expect_refused("show policies --world 2", "show policies: --world has no effect here");
}

TEST_F(BadInputTest, StandardOutputThatIsFullIsToldOf) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";

  const Ended ended = dovetail::testing::run_command("( " + dovetail::testing::tool() +
                                                     " show policies >/dev/full )");
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.output, "dovetail: standard output: cannot be written\n");
}

TEST_F(BadInputTest, NothingIsWrittenWhenTheInputIsWrong) {
  const std::string output = (directory_ / "plan.json").string();
  expect_refused("plan --workload mlp-1000mbit --policy torch-dpd -o " + output, "torch-ddp");
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
  expect_refused("plan --workload mlp-1000mbit -o " + (directory_ / "no/such/plan.json").string(),
                 "cannot be written");
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(BadInputTest, AllOutputsMustBeWritableBeforeAnyIsWritten) {
  const std::string plan = "plan --workload mlp-1000mbit -o " + (directory_ / "plan.json").string();
  const std::string absent = (directory_ / "no/trace.json").string();
  expect_refused(plan + " --trace " + absent,
                 absent + ": cannot be written: No such file or directory");
  expect_refused(plan + " --trace /dev/full", "/dev/full: cannot be written: No space left");
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
  // Before anything is read: the plan does not exist either.
  expect_refused("predict --plan absent.json --cluster a100x8 --trace " + absent, absent);
  expect_refused("compare absent.json other.json --perfetto " + absent, absent);
  expect_refused("calibrate --ranks 1 --workload mlp -o " + absent, absent);
}

TEST_F(BadInputTest, AnOutputIsNoOtherFileOfTheCommand) {
  const std::string a = write("a.json", "{}");
  const std::string b = write("b.json", "{}");
  std::filesystem::create_symlink("a.json", directory_ / "link.json");
  const std::string link = (directory_ / "link.json").string();
  const std::string fresh = (directory_ / "fresh.json").string();
  const std::string dotted = (directory_ / "./fresh.json").string();
  expect_refused("plan --workload mlp-1000mbit -o " + fresh + " --trace " + dotted,
                 "--trace " + dotted + ": the same file as -o " + fresh + ", which is written too");
  expect_refused("plan --workload " + a + " -o " + link,
                 "-o " + link + ": the same file as --workload " + a + ", which is read");
  expect_refused("plan --workload mlp-1000mbit -o " DOVETAIL_SOURCE_DIR
                 "/models/workloads/mlp-1000mbit.json",
                 ": the same file as --workload ");
  expect_refused("plan --workload mlp --cluster " + a + " -o " + b + " --trace " + link,
                 ": the same file as --cluster ");
  expect_refused("predict --cluster a100x8 --plan " + a + " --trace " + link,
                 ": the same file as --plan ");
  expect_refused("run --ranks 2 --plan " + a + " --trace " + link, ": the same file as --plan ");
  expect_refused(
      "run --ranks 2 --plan " + a + " --plan " + a + " --trace " + fresh + " --trace " + dotted,
      ": the same file as --trace ");
  expect_refused("compare " + a + " " + b + " --perfetto " + link,
                 ": the same file as the first trace ");
  expect_refused("calibrate --ranks 2 --workload " + a + " -o " + link,
                 ": the same file as --workload ");
  EXPECT_EQ(read_file(a) + read_file(b), "{}{}");
  EXPECT_FALSE(std::filesystem::exists(fresh));
}

// The plan alone, as with -o -.
TEST_F(BadInputTest, AnOutputMayBeStandardOutput) {
  const std::string command = "plan --workload mlp-1000mbit -o /dev/stdout";
  const Ended piped = dovetail(command);
  EXPECT_EQ(piped.code, 0);
  EXPECT_THAT(piped.output, StartsWith("{\n"));
  EXPECT_THAT(piped.output, EndsWith("}\n"));
  const std::string file = (directory_ / "out.txt").string();
  EXPECT_EQ(dovetail(command + " > " + file).code, 0);
  EXPECT_EQ(read_file(file), piped.output);
}

TEST_F(BadInputTest, APlanThatDisagreesWithItself) {
  const std::string output = (directory_ / "plan.json").string();
  ASSERT_EQ(dovetail("plan --workload mlp-1000mbit --policy torch-ddp -o " + output).code, 0);
  std::string text = read_file(output);
  const std::size_t at = text.find("\"bytes\": 6498704");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 16, "\"bytes\": 6498708");
  expect_refused("show schedule --plan " + write("bent.json", text), "/buckets/0/bytes");
}

// A plan file stands beside the policies of its own workload only.
TEST_F(BadInputTest, APlanToExploreIsOfTheSameWorkload) {
  const std::string mine = (directory_ / "mine.json").string();
  ASSERT_EQ(dovetail("plan --workload mlp-1000mbit --policy torch-ddp -o " + mine).code, 0);
  const Ended row = dovetail("explore --workload mlp-1000mbit --policies exact --plan " + mine);
  EXPECT_EQ(row.code, 0) << row.output;
  EXPECT_THAT(row.output, HasSubstr(mine + " "));
  EXPECT_THAT(row.output, HasSubstr("a plan file"));
  expect_refused("explore --workload resnet50 --cluster a100x8 --plan " + mine, mine);
}

}  // namespace
}  // namespace dovetail

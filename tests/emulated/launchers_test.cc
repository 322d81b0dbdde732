// The tool under real launchers, on the emulated device: one host of eight GPUs, two of four, four of four
// with a pipeline. A launcher's other hosts are namespaces of this machine (launchers/host_agent.sh), with
// names and clocks of their own. A launcher that is not installed is a skip.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
#include "exec/training/program.h"
#include "schedule/plan_json.h"
#include "schedule/policies/policies.h"
#include "tests/cli/tool.h"
#include "tests/exec/law.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace dovetail::emulated {
namespace {

using exec::testing::Combination;
using ::testing::HasSubstr;

const std::string kAgent = DOVETAIL_LAUNCHERS "/host_agent.sh";

bool has(const std::string& program) {
  return testing::run_command("command -v " + program).code == 0;
}

// Whether this machine lets a test have hosts of its own.
bool has_hosts() { return testing::run_command(kAgent + " alpha true").code == 0; }

class LaunchersTest : public ::testing::Test {
 protected:
  LaunchersTest() { std::filesystem::create_directories(folder_); }
  ~LaunchersTest() override {
    std::error_code none;
    std::filesystem::remove_all(folder_, none);
  }

  [[nodiscard]] std::string folder() const { return folder_; }
  [[nodiscard]] std::string report() const { return folder_ + "/report.json"; }
  [[nodiscard]] std::string port() const { return std::to_string(port_); }

  // `launcher`: everything in front of the program.
  [[nodiscard]] testing::Ended run(const std::string& launcher, const Combination& what,
                                   int devices, const std::string& options = "") const {
    const std::string plan = folder_ + "/plan.json";
    const schedule::Plan made = {.program = exec::training::training_program(what.options),
                                 .schedule = exec::testing::schedule_of(what),
                                 .summary = {.workload = "training", .cluster = "none"}};
    std::ofstream(plan) << plan_to_json(made);
    return testing::run_command(
        "(export DOVETAIL_CUDA_MODULE=" DOVETAIL_EMULATED_MODULE " DOVETAIL_EMULATED=devices=" +
        std::to_string(devices) + "; cd " + folder_ + " && timeout --kill-after=5 600 " + launcher +
        " " DOVETAIL_ON_EMULATED " run --backend cuda --plan " + plan + " " + options +
        " --steps 1 --rounds 1 --warmup 1 --json >" + report() + ")");
  }

  // The device is EMULATED, so nothing of it is valid, and every element must be right.
  void expect_right(const std::string& launcher, const Combination& what, int devices) const {
    const testing::Ended ended = run(launcher, what, devices);
    ASSERT_EQ(ended.code, 0) << ended.output;
    const nlohmann::json found = nlohmann::json::parse(std::ifstream(report()));
    EXPECT_THAT(found.at("device").get<std::string>(), HasSubstr("EMULATED"));
    EXPECT_FALSE(found.at("valid").get<bool>());
    const nlohmann::json& row = found.at("rows").at(0);
    EXPECT_EQ(row.at("wrong_elements").get<std::int64_t>(), 0);
    EXPECT_GT(row.at("checked_elements").get<std::int64_t>(), 0);
    EXPECT_THAT(ended.output, ::testing::Not(HasSubstr("EMULATED DEVICE:"))) << "a rule was broken";
  }

  static Combination data_parallel(std::int64_t ranks) {
    return {.options = {.world_size = ranks, .samples = 1}, .policy = "threshold:cap=4KiB"};
  }
  // Two stages.
  static Combination pipeline(std::int64_t ranks) {
    return {.options = {.world_size = ranks,
                        .stages = 2,
                        .samples = 1,
                        .embedding = exec::training::Embedding::Untied},
            .policy = "source-improved:cap=8KiB",
            .merge = {.micro_steps = 2, .sync = schedule::SyncPoint::LastMicroStep},
            .pipeline = {.kind = schedule::PipelineKind::OneFOneB,
                         .alignment = schedule::LaunchAlignment::PerStage}};
  }

  // Open MPI over hosts of so many slots: the agent plays ssh, rank 0 is met on this machine.
  [[nodiscard]] std::string open_mpi(const std::string& hosts) const {
    return "mpirun.openmpi --allow-run-as-root --bind-to none --mca btl_base_warn_component_unused "
           "0 "
           "--mca plm_rsh_agent " +
           kAgent + " --mca plm_rsh_no_tree_spawn 1 --host " + hosts +
           " -x DOVETAIL_CUDA_MODULE -x DOVETAIL_EMULATED -x DOVETAIL_HEARTBEAT_TIMEOUT -x "
           "DOVETAIL_STORE=127.0.0.1:" +
           port();
  }

 private:
  std::string folder_ = ::testing::TempDir() + "launchers_" + std::to_string(::getpid());
  int port_ = 22000 + ::getpid() % 9000;
};

// gpu_check.sh with programs that were built elsewhere, as far as it can go here: plans are made, ranks that share the
// device execute them, and the report counts what they checked.
TEST_F(LaunchersTest, AGpuCheckOfValuesRunsWithPrebuiltPrograms) {
  std::filesystem::create_symlink(DOVETAIL_ON_EMULATED, folder() + "/dovetail");
  std::filesystem::create_symlink(DOVETAIL_EMULATED_MODULE, folder() + "/libdovetail_cuda.so");
  std::ofstream(folder() + "/dovetail_conformance");
  const testing::Ended ended =
      testing::run_command("DOVETAIL_EMULATED=devices=1 " DOVETAIL_SOURCE_DIR
                           "/scripts/gpu/gpu_check.sh --gpus 1 --prebuilt " +
                           folder() + " --only 'values-(tp|tp-pp)$' --out " + folder() + "/check");
  ASSERT_EQ(ended.code, 0) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("gpu_check: 0 steps failed"));
  const nlohmann::json measured =
      nlohmann::json::parse(std::ifstream(folder() + "/check/measured.json"));
  const nlohmann::json& elements = measured.at("elements");
  EXPECT_EQ(elements.at("plans").size(), 2U);
  EXPECT_GT(elements.at("checked").get<std::int64_t>(), 0);
  EXPECT_EQ(elements.at("wrong"), 0);
}

// A job that a fault ends: a thread may still stand in a library, whose exit handlers would crash under it.
TEST_F(LaunchersTest, AfterAnErrorOfTheMachineNoExitHandlerRuns) {
  const testing::Ended well =
      run("env DOVETAIL_TELL_EXIT=1", data_parallel(2), 2, "--ranks 2 --two-events");
  EXPECT_EQ(well.code, 0) << well.output;
  EXPECT_THAT(well.output, HasSubstr("exit handlers ran"));
  const nlohmann::json found = nlohmann::json::parse(std::ifstream(report()));
  EXPECT_GT(found.at("rows").at(0).at("step_with_two_events_us").get<double>(), 0);
  const testing::Ended ended =
      run("env DOVETAIL_TELL_EXIT=1 DOVETAIL_EMULATED=devices=2,memory-mib=1", data_parallel(2), 2,
          "--ranks 2");
  EXPECT_EQ(ended.code, 3) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("the plan needs at least"));
  EXPECT_THAT(ended.output, ::testing::Not(HasSubstr("exit handlers ran")));
}

// The deadline is the command line's. Whatever waits first says it.
TEST_F(LaunchersTest, TheDeadlineIsAnOption) {
  const testing::Ended ended = run("env DOVETAIL_EMULATED=devices=2,fault=1:0:hang",
                                   data_parallel(2), 2, "--ranks 2 --deadline 1500ms");
  EXPECT_EQ(ended.code, 3) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("within 1500 ms"));
}

TEST_F(LaunchersTest, OpenMpiStartsOneHostOfEight) {
  if (!has("mpirun.openmpi")) GTEST_SKIP() << "Open MPI is not installed (openmpi-bin)";
  expect_right("mpirun.openmpi --allow-run-as-root --oversubscribe --bind-to none -np 8",
               data_parallel(8), 8);
}

TEST_F(LaunchersTest, OpenMpiStartsTwoHostsOfFour) {
  if (!has("mpirun.openmpi")) GTEST_SKIP() << "Open MPI is not installed (openmpi-bin)";
  if (!has_hosts()) GTEST_SKIP() << "no namespaces for hosts here";
  expect_right(open_mpi("alpha:4,gamma2:4") + " -np 8", data_parallel(8), 4);
}

TEST_F(LaunchersTest, OpenMpiStartsAPipelineOnFourHostsOfFour) {
  if (!has("mpirun.openmpi")) GTEST_SKIP() << "Open MPI is not installed (openmpi-bin)";
  if (!has_hosts()) GTEST_SKIP() << "no namespaces for hosts here";
  expect_right(open_mpi("a1:4,bb1:4,ccc1:4,dddd1:4") + " -np 16", pipeline(16), 4);
}

// Every rank says what it sees, and all of them train and reduce together.
TEST_F(LaunchersTest, ASelfTestOfAJobTellsOfEveryRank) {
  if (!has("mpirun.openmpi")) GTEST_SKIP() << "Open MPI is not installed (openmpi-bin)";
  const testing::Ended ended = testing::run_command(
      "export DOVETAIL_CUDA_MODULE=" DOVETAIL_EMULATED_MODULE
      " DOVETAIL_EMULATED=devices=2,memory-mib=512; timeout --kill-after=5 600 mpirun.openmpi "
      "--allow-run-as-root "
      "--oversubscribe "
      "--bind-to none -np 2 " DOVETAIL_ON_EMULATED " selftest --backend cuda --largest 16KiB");
  EXPECT_EQ(ended.code, 0) << ended.output;
  for (const char* words : {"rank 0 on ", "rank 1 on ", "GPU 1 of 2, EMULATED", "rank 1, copies",
                            "links from GPU 0", "graph, torch-ddp:cap=8KiB,first=1KiB, 2 ranks",
                            "0 differ from the naive schedule's", "all-reduce 16 KiB, 2 ranks",
                            "the device is emulated: its times mean nothing", " 0 failed, "}) {
    EXPECT_THAT(ended.output, HasSubstr(words));
  }
}

// Without the address of rank 0 the ranks of another host could not find it: refused at once.
TEST_F(LaunchersTest, SeveralHostsWithoutAStoreAreRefused) {
  if (!has("mpirun.openmpi")) GTEST_SKIP() << "Open MPI is not installed (openmpi-bin)";
  if (!has_hosts()) GTEST_SKIP() << "no namespaces for hosts here";
  const std::string launcher = open_mpi("alpha:1,gamma2:1");
  const testing::Ended ended =
      run(launcher.substr(0, launcher.find(" -x DOVETAIL_STORE")) + " -np 2", data_parallel(2), 1);
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.output, HasSubstr("this job spans 2 hosts: set DOVETAIL_STORE=HOST:PORT"));
}

TEST_F(LaunchersTest, MpichStartsOneHostOfEight) {
  if (!has("mpiexec.mpich")) GTEST_SKIP() << "MPICH is not installed (mpich)";
  expect_right("mpiexec.mpich -launcher fork -n 8", data_parallel(8), 8);
}

TEST_F(LaunchersTest, MpichStartsTwoHostsOfFour) {
  if (!has("mpiexec.mpich")) GTEST_SKIP() << "MPICH is not installed (mpich)";
  if (!has_hosts()) GTEST_SKIP() << "no namespaces for hosts here";
  expect_right("mpiexec.mpich -launcher rsh -launcher-exec " + kAgent +
                   " -hosts alpha:4,gamma2:4 -n 8 -genv DOVETAIL_STORE 127.0.0.1:" + port(),
               data_parallel(8), 4);
}

TEST_F(LaunchersTest, SrunStartsOneHostOfEight) {
  for (const char* program : {"srun", "slurmctld", "slurmd", "munged"}) {
    if (has("PATH=$PATH:/usr/sbin; command -v " + std::string(program))) continue;
    GTEST_SKIP() << "Slurm is not installed (slurm-wlm, munge)";
  }
  if (::geteuid() != 0) GTEST_SKIP() << "Slurm's daemons need root";
  expect_right(std::string(DOVETAIL_LAUNCHERS "/slurm.sh ") + folder() + "/slurm " + port() + " 8",
               data_parallel(8), 8);
}

}  // namespace
}  // namespace dovetail::emulated

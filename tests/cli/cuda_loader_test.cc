// `dovetail run --backend cuda` as a person types it where the module or a GPU is missing, and
// words that no option has.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "cli/cuda_job.h"
#include "exec/cuda/loader.h"
#include "exec/launch/affinity.h"
#include "tests/cli/tool.h"

namespace dovetail::cli {
namespace {

using testing::Ended;
using ::testing::HasSubstr;
using testing::run_tool;

// One plan for all tests; the variable that names the module is the test's own.
class CudaLoaderCliTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    plan_ = (std::filesystem::temp_directory_path() /
             ("dovetail-cuda-loader-" + std::to_string(::getpid()) + ".json"))
                .string();
    const Ended ended = run_tool("plan --workload mlp-1000mbit --policy torch-ddp -o " + plan_);
    ASSERT_EQ(ended.code, 0) << ended.output;
  }
  static void TearDownTestSuite() { std::filesystem::remove(plan_); }
  void SetUp() override { ::unsetenv("DOVETAIL_CUDA_MODULE"); }
  void TearDown() override { ::unsetenv("DOVETAIL_CUDA_MODULE"); }

  static Ended run(const std::string& arguments) {
    return run_tool("run --plan " + plan_ + " --ranks 2 --warmup 0 --steps 1 --rounds 1 " +
                    arguments);
  }

  inline static std::string plan_;
};

constexpr const char* kNotBuilt = "is not part of this build";

// Several communicators in one graph are only safe where every rank launches them in one order; whoever set
// the variable knows better.
TEST_F(CudaLoaderCliTest, NcclIsAskedToKeepTheOrderOfLaunches) {
  const auto after_opening = [] {
    BackendChoice choice;
    choice.backend = "cuda";
    choice.cuda_module = "/nowhere/libdovetail_cuda.so";
    EXPECT_THROW(open_cuda(choice), DeviceError);
    return std::string(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"));
  };
  ::unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  EXPECT_EQ(after_opening(), "1");
  ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
  EXPECT_EQ(after_opening(), "0");
  ::unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}

// mpirun binds the ranks of a small job to one core each, and NCCL's threads with them.
TEST_F(CudaLoaderCliTest, ARankOnOneCoreMeasuresNothing) {
  CudaJob job;
  job.facts.devices.emplace_back();
  const auto objections = [&job] {
    std::vector<std::string> found;
    std::thread([&] {
      exec::launch::pin_to_core_of(0);
      found = objections_to(job, 0);
    }).join();
    return found;
  };
  EXPECT_THAT(objections(), ::testing::ElementsAre(HasSubstr("this rank may use one core only")));
}

TEST_F(CudaLoaderCliTest, AnAbsentModuleIsAnErrorOfTheMachine) {
  ::setenv("DOVETAIL_CUDA_MODULE", "/nowhere/libdovetail_cuda.so", 1);
  const Ended ended = run("--backend cuda");
  EXPECT_EQ(ended.code, 3) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("the cuda module cannot be loaded: /nowhere/"));
}

TEST_F(CudaLoaderCliTest, WithoutADriverTheSentenceNamesIt) {
  const exec::cuda::ModulePlace place = exec::cuda::module_place("");
  if (std::filesystem::exists("/proc/driver/nvidia/version")) {
    GTEST_SKIP() << "this machine has a driver";
  }
  const Ended ended = run("--backend cuda");
  EXPECT_EQ(ended.code, 3) << ended.output;
  // Built: the driver is missing, or a library; not built: the reason. A tool that the environment
  // names may have been built otherwise than this test.
  const bool is_other = std::getenv("DOVETAIL_TOOL") != nullptr;
  if (place.built || is_other) {
    EXPECT_THAT(ended.output, ::testing::AnyOf(HasSubstr("the cuda "), HasSubstr(kNotBuilt)));
  } else {
    EXPECT_THAT(ended.output, HasSubstr(kNotBuilt));
  }
}

TEST_F(CudaLoaderCliTest, TheCpuBackendDoesNotLookForTheModule) {
  ::setenv("DOVETAIL_CUDA_MODULE", "/nowhere/libdovetail_cuda.so", 1);
  const Ended ended = run("");
  EXPECT_THAT(ended.output, ::testing::Not(HasSubstr("cuda module")));
}

TEST_F(CudaLoaderCliTest, UnknownWordsAreRefusedWithTheKnownOnes) {
  const auto expect_refused = [](const std::string& arguments, const std::string& words) {
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 2) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr(words));
  };
  expect_refused("--backend gpu", "--backend: expected cpu or cuda, found \"gpu\"");
  expect_refused("--backend cuda --device first", "--device: expected auto or a number");
  expect_refused("--backend cuda --issue lazily", "--issue: expected eager or graph");
  expect_refused("--backend cuda --stand-in memcpy", "--stand-in: expected send-to-self");
  expect_refused("--backend cuda --f32-math half", "--f32-math: expected full or tf32");
  expect_refused("--backend cuda --scales nowhere", "--scales: expected kernel or collective");
  expect_refused("--backend cuda --trace-detail some", "--trace-detail: expected commands or full");
  expect_refused("--backend cuda --graph --trace-detail full", "needs --issue eager");
  expect_refused("--trace-detail full", "belongs to --backend cuda");
  expect_refused("--cluster-size 2", "belongs to --backend cuda");
  expect_refused("--graph", "belongs to --backend cuda");
}

}  // namespace
}  // namespace dovetail::cli

// What is told when the CUDA module, a library it needs, or a GPU is missing; and what crosses the
// module's border. Needs no GPU: where there is one, the tests of its preemption are skipped.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/loader.h"

#include "base/error.h"
#include "tests/exec/programs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace dovetail::exec::cuda {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string error_of_loading(const std::string& path) {
  try {
    load_module({.built = true, .reason = "", .path = path});
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

TEST(CudaLoaderTest, ABuildWithoutTheModuleSaysWhy) {
  try {
    load_module({.built = false, .reason = "no CUDA compiler (nvcc) was found", .path = {}});
    FAIL() << "loaded a module that was not built";
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(),
                 "the cuda backend is not part of this build: no CUDA compiler (nvcc) was found");
  }
}

TEST(CudaLoaderTest, AnAbsentModuleIsNamed) {
  EXPECT_THAT(error_of_loading("/nowhere/libdovetail_cuda.so"),
              AllOf(StartsWith("the cuda module cannot be loaded: "),
                    HasSubstr("/nowhere/libdovetail_cuda.so")));
}

TEST(CudaLoaderTest, AFileThatIsNoLibraryIsRefused) {
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("dovetail-no-library-" + std::to_string(::getpid()) + ".so"))
                               .string();
  std::ofstream(path)
      << "this is no ELF file, though it is long enough to hold a header of one....";
  EXPECT_THAT(error_of_loading(path),
              AllOf(StartsWith("the cuda module cannot be loaded: "), HasSubstr("ELF")));
  std::filesystem::remove(path);
}

TEST(CudaLoaderTest, AMissingLibraryOfTheModuleIsNamed) {
  EXPECT_THAT(error_of_loading(DOVETAIL_TEST_MODULE_NEEDS_ABSENT),
              AllOf(StartsWith("the cuda module cannot be loaded: "),
                    HasSubstr("libdovetail_test_absent.so")));
}

TEST(CudaLoaderTest, ALibraryThatIsNoModuleIsRefused) {
  EXPECT_THAT(
      error_of_loading(DOVETAIL_TEST_MODULE_EMPTY),
      AllOf(StartsWith("the cuda module cannot be loaded: "), HasSubstr("dovetail_cuda_module")));
}

TEST(CudaLoaderTest, AModuleOfAnotherVersionIsRefused) {
  EXPECT_THAT(error_of_loading(DOVETAIL_TEST_MODULE_OF_OTHER_VERSION),
              AllOf(HasSubstr("is of another build"), HasSubstr("interface version 4711")));
}

TEST(CudaLoaderTest, NoDeviceEndsInTheSentenceOfTheDriver) {
  EXPECT_NO_THROW(require_device(Facts{}));
  Facts facts;
  facts.objection = "no NVIDIA driver is loaded (code 35)";
  try {
    require_device(facts);
    FAIL() << "accepted a machine without a GPU";
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(),
                 "the cuda backend finds no usable GPU: no NVIDIA driver is loaded (code 35)");
  }
}

// The module of this build, if there is one.
class CudaModuleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string path = DOVETAIL_TEST_CUDA_MODULE;
    if (path.empty()) GTEST_SKIP() << "this build has no CUDA module";
    try {
      module_ = &load_module({.built = true, .reason = "", .path = path});
    } catch (const DeviceError& error) {
      GTEST_SKIP() << error.what();  // its libraries are not installed here
    }
  }
  [[nodiscard]] static BackendOptions alone() {
    BackendOptions options;
    options.exchange = exec::alone();
    return options;
  }
  const Module* module_ = nullptr;
};

TEST_F(CudaModuleTest, TellsWhatItWasBuiltWith) {
  const Facts facts = module_->facts();
  EXPECT_EQ(module_->version, kModuleVersion);
  EXPECT_FALSE(facts.toolkit.empty());
  EXPECT_THAT(facts.nccl_built, StartsWith("2."));
  EXPECT_FALSE(facts.architectures.empty());
}

TEST_F(CudaModuleTest, WithoutADriverFactsSayWhy) {
  const Facts facts = module_->facts();
  if (!facts.devices.empty()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(facts.objection, ::testing::AnyOf(HasSubstr("driver"), HasSubstr("device")));
  EXPECT_THROW(require_device(facts), DeviceError);
}

TEST_F(CudaModuleTest, ErrorsCrossItsBorderWithTheirTypes) {
  schedule::Program program = testing::three_layers(1);
  schedule::ScheduledProgram plan = testing::plan_of(program, testing::two_buckets_of(program));
  plan.program.ops[0].work = schedule::TimedWork{.by_rank = {Duration(1000)}};
  // Refused before the device is touched.
  EXPECT_THROW(static_cast<void>(module_->make_backend(plan, alone())), InputError);
}

TEST_F(CudaModuleTest, AStandInNeedsAPlanOfOneRank) {
  const schedule::ScheduledProgram plan = testing::in_two_buckets(2);
  BackendOptions options = alone();
  options.stand_in = StandIn::SendToSelf;
  EXPECT_THROW(static_cast<void>(module_->make_backend(plan, options)), InputError);
}

TEST_F(CudaModuleTest, WithoutADriverABackendIsAnErrorOfTheMachine) {
  if (!module_->facts().devices.empty()) GTEST_SKIP() << "this machine has a GPU";
  const schedule::ScheduledProgram plan = testing::in_two_buckets(1);
  try {
    static_cast<void>(module_->make_backend(plan, alone()));
    FAIL() << "made a backend without a GPU";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), StartsWith("cudaSetDevice: "));
  }
}

TEST_F(CudaModuleTest, ClocksThatCannotBeReadAreZero) {
  if (!module_->facts().devices.empty()) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_EQ(module_->state(0).sm_mhz, 0);
}

}  // namespace
}  // namespace dovetail::exec::cuda

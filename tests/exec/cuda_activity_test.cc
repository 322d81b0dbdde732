// Records of a profiling library, joined to commands.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/activity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dovetail::exec::cuda {
namespace {

TEST(CudaActivityTest, AKernelBelongsToTheCommandThatWasPushed) {
  ActivityLog log;
  // Command 7 made calls 100 and 102; call 101 belongs to nobody.
  log.external = {{100, external_id(CommandId{7})}, {102, external_id(CommandId{7})}};
  log.activities = {{.correlation = 102, .start_ns = 50, .end_ns = 60, .name = "fill"},
                    {.correlation = 101, .start_ns = 30, .end_ns = 40, .name = "check"},
                    {.correlation = 100, .start_ns = 10, .end_ns = 20, .name = "gemm"}};
  const AttributedWork found = attribute(log);
  EXPECT_EQ(found.lost, 0U);
  EXPECT_THAT(
      found.works,
      ::testing::ElementsAre(
          DeviceWork{
              .command = CommandId{7}, .step = 0, .start_ns = 10, .end_ns = 20, .name = "gemm"},
          DeviceWork{
              .command = CommandId{7}, .step = 0, .start_ns = 50, .end_ns = 60, .name = "fill"}));
}

TEST(CudaActivityTest, TheFirstCommandIsNotMistakenForNone) {
  ActivityLog log;
  log.external = {{1, external_id(CommandId{0})}, {2, 0}};
  log.activities = {{.correlation = 1, .start_ns = 10, .end_ns = 20, .name = "gemm"},
                    {.correlation = 2, .start_ns = 10, .end_ns = 20, .name = "other"}};
  const AttributedWork found = attribute(log);
  ASSERT_EQ(found.works.size(), 1U);
  EXPECT_EQ(found.works[0].command, CommandId{0});
}

TEST(CudaActivityTest, OneLaunchMayRunSeveralKernels) {
  ActivityLog log;
  log.external = {{5, external_id(CommandId{2})}};
  log.activities = {{.correlation = 5, .start_ns = 10, .end_ns = 20, .name = "split"},
                    {.correlation = 5, .start_ns = 20, .end_ns = 30, .name = "reduce"}};
  EXPECT_EQ(attribute(log).works.size(), 2U);
}

TEST(CudaActivityTest, WorkWithoutTimesIsCountedAsLost) {
  ActivityLog log;
  log.external = {{1, external_id(CommandId{0})}};
  log.activities = {{.correlation = 1, .start_ns = 0, .end_ns = 0, .name = "gemm"},
                    {.correlation = 1, .start_ns = 20, .end_ns = 10, .name = "gemm"}};
  const AttributedWork found = attribute(log);
  EXPECT_TRUE(found.works.empty());
  EXPECT_EQ(found.lost, 2U);
}

TEST(CudaActivityTest, NamesAreWhatOneWouldSay) {
  EXPECT_EQ(short_name("_ZN8dovetail4exec4cuda11gelu_kernelEPKfPfl"), "gelu_kernel");
  EXPECT_EQ(short_name("void dovetail::(anonymous namespace)::gelu<float, 4>(float const*, long)"),
            "gelu");
  EXPECT_EQ(short_name("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL");
  EXPECT_EQ(short_name("sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n"),
            "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n");
  EXPECT_EQ(short_name("copy to the device"), "copy to the device");
}

}  // namespace
}  // namespace dovetail::exec::cuda

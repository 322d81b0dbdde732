// Where the headers of CUDA, cuBLAS and NCCL are missing, the emulated device cannot be compiled.
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

TEST(EmulatedDeviceTest, NeedsTheHeadersOfCuda) {
  GTEST_SKIP() << "the headers of CUDA, cuBLAS or NCCL were not found when this was built";
}

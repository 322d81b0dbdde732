// The emulated device is tested itself: every planted fault must be reported, else its silence
// proves nothing.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/emulated.h"
#include "tests/emulated/fixture.h"

#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <nccl.h>

#include <stdexcept>
#include <thread>

namespace dovetail::emulated {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Two streams, an event and some memory on device 0.
class PlantedFaultTest : public EmulatedTest {
 protected:
  void SetUp() override {
    use({.devices = 2});
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    for (cudaStream_t* stream : {&one_, &other_}) {
      ASSERT_EQ(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, 0), cudaSuccess);
    }
    ASSERT_EQ(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&memory_, kBytes), cudaSuccess);
  }
  void TearDown() override {
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaFree(memory_), cudaSuccess);
    EXPECT_EQ(cudaEventDestroy(event_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(one_), cudaSuccess);
    EXPECT_EQ(cudaStreamDestroy(other_), cudaSuccess);
    EmulatedTest::TearDown();
  }
  void fill(cudaStream_t stream) {
    ASSERT_EQ(cudaMemsetAsync(memory_, 1, kBytes, stream), cudaSuccess);
  }
  void begin_capture() {
    ASSERT_EQ(cudaStreamBeginCapture(one_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  }
  // One rank's communicator; blocking.
  static ncclComm_t connect(int ranks, int rank, const ncclUniqueId& id) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    ncclComm_t comm = nullptr;
    EXPECT_EQ(ncclCommInitRankConfig(&comm, ranks, id, rank, &config), ncclSuccess);
    return comm;
  }
  static ncclComm_t connect_alone() {
    ncclUniqueId id;
    EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
    return connect(1, 0, id);
  }

  static constexpr std::size_t kBytes = 4096;
  cudaStream_t one_ = nullptr, other_ = nullptr;
  cudaEvent_t event_ = nullptr;
  void* memory_ = nullptr;
};

TEST_F(PlantedFaultTest, AMissingWaitIsARace) {
  fill(one_);
  fill(other_);
  EXPECT_THAT(take_complaints(), ElementsAre(AllOf(HasSubstr("race"), HasSubstr("cudaMemset"))));
}

TEST_F(PlantedFaultTest, AWaitOrdersWhatItWaitsFor) {
  fill(one_);
  ASSERT_EQ(cudaEventRecord(event_, one_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  fill(other_);
  EXPECT_THAT(take_complaints(), IsEmpty());
}

TEST_F(PlantedFaultTest, ADroppedWaitIsARace) {
  use({.devices = 2, .dropped_wait = 0});
  fill(one_);
  ASSERT_EQ(cudaEventRecord(event_, one_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  fill(other_);
  EXPECT_THAT(take_complaints(), SizeIs(1));
}

TEST_F(PlantedFaultTest, AWaitForAnEarlierRecordDoesNotOrderWhatCameAfterIt) {
  ASSERT_EQ(cudaEventRecord(event_, one_), cudaSuccess);
  fill(one_);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  fill(other_);
  EXPECT_THAT(take_complaints(), SizeIs(1));
}

TEST_F(PlantedFaultTest, WhatTheHostHasWaitedForIsOrdered) {
  fill(one_);
  ASSERT_EQ(cudaStreamSynchronize(one_), cudaSuccess);
  fill(other_);
  EXPECT_THAT(take_complaints(), IsEmpty());
}

TEST_F(PlantedFaultTest, ReadersDoNotDisturbEachOther) {
  fill(one_);
  ASSERT_EQ(cudaStreamSynchronize(one_), cudaSuccess);
  void* copy = nullptr;
  ASSERT_EQ(cudaMalloc(&copy, 2 * kBytes), cudaSuccess);
  auto* second = static_cast<char*>(copy) + kBytes;
  ASSERT_EQ(cudaMemcpyAsync(copy, memory_, kBytes, cudaMemcpyDeviceToDevice, one_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(second, memory_, kBytes, cudaMemcpyDeviceToDevice, other_),
            cudaSuccess);
  EXPECT_THAT(take_complaints(), IsEmpty());
  EXPECT_EQ(cudaFree(copy), cudaSuccess);
}

TEST_F(PlantedFaultTest, ARaceInsideAGraphIsFoundWhenItIsLaunched) {
  begin_capture();
  ASSERT_EQ(cudaEventRecord(event_, one_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  fill(one_);
  fill(other_);
  ASSERT_EQ(cudaEventRecord(event_, other_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(one_, event_, 0), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_THAT(take_complaints(), IsEmpty());
  ASSERT_EQ(cudaGraphLaunch(executable, one_), cudaSuccess);
  EXPECT_THAT(take_complaints(), ElementsAre(HasSubstr("race")));
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(PlantedFaultTest, AMissingJoinEndsTheCaptureInAnError) {
  begin_capture();
  ASSERT_EQ(cudaEventRecord(event_, one_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(other_, event_, 0), cudaSuccess);
  fill(other_);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureUnjoined);
  static_cast<void>(cudaGetLastError());
}

TEST_F(PlantedFaultTest, AQueryInACaptureInvalidatesIt) {
  begin_capture();
  fill(one_);
  EXPECT_EQ(cudaStreamQuery(one_), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(one_, &graph), cudaErrorStreamCaptureInvalidated);
  static_cast<void>(cudaGetLastError());
}

TEST_F(PlantedFaultTest, AnEventOfAnotherDeviceIsRefused) {
  cudaStream_t far = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithPriority(&far, cudaStreamNonBlocking, 0), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event_, far), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(far), cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

TEST_F(PlantedFaultTest, MemoryOfAnotherDeviceIsOutOfReach) {
  cudaStream_t far = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(cudaStreamCreateWithPriority(&far, cudaStreamNonBlocking, 0), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(memory_, 0, kBytes, far), cudaErrorIllegalAddress);
  EXPECT_THAT(take_complaints(), ElementsAre(HasSubstr("device 1 may touch")));
  EXPECT_EQ(cudaStreamDestroy(far), cudaSuccess);
  static_cast<void>(cudaGetLastError());
}

TEST_F(PlantedFaultTest, ARangeBeyondItsAllocationIsReported) {
  EXPECT_EQ(cudaMemsetAsync(memory_, 0, kBytes + 1, one_), cudaErrorIllegalAddress);
  EXPECT_THAT(take_complaints(), ElementsAre(HasSubstr("4097 bytes")));
  static_cast<void>(cudaGetLastError());
}

TEST_F(PlantedFaultTest, UnequalOrderOfCollectivesIsReportedByBothRanks) {
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  const auto rank = [&](int number) {
    ASSERT_EQ(cudaSetDevice(number), cudaSuccess);
    const ncclComm_t comm = connect(2, number, id);
    void* data = nullptr;
    ASSERT_EQ(cudaMalloc(&data, 64), cudaSuccess);
    const auto count = static_cast<std::size_t>(4 + number);
    EXPECT_EQ(ncclAllReduce(data, data, count, ncclFloat32, ncclSum, comm, nullptr), ncclSuccess);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // both look at each other
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    EXPECT_EQ(cudaFree(data), cudaSuccess);
  };
  std::jthread first(rank, 0);
  std::jthread second(rank, 1);
  first.join();
  second.join();
  EXPECT_THAT(take_complaints(), AllOf(SizeIs(2), Contains(HasSubstr("rank 0 is in")),
                                       Contains(HasSubstr("rank 1 is in"))));
}

TEST_F(PlantedFaultTest, AnInPlaceBufferAtTheWrongOffsetIsReported) {
  const ncclComm_t comm = connect_alone();
  auto* data = static_cast<float*>(memory_);
  EXPECT_EQ(ncclAllGather(data + 4, data, 8, ncclFloat32, comm, one_), ncclSuccess);
  EXPECT_THAT(take_complaints(), ElementsAre(HasSubstr("not in place")));
  EXPECT_EQ(cudaStreamSynchronize(one_), cudaSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
}

TEST_F(PlantedFaultTest, ACommunicatorDestroyedUnderAGraphIsReported) {
  const ncclComm_t comm = connect_alone();
  begin_capture();
  auto* data = static_cast<float*>(memory_);
  ASSERT_EQ(ncclAllReduce(data, data, 8, ncclFloat32, ncclSum, comm, one_), ncclSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(one_, &graph), cudaSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_THAT(take_complaints(), ElementsAre(HasSubstr("waits for a graph")));
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(PlantedFaultTest, ARegisteredBufferLeftBehindIsReported) {
  const ncclComm_t comm = connect_alone();
  void* handle = nullptr;
  ASSERT_EQ(ncclCommRegister(comm, memory_, kBytes, &handle), ncclSuccess);
  EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
  EXPECT_THAT(take_complaints(), ElementsAre(HasSubstr("registered")));
}

TEST_F(PlantedFaultTest, ANonBlockingCommunicatorInProgressIsNotUsed) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId id;
  ASSERT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  ncclComm_t comm = nullptr;
  ASSERT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, &config), ncclInProgress);
  auto* data = static_cast<float*>(memory_);
  EXPECT_EQ(ncclAllReduce(data, data, 8, ncclFloat32, ncclSum, comm, one_), ncclInvalidArgument);
  EXPECT_THAT(ncclGetLastError(comm), HasSubstr("before the previous operation"));
  EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
}

TEST_F(PlantedFaultTest, MemoryHasALimit) {
  use({.devices = 2, .memory_bytes = std::size_t{1} << 20});
  void* data = nullptr;
  EXPECT_EQ(cudaMalloc(&data, (std::size_t{1} << 20) + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST(EmulatedOptionsTest, AreReadFromWords) {
  const Options read = parse_options("devices=8,seed=3,memory-mib=64,fault=2:5:hang,drop-wait=1");
  EXPECT_EQ(read.devices, 8);
  EXPECT_EQ(read.seed, 3U);
  EXPECT_EQ(read.memory_bytes, std::size_t{64} << 20);
  ASSERT_THAT(read.faults, SizeIs(1));
  EXPECT_EQ(read.faults[0].device, 2);
  EXPECT_EQ(read.faults[0].call, 5);
  EXPECT_EQ(read.faults[0].kind, FaultKind::Hang);
  EXPECT_EQ(read.dropped_wait, 1);
  EXPECT_THROW(parse_options("device=8"), std::invalid_argument);
  EXPECT_THROW(parse_options("fault=2:5:sleep"), std::invalid_argument);
}

}  // namespace
}  // namespace dovetail::emulated

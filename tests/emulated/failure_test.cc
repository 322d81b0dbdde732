// What goes wrong on the emulated device ends every rank within the deadline, with one sentence that
// names rank, call and bucket: eagerly, and where a graph holds the communicators.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "exec/cuda/handles.h"
#include "exec/launch/world.h"
#include "tests/emulated/fixture.h"
#include "tests/emulated/job.h"
#include "tests/exec/programs.h"

#include <gmock/gmock.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

namespace dovetail::emulated {
namespace {

using exec::cuda::BackendOptions;
using exec::cuda::Issue;
using ::testing::HasSubstr;

constexpr std::int32_t kRank = 1;  // the one that suffers

struct Case {
  FaultKind kind = FaultKind::Hang;
  Issue issue = Issue::Eager;
  const char* words = "";  // of the message
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.words; }

// What the deadlines of the rank that suffers are read from. It stands still until the fault has struck,
// however slow the machine is; then each look finds a minute gone. The other rank hears of it from that one.
std::int64_t deadline_clock() {
  static std::atomic<std::int64_t> looks{0};
  constexpr std::int64_t kMinute = 60'000'000'000;
  return has_struck() ? kMinute * ++looks : 0;
}

class FailureOnDeviceTest : public EmulatedTest, public ::testing::WithParamInterface<Case> {};

// In the second step: a graph captures that one, and hangs when it is launched.
TEST_P(FailureOnDeviceTest, EndsWithRankCallAndBucket) {
  const Case& one = GetParam();
  const auto plan = exec::testing::in_two_buckets(2);
  const std::int64_t call = one.kind == FaultKind::HangInRegister ? 0 : 3;  // two in each step
  configure({.devices = 2, .faults = {{.device = kRank, .call = call, .kind = one.kind}}});
  BackendOptions options;
  options.issue = one.issue;
  options.deadline = std::chrono::minutes(1);
  options.grace = std::chrono::minutes(5);
  // Where nothing hangs, what ends the job is not the deadline.
  const bool hangs = one.kind != FaultKind::Error && one.kind != FaultKind::DeviceError;
  const Adjust adjust = [hangs](Rank rank, BackendOptions& mine) {
    const bool suffers = hangs && rank == Rank{kRank};
    mine.deadline_clock = [suffers] { return suffers ? deadline_clock() : 0; };
  };
  const Outcome outcome = run_job(plan, options, {.warmup = 0, .steps = 4}, adjust);
  EXPECT_THAT(outcome.error, HasSubstr(one.words));
  EXPECT_THAT(outcome.error, HasSubstr("rank "));
}

INSTANTIATE_TEST_SUITE_P(
    EagerAndGraph, FailureOnDeviceTest,
    ::testing::ValuesIn(std::vector<Case>{
        {FaultKind::Hang, Issue::Eager, "all-reduce of bucket 1 did not end within"},
        {FaultKind::Hang, Issue::Graph, "did not end within"},
        {FaultKind::HangInCall, Issue::Eager,
         "ncclAllReduce for all-reduce of bucket 1 did not return within"},
        {FaultKind::HangInCall, Issue::Graph,
         "ncclAllReduce for all-reduce of bucket 1 did not return within"},
        {FaultKind::Error, Issue::Eager,
         "NCCL: remote process exited or there was a network error during"},
        {FaultKind::Error, Issue::Graph,
         "NCCL: remote process exited or there was a network error during"},
        {FaultKind::HangInRegister, Issue::Eager, "ncclCommRegister for connecting group"},
        {FaultKind::HangInRegister, Issue::Graph, "ncclCommRegister for connecting group"},
        {FaultKind::DeviceError, Issue::Eager, "unspecified launch failure"},
        {FaultKind::DeviceError, Issue::Graph, "unspecified launch failure"},
    }));

// One rank of a job of processes; started by the test below, with the variables of torchrun.
TEST(DISABLED_RankProcess, Runs) {
  namespace launch = exec::launch;
  const launch::Environment environment = launch::process_environment();
  const auto plan = exec::testing::in_two_buckets(2);
  BackendOptions options;
  options.issue = environment("ISSUE") == "graph" ? Issue::Graph : Issue::Eager;
  const auto session = launch::connect(
      launch::world_from(environment),
      {.silence = launch::heartbeat_timeout(environment), .cores = launch::Cores::Any});
  launch::tell_others_of_errors(*session, [&] {
    const auto backend = make_backend(plan, options, *session);
    exec::run(plan, session->rank(), *backend, {.warmup = 0, .steps = 4});
  });
}

class KilledRankTest : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(EagerAndGraph, KilledRankTest, ::testing::Values("eager", "graph"));

// Rank 1 is killed within its second step; rank 0 must not wait for it for ever, and must name it.
TEST_P(KilledRankTest, IsNamedByTheOther) {
  const std::string folder =
      ::testing::TempDir() + "killed_" + std::to_string(::getpid()) + "_" + GetParam();
  const std::string port = std::to_string(21000 + ::getpid() % 9000);
  const std::string command =
      "WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port +
      " TORCHELASTIC_RUN_ID=" + folder + " ISSUE=" + GetParam() +
      " DOVETAIL_EMULATED=devices=2,fault=1:3:kill DOVETAIL_HEARTBEAT_TIMEOUT=600s timeout 600 "
      "/proc/" +
      std::to_string(::getpid()) +
      "/exe --gtest_also_run_disabled_tests --gtest_filter=DISABLED_RankProcess.Runs";
  const std::string both = "( export RANK=1 LOCAL_RANK=1; " + command + " >/dev/null 2>&1 ) & " +
                           "( export RANK=0 LOCAL_RANK=0; " + command + " >" + folder +
                           " 2>&1 ); code=$?; wait; exit $code";
  EXPECT_NE(std::system(both.c_str()), 0);
  std::ifstream file(folder);
  const std::string words{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_THAT(words, HasSubstr("rank 1 died"));
  static_cast<void>(std::remove(folder.c_str()));
}

class MemoryOnDeviceTest : public EmulatedTest, public ::testing::WithParamInterface<Issue> {};
INSTANTIATE_TEST_SUITE_P(EagerAndGraph, MemoryOnDeviceTest,
                         ::testing::Values(Issue::Eager, Issue::Graph));

TEST_P(MemoryOnDeviceTest, ThatRunsOutIsToldWithSizes) {
  const auto plan = exec::testing::in_two_buckets(2);
  configure({.devices = 2, .memory_bytes = std::size_t{1} << 20});
  BackendOptions options;
  options.issue = GetParam();
  const Outcome outcome = run_job(plan, options);
  EXPECT_THAT(outcome.error, HasSubstr("the plan needs at least 32"));
  EXPECT_THAT(outcome.error, HasSubstr("; 1 MiB are free"));
}

// What is not counted in advance, or taken by somebody else meanwhile.
TEST_F(EmulatedTest, AnAllocationThatFailsSaysHowMuchForWhat) {
  configure({.memory_bytes = std::size_t{1} << 20});
  try {
    exec::cuda::allocate(mib(32), "cuBLAS's workspace");
    ADD_FAILURE() << "there is room";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cudaMalloc of 32 MiB for cuBLAS's workspace"));
    EXPECT_THAT(error.what(), HasSubstr("1 MiB of 1 MiB are free"));
  }
}

}  // namespace
}  // namespace dovetail::emulated

// Calls that hang, held against a deadline: the hanging library is a future that nobody fulfils
// until somebody aborts it.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "exec/cuda/call_guard.h"
#include "exec/cuda/side_threads.h"
#include "exec/cuda/watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dovetail::exec::cuda {
namespace {

using std::chrono::milliseconds;

constexpr GuardedCall kCall = {.function = "ncclAllReduce", .subject = "all-reduce of bucket 3"};

// A call that returns once it is aborted, as NCCL's do.
class HangingLibrary {
 public:
  HangingLibrary() : aborted_(promise_.get_future()) {}
  void call() {
    aborted_.wait();
    throw DeviceError("ncclAllReduce: aborted");
  }
  void abort() { promise_.set_value(); }

 private:
  std::promise<void> promise_;
  std::future<void> aborted_;
};

std::string error_of(CallGuard& guard, const std::function<void()>& work) {
  try {
    guard.run(kCall, work);
  } catch (const DeviceError& error) {
    return error.what();
  }
  return "";
}

TEST(CudaCallGuardTest, ACallThatReturnsRunsOnTheThreadThatAsked) {
  CallGuard guard({.rank = Rank{0}});
  std::thread::id ran_on;
  EXPECT_EQ(error_of(guard, [&] { ran_on = std::this_thread::get_id(); }), "");
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

// NCCL frees the communicator under the call, which may crash: the sentence must be out by then.
TEST(CudaCallGuardTest, ACallIsGivenUpInWordsBeforeItIsAborted) {
  HangingLibrary library;
  std::string printed;
  ::testing::internal::CaptureStderr();
  {
    CallGuard guard({.rank = Rank{2},
                     .deadline = milliseconds(20),
                     .grace = std::chrono::minutes(4),
                     .give_up = [&](const std::string&) {
                       printed = ::testing::internal::GetCapturedStderr();
                       library.abort();
                     }});
    EXPECT_NE(error_of(guard, [&] { library.call(); }), "");
  }
  EXPECT_EQ(
      printed,
      "dovetail: rank 2: ncclAllReduce for all-reduce of bucket 3 did not return within 20 ms\n");
}

TEST(CudaCallGuardTest, AnErrorOfTheCallComesBack) {
  CallGuard guard({.rank = Rank{0}});
  EXPECT_EQ(error_of(guard, [] { throw DeviceError("ncclAllReduce: invalid usage"); }),
            "rank 0: all-reduce of bucket 3: ncclAllReduce: invalid usage");
  EXPECT_EQ(error_of(guard, [] {}), "") << "an ordinary error does not end the guard";
}

TEST(CudaCallGuardTest, AtTheDeadlineACallIsAbortedAndNamesRankBucketAndCall) {
  HangingLibrary library;
  std::string told;
  CallGuard guard({.rank = Rank{2},
                   .deadline = milliseconds(20),
                   .grace = std::chrono::minutes(4),
                   .peer_failure = {},
                   .give_up =
                       [&](const std::string& message) {
                         told = message;
                         library.abort();
                       },
                   .end = [](const std::string&) { FAIL() << "it returned after the abort"; }});
  const std::string error = error_of(guard, [&] { library.call(); });
  EXPECT_EQ(error, "rank 2: ncclAllReduce for all-reduce of bucket 3 did not return within 20 ms");
  EXPECT_EQ(told, error);
  EXPECT_EQ(error_of(guard, [] { FAIL() << "nothing is enqueued after an abort"; }), error);
}

TEST(CudaCallGuardTest, AFailedPeerEndsTheCallBeforeItsDeadline) {
  HangingLibrary library;
  std::atomic<bool> is_dead = false;
  CallGuard guard({.rank = Rank{0},
                   .deadline = std::chrono::minutes(10),
                   .grace = std::chrono::minutes(4),
                   .peer_failure = [&] { return std::string(is_dead ? "rank 1 died" : ""); },
                   .give_up = [&](const std::string&) { library.abort(); },
                   .end = [](const std::string&) { FAIL() << "it returned after the abort"; }});
  const std::string error = error_of(guard, [&] {
    is_dead = true;
    library.call();
  });
  EXPECT_EQ(error, "rank 0: rank 1 died during ncclAllReduce for all-reduce of bucket 3");
}

TEST(CudaCallGuardTest, ACallThatHangsInSpiteOfTheAbortEndsTheProcess) {
  HangingLibrary library;
  std::vector<std::string> ended;
  CallGuard guard({.rank = Rank{1},
                   .deadline = milliseconds(10),
                   .grace = milliseconds(10),
                   .peer_failure = {},
                   .give_up = [](const std::string&) {},  // as if NCCL took no notice
                   .end =
                       [&](const std::string& message) {
                         ended.push_back(message);
                         library.abort();  // the end of the test, not of the process
                       }});
  const std::string error = error_of(guard, [&] { library.call(); });
  EXPECT_THAT(ended, ::testing::ElementsAre(
                         "rank 1: ncclAllReduce for all-reduce of bucket 3 did not return within "
                         "10 ms"));
  EXPECT_EQ(error, ended.at(0));
}

TEST(CudaCallGuardTest, AnAbortThatHangsEndsTheProcessToo) {
  HangingLibrary library;
  HangingLibrary aborting;
  std::atomic<int> ends = 0;
  CallGuard guard({.rank = Rank{1},
                   .deadline = milliseconds(10),
                   .grace = milliseconds(10),
                   .peer_failure = {},
                   .give_up =
                       [&](const std::string&) {
                         library.abort();
                         aborting.call();
                       },
                   .end =
                       [&](const std::string&) {
                         ++ends;
                         aborting.abort();
                       }});
  EXPECT_NE(error_of(guard, [&] { library.call(); }), "");
  EXPECT_EQ(ends, 1);
}

TEST(CudaCallGuardDeathTest, EndingTheProcessSaysWhyAndExitsWithThree) {
  EXPECT_EXIT(end_process("rank 1: ncclAllReduce hung"), ::testing::ExitedWithCode(3),
              "dovetail: rank 1: ncclAllReduce hung");
}

TEST(CudaWatchTest, AHangingEnqueueTellsTheOthersThenAborts) {
  HangingLibrary library;
  std::vector<std::string> events;
  Watch watch({.rank = Rank{0},
               .deadline = milliseconds(20),
               .grace = std::chrono::minutes(4),
               .peer_failure = {},
               .tell_others = [&](const std::string& message) { events.push_back(message); }});
  watch.set_library([] { return std::string(); },
                    [&] {
                      events.emplace_back("abort");
                      library.abort();
                    });
  EXPECT_THROW(watch.call(kCall, [&] { library.call(); }), DeviceError);
  EXPECT_THAT(events, ::testing::ElementsAre("rank 0: ncclAllReduce for all-reduce of bucket 3 "
                                             "did not return within 20 ms",
                                             "abort"));
}

TEST(CudaWatchTest, AWaitThatFailsTellsTheOthersThenAborts) {
  std::vector<std::string> events;
  Watch watch({.rank = Rank{0},
               .deadline = milliseconds(10),
               .peer_failure = {},
               .tell_others = [&](const std::string& message) { events.push_back(message); }});
  watch.set_library([] { return std::string(); }, [&] { events.emplace_back("abort"); });
  const auto doing = [] { return std::string("all-reduce of bucket 3"); };
  EXPECT_THROW(watch.wait([] { return false; }, doing, Pace::Sleep), DeviceError);
  EXPECT_THAT(events, ::testing::ElementsAre("rank 0: all-reduce of bucket 3 did not end within "
                                             "10 ms",
                                             "abort"));
}

TEST(CudaWatchTest, AnErrorOnAnotherThreadNamesRankAndWhatWasDone) {
  Watch watch({.rank = Rank{3}});
  try {
    watch.run([] { throw DeviceError("ncclCommInitRankConfig: invalid usage"); },
              "connecting group dp on stream 1");
    FAIL() << "it did not throw";
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(),
                 "rank 3: connecting group dp on stream 1: ncclCommInitRankConfig: invalid usage");
  }
}

// Two communicators as ncclCommAbort leaves them: each abort returns only when the other's flag is
// up too. One after the other they would hang.
TEST(CudaSideThreadsTest, CallsThatWaitForEachOtherAllReturn) {
  auto flags = std::make_shared<std::array<std::atomic<bool>, 2>>();
  SideThreads threads;
  std::vector<std::function<void()>> aborts;
  for (const std::size_t mine : {0U, 1U}) {
    aborts.emplace_back([flags, mine] {
      (*flags)[mine] = true;
      while (!(*flags)[1 - mine]) std::this_thread::yield();
    });
  }
  threads.start(std::move(aborts));
  EXPECT_TRUE(threads.wait(std::chrono::minutes(4)));
}

TEST(CudaSideThreadsTest, ACallThatHangsIsWaitedForOnlySoLong) {
  const auto graph_is_gone = std::make_shared<std::promise<void>>();
  SideThreads threads;
  threads.start({[graph_is_gone] { graph_is_gone->get_future().wait(); }});
  EXPECT_FALSE(threads.wait(milliseconds(10)));
  graph_is_gone->set_value();
  EXPECT_TRUE(threads.wait(std::chrono::minutes(4)));
}

TEST(CudaSideThreadsTest, NothingStartedIsNothingToWaitFor) {
  EXPECT_TRUE(SideThreads().wait(milliseconds(0)));
}

}  // namespace
}  // namespace dovetail::exec::cuda

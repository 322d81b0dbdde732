// When a rank dies, stops or is ended: every other rank ends with one line that names it and the
// bucket, exit code 3, and nothing stays behind.
//
// Ranks are processes here, forked by the test, which all-reduce until something happens to them. A
// grace that must not pass before the news has come is kPatient, however slow the machine is; that a
// real job ends in ten seconds follows from the graces it has (EndsWithinTenSeconds).
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "exec/cpu/ring.h"
#include "exec/launch/local_ranks.h"
#include "exec/launch/session.h"
#include "exec/launch/store.h"
#include "tests/exec/own_address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dovetail::exec::launch {
namespace {

using namespace std::chrono_literals;
using testing::free_port;
using ::testing::HasSubstr;
using testing::kPatience;
using testing::kPatient;
using testing::own_address;
using ::testing::ThrowsMessage;

// What a rank does until it throws; it says "ready" once it has begun.
using Work = std::function<void(Session& session)>;
using OptionsOf = std::function<SessionOptions(std::int32_t rank)>;

SessionOptions patient(std::int32_t) { return {.silence = kPatience, .graces = kPatient}; }

// Ranks as child processes. Each one's stderr is a pipe, its stdin one that all share.
class Job {
 public:
  struct Ended {
    int exit_code = -1;  // -signal when it was killed
    std::string words;   // its stderr after "ready"
  };

  Job(std::int32_t ranks, const Work& work, OptionsOf options_of = patient)
      : options_of_(std::move(options_of)) {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe(ends.data()), 0);
    go_in_ = Descriptor(ends[0]);
    go_out_ = Descriptor(ends[1]);
    const StoreAddress store = {.host = own_address(), .port = free_port()};
    for (std::int32_t rank = 0; rank < ranks; ++rank) start(rank, ranks, store, work);
    for (Child& child : children_) {
      while (child.words.find("ready\n") == std::string::npos && read_some(child)) {
      }
      EXPECT_EQ(child.words.rfind("ready\n", 0), 0U) << child.words;
      child.words.erase(0, std::string("ready\n").size());  // its last words may have come already
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job() {
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      if (children_[rank].pid <= 0) continue;
      kill(children_[rank].pid, SIGKILL);
      waitpid(children_[rank].pid, nullptr, 0);
    }
  }

  void signal(std::size_t rank, int number) const { kill(children_[rank].pid, number); }
  // Stops a rank, and returns once it does nothing any more.
  void stop(std::size_t rank) const {
    signal(rank, SIGSTOP);
    int status = 0;
    waitpid(children_[rank].pid, &status, WUNTRACED);
    EXPECT_TRUE(WIFSTOPPED(status));
  }
  // By now every rank is ready: whoever stands in wait_for_go() goes on.
  void go() const { EXPECT_EQ(write(go_out_.get(), "g", 1), 1); }
  static void wait_for_go() {
    char letter = 0;
    static_cast<void>(!read(STDIN_FILENO, &letter, 1));
  }

  // Waits for the end of a rank; exit code -1 means that it does not come.
  Ended end_of(std::size_t rank) {
    Child& child = children_[rank];
    const Clock::time_point deadline = Clock::now() + kPatience;
    int status = 0;
    while (waitpid(child.pid, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) return {.exit_code = -1, .words = "still running"};
      std::this_thread::sleep_for(10ms);
    }
    child.pid = 0;
    while (read_some(child)) {
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return {.exit_code = code, .words = child.words};
  }

 private:
  struct Child {
    pid_t pid = 0;
    Descriptor output;
    std::string words;
  };

  void start(std::int32_t rank, std::int32_t ranks, const StoreAddress& store, const Work& work) {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      dup2(ends[1], STDERR_FILENO);
      dup2(go_in_.get(), STDIN_FILENO);
      go_in_.reset();
      go_out_.reset();
      close(ends[0]);
      close(ends[1]);
      children_.clear();  // so that no pipe of a sibling stays open here
      _exit(be_rank(rank, ranks, store, work));
    }
    close(ends[1]);
    Child child;
    child.pid = pid;
    child.output = Descriptor(ends[0]);
    children_.push_back(std::move(child));
  }

  // What cli/main.cc does with a session: one line for an error, exit code 3.
  int be_rank(std::int32_t rank, std::int32_t ranks, const StoreAddress& store, const Work& work) {
    const World world{.rank = Rank{rank},
                      .size = ranks,
                      .local_rank = rank,
                      .launcher = "",
                      .job = "failure_test:" + std::to_string(getppid())};
    std::string words;
    try {
      Links links = meet(world, store, kPatience);
      Session session(world, std::move(links), Session::Kind::Process, options_of_(rank));
      work(session);
    } catch (const DeviceError& error) {
      words = std::string("dovetail: ") + error.what() + "\n";
    }
    say(words);
    return words.empty() ? 0 : 3;
  }

  static bool read_some(Child& child) {
    std::array<char, 512> buffer{};
    const ssize_t got = read(child.output.get(), buffer.data(), buffer.size());
    if (got > 0) child.words.append(buffer.data(), static_cast<std::size_t>(got));
    return got > 0;
  }

 public:
  static void say(const std::string& words) {
    static_cast<void>(!write(STDERR_FILENO, words.data(), words.size()));
  }

 private:
  OptionsOf options_of_;
  Descriptor go_in_;
  Descriptor go_out_;
  std::vector<Child> children_;
};

// Reduces bucket 3 for ever.
void reduce_for_ever(Session& session) {
  const std::unique_ptr<cpu::Transport> ring = cpu::open_ring(session);
  std::vector<float> data(100'000);
  for (bool is_first = true;; is_first = false) {
    ring->all_reduce(data, schedule::ReduceOp::Average, "all-reduce of bucket 3");
    if (is_first) Job::say("ready\n");
  }
}

// Says one line, exactly.
void expect_last_words(const Job::Ended& ended, const std::string& line) {
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_EQ(ended.words, "dovetail: " + line + "\n");
}

// A rank that falls silent is noticed at the first look after `silence`, its closed connection at
// once; whoever does not end by itself is ended `end` later. Looks are a heartbeat apart.
TEST(FailureTest, EndsWithinTenSeconds) {
  const SessionOptions options;
  EXPECT_LT(options.silence + options.heartbeat + options.graces.end, 10s);
  // And with SIGTERM before mpirun's SIGKILL.
  EXPECT_LT(options.graces.sigterm_news, options.graces.sigterm_end);
  EXPECT_LT(options.graces.sigterm_end, 1s);
}

TEST(FailureTest, KilledRankIsNamedByAllOthers) {
  Job job(3, reduce_for_ever);
  job.signal(1, SIGKILL);
  EXPECT_EQ(job.end_of(1).exit_code, -SIGKILL);
  const std::string news = "rank 1 died (its connection closed) during all-reduce of bucket 3";
  expect_last_words(job.end_of(0), "rank 0: " + news);
  expect_last_words(job.end_of(2), "rank 2: " + news);
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left, not even as a zombie
  EXPECT_EQ(errno, ECHILD);
}

TEST(FailureTest, KilledRank0IsNamedByAllOthers) {
  Job job(3, reduce_for_ever);
  job.signal(0, SIGKILL);
  const std::string news = "rank 0 died (its connection closed) during all-reduce of bucket 3";
  expect_last_words(job.end_of(1), "rank 1: " + news);
  expect_last_words(job.end_of(2), "rank 2: " + news);
}

// The time by which rank 0 judges silence, in memory that it shares with the test: it stands still
// unless the test moves it.
class SharedClock {
 public:
  SharedClock() {
    void* place =
        mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(place, MAP_FAILED);
    state_ = new (place) State;
  }
  SharedClock(const SharedClock&) = delete;
  SharedClock& operator=(const SharedClock&) = delete;
  ~SharedClock() { munmap(state_, sizeof(State)); }

  [[nodiscard]] Clock::time_point read() const {
    const Clock::time_point now{Duration(state_->ns)};
    ++state_->reads;
    return now;
  }
  void advance(Duration by) const { state_->ns += by.count(); }
  // Returns once it was read so many times more.
  void await_reads(std::int64_t more) const {
    const std::int64_t last = state_->reads + more;
    while (state_->reads < last) std::this_thread::sleep_for(1ms);
  }

 private:
  struct State {
    std::atomic<std::int64_t> ns = 0;
    std::atomic<std::int64_t> reads = 0;
  };
  State* state_ = nullptr;
};

// Nothing closes here: only the heartbeats stop. Rank 0 sends none itself in this test, so it looks
// only when rank 1 is heard, and each look reads the clock twice: for the heartbeat and after it.
// So rank 1 is heard at every time, and rank 2 for the last time before it is stopped, at time 0:
// it is silent for 0.8 of the limit, which is allowed, and then for 1.2 of it.
TEST(FailureTest, StoppedRankIsNamedAndGivenUp) {
  constexpr Duration kSilence = 5s;
  const SharedClock clock;
  Job job(3, reduce_for_ever, [&](std::int32_t rank) {
    SessionOptions options = patient(rank);
    options.heartbeat = rank == 0 ? kPatience : 10ms;
    if (rank != 0) return options;
    options.silence = kSilence;
    options.clock = [&] { return clock.read(); };
    return options;
  });
  job.stop(2);
  clock.await_reads(6);  // what it had sent is heard
  for (int i = 0; i < 2; ++i) {
    clock.advance(kSilence * 4 / 10);
    clock.await_reads(6);
  }
  clock.advance(kSilence * 4 / 10);
  const std::string news =
      "rank 2 does not answer (no heartbeat for 5 s: stopped, or its host is gone) during "
      "all-reduce of bucket 3";
  expect_last_words(job.end_of(0), "rank 0: " + news);
  expect_last_words(job.end_of(1), "rank 1: " + news);
  job.signal(2, SIGCONT);  // it wakes up too late, and learns it
  expect_last_words(job.end_of(2), "rank 2: given up: " + news);
}

// mpirun sends SIGTERM to the survivors as soon as it has seen one rank die.
TEST(FailureTest, SigtermAfterADeathStillNamesTheDeadRank) {
  Job job(3, reduce_for_ever);
  job.signal(0, SIGTERM);  // before its reason is known
  job.signal(2, SIGTERM);
  job.signal(1, SIGKILL);
  const std::string news = "rank 1 died (its connection closed) during all-reduce of bucket 3";
  expect_last_words(job.end_of(0), "rank 0: " + news);
  expect_last_words(job.end_of(2), "rank 2: " + news);
}

TEST(FailureTest, SigtermAloneEndsAllRanks) {
  Job job(2, reduce_for_ever, [](std::int32_t rank) {
    SessionOptions options = patient(rank);
    options.graces.sigterm_news = 100ms;  // in vain: nobody died
    return options;
  });
  job.signal(1, SIGTERM);
  const std::string news = "the job was ended by SIGTERM during all-reduce of bucket 3";
  expect_last_words(job.end_of(0), "rank 0: " + news);
  expect_last_words(job.end_of(1), "rank 1: " + news);
}

// Rank 0 computes without end and never looks at its session: its monitor ends it.
TEST(FailureTest, RankThatIsStuckInComputeIsEnded) {
  Job job(
      2,
      [](Session& session) {
        session.barrier();
        Job::say("ready\n");
        while (true) std::this_thread::sleep_for(1s);
      },
      [](std::int32_t rank) {
        SessionOptions options = patient(rank);
        options.graces.end = 100ms;
        return options;
      });
  job.signal(1, SIGKILL);
  expect_last_words(job.end_of(0), "rank 0: rank 1 died (its connection closed)");
}

TEST(FailureTest, RankThatThrowsIsNamedWithItsReason) {
  Job job(3, [](Session& session) {
    session.barrier();
    Job::say("ready\n");
    tell_others_of_errors(session, [&] {
      if (session.rank() == Rank{1}) {
        Job::wait_for_go();
        throw DeviceError("rank 1: out of memory in op 7");
      }
      session.barrier("the start of step 2");
    });
  });
  job.go();
  expect_last_words(job.end_of(1), "rank 1: out of memory in op 7");
  const std::string news = "rank 1 failed: out of memory in op 7 during the start of step 2";
  expect_last_words(job.end_of(0), "rank 0: " + news);
  expect_last_words(job.end_of(2), "rank 2: " + news);
}

// An exception that leaves a session behind without a word is a failure too.
TEST(FailureTest, RankThatUnwindsItsSessionIsNamed) {
  Job job(2, [](Session& session) {
    session.barrier();
    Job::say("ready\n");
    if (session.rank() == Rank{1}) {
      Job::wait_for_go();
      throw DeviceError("rank 1: out of memory");
    }
    session.barrier("the start of step 2");
  });
  job.go();
  expect_last_words(job.end_of(1), "rank 1: out of memory");
  expect_last_words(job.end_of(0),
                    "rank 0: rank 1 failed: it ended with an error during the start of step 2");
}

// No news explains it: after a moment the closed connection is all there is to say.
TEST(FailureTest, RankThatLeavesEarlyIsNamed) {
  const Work work = [](Session& session) {
    session.barrier();
    Job::say("ready\n");
    if (session.rank() == Rank{0}) session.barrier("the start of step 2");
  };
  Job job(2, work, [](std::int32_t rank) {
    SessionOptions options = patient(rank);
    options.graces.news = 100ms;
    return options;
  });
  const Job::Ended left = job.end_of(1);
  EXPECT_EQ(left.exit_code, 0);
  EXPECT_EQ(left.words, "");
  expect_last_words(job.end_of(0), "rank 0: rank 1 left during the start of step 2");
}

// Ranks 0 and 1 wait for rank 2 and fail because of it; its own exception is the one to be seen.
TEST(LocalRanksTest, FirstExceptionIsRethrown) {
  std::atomic<int> told = 0;
  const auto fail = [&] {
    run_local_ranks({.ranks = 3, .graces = kPatient}, [&](Session& session) {
      if (session.rank() == Rank{2}) throw InputError("plan.json: no such op");
      try {
        session.barrier();
      } catch (const DeviceError& error) {
        const std::string rank = "rank " + std::to_string(session.rank().value);
        EXPECT_EQ(error.what(), rank + ": rank 2 failed: plan.json: no such op during a barrier");
        ++told;
        throw;
      }
    });
  };
  try {
    fail();
    ADD_FAILURE() << "no exception";
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "plan.json: no such op");
  }
  EXPECT_EQ(told, 2);
}

// A mistake of ours on one rank ends all of them as a failed machine does, and is seen as what it is.
TEST(LocalRanksTest, AFailedCheckEndsAllRanks) {
  std::atomic<int> told = 0;
  const auto fail = [&] {
    run_local_ranks({.ranks = 3, .graces = kPatient}, [&](Session& session) {
      DOVETAIL_CHECK(session.rank() != Rank{1}) << "of rank 1";
      try {
        session.barrier();
      } catch (const DeviceError& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 1 failed: "));
        EXPECT_THAT(error.what(), HasSubstr("of rank 1 during a barrier"));
        ++told;
        throw;
      }
    });
  };
  EXPECT_THAT(fail, ThrowsMessage<CheckError>(HasSubstr("check failed: ")));
  EXPECT_EQ(told, 2);
}

}  // namespace
}  // namespace dovetail::exec::launch

// When a rank dies, stops or is ended: every other rank ends with one line that names it and the
// bucket, exit code 3, and nothing stays behind.
//
// Ranks are processes here, forked by the test, which all-reduce until something happens to them.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "exec/cpu/ring.h"
#include "exec/launch/local_ranks.h"
#include "exec/launch/session.h"
#include "exec/launch/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dovetail::exec::launch {
namespace {

using namespace std::chrono_literals;

// What the requirement allows from the loss of a rank to the end of the last one.
constexpr Duration kLimit = 10s;

// Runs after a rank has said that it is ready, until it throws.
using Work = std::function<void(Session& session)>;

// Ranks as child processes. Each one's stderr is a pipe; it says "ready" once it has begun.
class Job {
 public:
  struct Ended {
    int exit_code = -1;  // -signal when it was killed
    std::string words;   // its stderr after "ready"
  };

  Job(std::int32_t ranks, const Work& work) {
    const auto listener = listen_on("127.0.0.1", 0);
    const auto port = static_cast<std::uint16_t>(local_port(*listener) % 10'000 + 20'000);
    for (std::int32_t rank = 0; rank < ranks; ++rank) start(rank, ranks, port, work);
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

  // Waits for the end of a rank, at most for kLimit; exit code -1 means that it still runs.
  Ended end_of(std::size_t rank) {
    Child& child = children_[rank];
    const Clock::time_point deadline = Clock::now() + kLimit;
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

  void start(std::int32_t rank, std::int32_t ranks, std::uint16_t port, const Work& work) {
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    const pid_t pid = fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      close(ends[1]);
      children_.clear();  // so that no pipe of a sibling stays open here
      _exit(be_rank(rank, ranks, port, work));
    }
    close(ends[1]);
    Child child;
    child.pid = pid;
    child.output = Descriptor(ends[0]);
    children_.push_back(std::move(child));
  }

  // What cli/main.cc does with a session: one line for an error, exit code 3.
  static int be_rank(std::int32_t rank, std::int32_t ranks, std::uint16_t port, const Work& work) {
    const World world{.rank = Rank{rank},
                      .size = ranks,
                      .local_rank = rank,
                      .launcher = "",
                      .job = "failure_test:" + std::to_string(getppid())};
    std::string words;
    try {
      Links links = meet(world, {.host = "127.0.0.1", .port = port}, 20s);
      Session session(world, std::move(links), Session::Kind::Process, {.silence = 2s});
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

// Nothing closes here: only the heartbeats stop, for 2 s in this test.
TEST(FailureTest, StoppedRankIsNamedAndGivenUp) {
  Job job(3, reduce_for_ever);
  job.signal(2, SIGSTOP);
  const std::string news =
      "rank 2 does not answer (no heartbeat for 2 s: stopped, or its host is gone) during "
      "all-reduce of bucket 3";
  expect_last_words(job.end_of(0), "rank 0: " + news);
  expect_last_words(job.end_of(1), "rank 1: " + news);
  job.signal(2, SIGCONT);  // it wakes up too late, and learns it
  expect_last_words(job.end_of(2), "rank 2: given up: " + news);
}

// mpirun sends SIGTERM to the survivors as soon as it has seen one rank die.
TEST(FailureTest, SigtermAfterADeathStillNamesTheDeadRank) {
  Job job(3, reduce_for_ever);
  job.signal(1, SIGKILL);
  job.signal(0, SIGTERM);
  job.signal(2, SIGTERM);
  const std::string news = "rank 1 died (its connection closed) during all-reduce of bucket 3";
  expect_last_words(job.end_of(0), "rank 0: " + news);
  expect_last_words(job.end_of(2), "rank 2: " + news);
}

TEST(FailureTest, SigtermAloneEndsAllRanks) {
  Job job(2, reduce_for_ever);
  job.signal(1, SIGTERM);
  const std::string news = "the job was ended by SIGTERM during all-reduce of bucket 3";
  expect_last_words(job.end_of(0), "rank 0: " + news);
  expect_last_words(job.end_of(1), "rank 1: " + news);
}

// Rank 0 computes without end and never looks at its session: its monitor ends it.
TEST(FailureTest, RankThatIsStuckInComputeIsEnded) {
  Job job(2, [](Session& session) {
    session.barrier();
    Job::say("ready\n");
    while (true) std::this_thread::sleep_for(1s);
  });
  job.signal(1, SIGKILL);
  expect_last_words(job.end_of(0), "rank 0: rank 1 died (its connection closed)");
}

TEST(FailureTest, RankThatThrowsIsNamedWithItsReason) {
  Job job(3, [](Session& session) {
    session.barrier();
    Job::say("ready\n");
    tell_others_of_errors(session, [&] {
      if (session.rank() == Rank{1}) throw DeviceError("rank 1: out of memory in op 7");
      session.barrier("the start of step 2");
    });
  });
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
    if (session.rank() == Rank{1}) throw DeviceError("rank 1: out of memory");
    session.barrier("the start of step 2");
  });
  expect_last_words(job.end_of(1), "rank 1: out of memory");
  expect_last_words(job.end_of(0),
                    "rank 0: rank 1 failed: it ended with an error during the start of step 2");
}

TEST(FailureTest, RankThatLeavesEarlyIsNamed) {
  Job job(2, [](Session& session) {
    session.barrier();
    Job::say("ready\n");
    if (session.rank() == Rank{0}) session.barrier("the start of step 2");
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
    run_local_ranks({.ranks = 3}, [&](Session& session) {
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

}  // namespace
}  // namespace dovetail::exec::launch

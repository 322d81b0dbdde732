// Ctrl-C and SIGTERM in the midst of long work: what is known is printed, and the exit code says which signal it was.
//
// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "tests/cli/tool.h"
#include "tests/support/cases.h"

namespace dovetail {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// The tool as a process of its own, with pipes for its input and its output of both kinds.
class Process {
 public:
  explicit Process(const std::string& arguments) {
    std::array<int, 2> in{};
    std::array<int, 2> out{};
    EXPECT_EQ(::pipe(in.data()) + ::pipe(out.data()), 0);
    const std::string command =
        testing::kNoVariables + ("exec " + testing::tool()) + " " + arguments;
    id_ = ::fork();
    if (id_ == 0) {
      ::dup2(in[0], STDIN_FILENO);
      ::dup2(out[1], STDOUT_FILENO);
      ::dup2(out[1], STDERR_FILENO);
      for (const int end : {in[0], in[1], out[0], out[1]}) ::close(end);
      for (const int signal : {SIGINT, SIGTERM}) static_cast<void>(std::signal(signal, SIG_DFL));
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    ::close(in[0]);
    ::close(out[1]);
    in_ = in[1];
    out_ = out[0];
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    ::close(in_);
    ::close(out_);
  }

  void tell(const std::string& text) const {
    EXPECT_EQ(::write(in_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  [[nodiscard]] std::string line() const {
    std::string text;
    for (char letter = 0; ::read(out_, &letter, 1) == 1 && letter != '\n';) text += letter;
    return text;
  }
  // Once it has computed for so long.
  void signal_after(double seconds, int signal) const {
    while (processor_seconds() < seconds) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(::kill(id_, signal), 0);
  }
  testing::Ended end() const {
    testing::Ended ended;
    std::array<char, 4096> block{};
    for (ssize_t size = 0; (size = ::read(out_, block.data(), block.size())) > 0;) {
      ended.output.append(block.data(), static_cast<std::size_t>(size));
    }
    int status = 0;
    ::waitpid(id_, &status, 0);
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return ended;
  }

 private:
  [[nodiscard]] double processor_seconds() const {
    std::ifstream file("/proc/" + std::to_string(id_) + "/stat");
    std::string text;
    std::getline(file, text);
    std::istringstream fields(text.substr(text.rfind(')') + 1));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;
    double user = 0;
    double system = 0;
    fields >> user >> system;
    return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

  pid_t id_ = 0;
  int in_ = 0, out_ = 0;
};

// 5 minutes of one core; the first layouts take a third of a second of it (in a sanitizer's build twenty times that).
constexpr const char* kLarge =
    "explore --job llama3_405b:tp=8,pp=32,dp=4,gbs=512 --cluster h100x1024 --all";

// Interrupted later and later, until its first row is there: when that is depends on the machine.
testing::Ended interrupted_with_rows(int signal, double& seconds) {
  testing::Ended ended;
  for (; seconds < 60; seconds *= 1.5) {
    const Process large(kLarge);
    large.signal_after(seconds, signal);
    ended = large.end();
    const bool has_rows = ended.output.find("interrupted: the rows") != std::string::npos;
    if (has_rows || ended.code == 0) break;
  }
  return ended;
}

TEST(InterruptionTest, ALargeExplorationPrintsTheRowsThatItHas) {
  if (testing::kHasSanitizer) GTEST_SKIP() << "takes long to its first row";
  double seconds = 0.5;
  for (const int signal : {SIGINT, SIGTERM}) {
    const testing::Ended ended = interrupted_with_rows(signal, seconds);
    EXPECT_EQ(ended.code, 128 + signal) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("interrupted: the rows are those that were tried until"));
    EXPECT_THAT(ended.output, HasSubstr(" were simulated"));
  }
}

// Each takes many seconds to the first thing that it could show.
TEST(InterruptionTest, WhatHasNothingToShowSaysSoInALine) {
  for (const std::string command : {"explore", "plan"}) {
    testing::Ended ended;
    // Again where the signal came before the program had its handler.
    for (double seconds = 0.05; ended.code < 0 && seconds < 5; seconds *= 2) {
      const Process process(command + " --job llama3_405b:tp=8,pp=64,gbs=512 --cluster h100x512");
      process.signal_after(seconds, SIGTERM);
      ended = process.end();
    }
    EXPECT_EQ(ended.code, 143) << ended.output;
    EXPECT_THAT(ended.output, HasSubstr("dovetail: interrupted\n"));
    EXPECT_THAT(ended.output, Not(HasSubstr("tp=")));
  }
}

TEST(InterruptionTest, EvaluateHasAnsweredTheLinesBefore) {
  const Process evaluate("evaluate");
  evaluate.tell(
      "{\"workload\": \"mlp\", \"cluster\": \"a100x8\", \"policy\": \"ddp\"}\n"
      "{\"job\": \"llama3_405b:tp=8,pp=64,gbs=512\", \"cluster\": \"h100x512\", \"want\": "
      "\"plan\"}\n");
  EXPECT_THAT(evaluate.line(), StartsWith("{\"origin\":\"simulated\",\"policy\":\"torch-ddp:"));
  evaluate.signal_after(0, SIGTERM);
  const testing::Ended ended = evaluate.end();
  EXPECT_EQ(ended.code, 143) << ended.output;
  EXPECT_THAT(ended.output, HasSubstr("dovetail: interrupted\n"));
  EXPECT_THAT(ended.output, Not(HasSubstr("{")));
}

}  // namespace
}  // namespace dovetail

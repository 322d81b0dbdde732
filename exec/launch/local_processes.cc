// Starts the ranks of a job as processes of this machine with posix_spawn, passes on what they
// print, and ends all of them when one fails.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/local_processes.h"

#include "base/error.h"
#include "exec/launch/socket.h"
#include "exec/launch/world.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <string_view>

extern char** environ;

namespace dovetail::exec::launch {
namespace {

constexpr int kPollMs = 20;
constexpr std::size_t kMostText = std::size_t{1} << 20;  // of either stream; the rest is dropped
constexpr std::array<std::string_view, 7> kForeign = {
    "OMPI_", "PMIX_", "PMI_", "MPI_LOCAL", "SLURM_", "MASTER_", "TORCHELASTIC_"};

struct Pipe {
  Descriptor read;
  Descriptor write;
};

Pipe make_pipe() {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) throw DeviceError("pipe2: " + errno_text(errno));
  return {.read = Descriptor(ends[0]), .write = Descriptor(ends[1])};
}

// A port such that it and the candidates after it (world.h) are probably free.
std::uint16_t free_port() {
  for (int attempt = 0; attempt < 16; ++attempt) {
    const std::optional<Descriptor> listener = listen_on("127.0.0.1", 0);
    if (!listener) continue;
    const std::uint16_t port = local_port(*listener);
    if (port <= 65535 - kStorePorts) return port;
  }
  throw DeviceError("no free port on 127.0.0.1");
}

// This process's variables without those of launchers, overlaid with what the rank gets.
std::vector<std::string> environment_of(const Variables& variables) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string name(text.substr(0, text.find('=')));
    const bool foreign = std::ranges::any_of(
        kForeign, [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (!foreign && !variables.contains(name)) result.emplace_back(text);
  }
  for (const auto& [name, value] : variables) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What a process's output goes to.
struct Outputs {
  int output = -1;  // -1: nowhere
  int errors = -1;
};

pid_t spawn(std::vector<std::string> command, const Variables& variables, const Outputs& outputs) {
  std::vector<std::string> environment = environment_of(variables);
  const std::vector<char*> arguments = pointers_to(command);
  const std::vector<char*> entries = pointers_to(environment);
  posix_spawn_file_actions_t actions{};
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (outputs.output >= 0) {
    posix_spawn_file_actions_adddup2(&actions, outputs.output, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  }
  posix_spawn_file_actions_adddup2(&actions, outputs.errors, STDERR_FILENO);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, command.front().c_str(), &actions, nullptr, arguments.data(),
                                entries.data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw DeviceError(command.front() + ": " + errno_text(error));
  return pid;
}

// The processes of one job. Whoever leaves early takes them along: none outlives this.
class Children {
 public:
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;
  ~Children() {
    kill_all();
    while (running() > 0) reap(0);
  }

  void add(pid_t pid) {
    pids_.push_back(pid);
    codes_.emplace_back(std::nullopt);
  }
  // Collects those that have ended. `flags`: WNOHANG, or 0 to wait for one after the other.
  void reap(int flags) {
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      if (codes_[i]) continue;
      int status = 0;
      const pid_t ended = waitpid(pids_[i], &status, flags);
      if (ended == 0 || (ended < 0 && errno == EINTR)) continue;
      if (ended < 0) codes_[i] = 127;  // somebody else reaped it
      if (ended > 0) codes_[i] = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    }
  }
  void kill_all() const {
    for (std::size_t i = 0; i < pids_.size(); ++i) {
      if (!codes_[i]) kill(pids_[i], SIGKILL);
    }
  }
  [[nodiscard]] std::size_t running() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(codes_, [](const auto& code) { return !code.has_value(); }));
  }
  [[nodiscard]] bool any_failed() const {
    return std::ranges::any_of(codes_, [](const auto& code) { return code.value_or(0) != 0; });
  }
  [[nodiscard]] std::vector<int> codes() const {
    std::vector<int> result;
    for (const std::optional<int>& code : codes_) result.push_back(code.value_or(-1));
    return result;
  }

 private:
  std::vector<pid_t> pids_;
  std::vector<std::optional<int>> codes_;
};

// Appends what can be read now; false once the other end is closed.
bool read_some(const Descriptor& from, std::string& text) {
  std::array<char, 4096> block{};
  const ssize_t size = read(from.get(), block.data(), block.size());
  if (size < 0) return errno == EINTR || errno == EAGAIN;
  if (text.size() < kMostText) text.append(block.data(), static_cast<std::size_t>(size));
  return size > 0;
}

// Waits a little, and reads what came meanwhile; false when nothing did. A closed pipe is given up.
bool read_both(Descriptor& output, Descriptor& errors, ProcessesResult& result) {
  std::array<pollfd, 2> polled = {
      {{.fd = output.get(), .events = POLLIN, .revents = 0},
       {.fd = errors.get(), .events = POLLIN, .revents = 0}}};  // -1 is ignored by poll()
  if (poll(polled.data(), polled.size(), kPollMs) <= 0) return false;
  if (polled[0].revents != 0 && !read_some(output, result.output)) output.reset();
  if (polled[1].revents != 0 && !read_some(errors, result.errors)) errors.reset();
  return true;
}

}  // namespace

bool ProcessesResult::succeeded() const {
  return in_time && std::ranges::all_of(exit_codes, [](int code) { return code == 0; });
}

ProcessesResult run_local_processes(const ProcessesOptions& options) {
  DOVETAIL_CHECK(options.ranks >= 1 && !options.command.empty()) << options.ranks;
  Pipe output = make_pipe();
  Pipe errors = make_pipe();
  const std::string port = std::to_string(free_port());
  const std::string store = "127.0.0.1:" + port;
  // So that a job on a port nearby never takes a rank of this one for its own.
  const std::string job = std::to_string(getpid()) + "." + port;
  Children children;
  for (std::int32_t rank = 0; rank < options.ranks; ++rank) {
    Variables variables = options.environment;
    if (options.of_rank) variables.merge(options.of_rank(rank));
    variables["RANK"] = variables["LOCAL_RANK"] = std::to_string(rank);
    variables["WORLD_SIZE"] = std::to_string(options.ranks);
    variables["DOVETAIL_STORE"] = store;
    variables["TORCHELASTIC_RUN_ID"] = job;
    children.add(
        spawn(options.command, variables,
              {.output = rank == 0 ? output.write.get() : -1, .errors = errors.write.get()}));
  }
  output.write.reset();
  errors.write.reset();

  ProcessesResult result;
  Clock::time_point deadline = Clock::now() + options.deadline;
  bool shortened = false;
  while (children.running() > 0) {
    read_both(output.read, errors.read, result);
    children.reap(WNOHANG);
    if (!shortened && children.any_failed()) {
      deadline = std::min(deadline, Clock::now() + options.grace);
      shortened = true;
    }
    if (children.running() > 0 && Clock::now() >= deadline) {
      result.in_time = false;
      children.kill_all();
      while (children.running() > 0) children.reap(0);
    }
  }
  // What the pipes still hold. A grandchild may keep them open: do not wait for their end.
  while ((output.read.is_open() || errors.read.is_open()) &&
         read_both(output.read, errors.read, result)) {
  }
  result.exit_codes = children.codes();
  return result;
}

}  // namespace dovetail::exec::launch

// One poll loop: heartbeats out, messages in, silence, SIGTERM, and the end of an overdue process.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/launch/monitor.h"

#include "base/error.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace dovetail::exec::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kGoodbyePatience{300};
constexpr std::size_t kLongestText = 4096;

struct NewsHeader {
  std::uint32_t message = 0;
  std::uint32_t length = 0;
};

// SIGTERM as a descriptor to poll. `before` becomes the signal mask to go back to.
Descriptor take_sigterm(sigset_t& before) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  return Descriptor(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

}  // namespace

Monitor::Monitor(Options options, Failure& failure)
    : options_(std::move(options)),
      failure_(failure),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (!wake_.is_open()) throw DeviceError("eventfd: " + errno_text(errno));
  if (options_.is_process) signals_ = take_sigterm(signals_before_);
  next_heartbeat_ = Clock::now();
  last_round_ = options_.clock();
  for (const Peer& peer : options_.peers) {
    watched_.push_back({.peer = peer, .last_heard = last_round_, .inbox = {}});
  }
  polled_.resize(watched_.size() + 2);
  thread_ = std::thread([this] { loop(); });
}

Monitor::~Monitor() {
  leaving_ = true;
  wake();
  thread_.join();
  if (options_.is_process && !failure_.raised()) {
    pthread_sigmask(SIG_SETMASK, &signals_before_, nullptr);
  }
}

void Monitor::wake() { eventfd_write(wake_.get(), 1); }

void Monitor::loop() {
  while (!leaving_) watch_once();
  say_goodbye();
}

void Monitor::watch_once() {
  const bool is_hurried =
      failed_at_ != Clock::time_point{} || terminated_at_ != Clock::time_point{};
  poll_peers(is_hurried ? std::min(next_heartbeat_, Clock::now() + milliseconds(50))
                        : next_heartbeat_);
  const Clock::time_point now = Clock::now();
  for (Watched& watched : watched_) {
    if (watched.state != PeerState::Lost) read_from(watched);
  }
  check_signal();
  check_silence(options_.clock());
  if (now >= next_heartbeat_) {
    tell_all(Message::Heartbeat, "");
    next_heartbeat_ = now + options_.heartbeat;
  }
  if (failure_.raised() && !announced_) {
    announced_ = true;
    failed_at_ = now;
    tell_all(Message::Failed, failure_.message());
  }
  if (options_.is_process) end_process_when_overdue(now);
}

int Monitor::poll_peers(Clock::time_point until) {
  for (std::size_t i = 0; i < watched_.size(); ++i) {
    const bool is_lost = watched_[i].state == PeerState::Lost;
    polled_[i] = {is_lost ? -1 : watched_[i].peer.control, POLLIN, 0};
  }
  polled_[watched_.size()] = {wake_.get(), POLLIN, 0};
  polled_[watched_.size() + 1] = {signals_.get(), POLLIN, 0};
  const int ready = poll(polled_.data(), polled_.size(), milliseconds_until(until));
  eventfd_t count = 0;
  eventfd_read(wake_.get(), &count);
  return ready;
}

void Monitor::read_from(Watched& watched) {
  std::array<char, 1024> buffer{};
  while (true) {
    const ssize_t got = recv(watched.peer.control, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) break;
    if (got <= 0) {
      lose(watched, "its connection closed");
      break;
    }
    watched.last_heard = options_.clock();
    watched.inbox.append(buffer.data(), static_cast<std::size_t>(got));
    // Messages first: a goodbye may stand before the end of the stream.
    NewsHeader header;
    while (watched.inbox.size() >= sizeof(header)) {
      std::memcpy(&header, watched.inbox.data(), sizeof(header));
      const std::size_t length = std::min<std::size_t>(header.length, kLongestText);
      if (watched.inbox.size() < sizeof(header) + length) break;
      const std::string text = watched.inbox.substr(sizeof(header), length);
      watched.inbox.erase(0, sizeof(header) + length);
      handle(watched, static_cast<Message>(header.message), text);
    }
  }
}

void Monitor::handle(Watched& watched, Message message, const std::string& text) {
  switch (message) {
    case Message::Heartbeat:
      break;
    case Message::Failed:
      failure_.raise(text);
      break;
    case Message::Goodbye:
      // Our side closes too, so that the peer need not wait when it leaves.
      watched.state = PeerState::Left;
      shutdown(watched.peer.control, SHUT_WR);
      break;
  }
}

void Monitor::lose(Watched& watched, const std::string& how) {
  if (watched.state == PeerState::Alive) {
    failure_.raise("rank " + std::to_string(watched.peer.rank.value) + " died (" + how + ")");
  }
  watched.state = PeerState::Lost;
}

void Monitor::check_silence(Clock::time_point now) {
  // This process was itself stopped, or the machine slept: nobody could have been heard.
  if (now - last_round_ > options_.silence / 2) {
    for (Watched& watched : watched_) watched.last_heard = now;
  }
  last_round_ = now;
  if (!options_.is_process) return;
  for (Watched& watched : watched_) {
    if (watched.state != PeerState::Alive || now - watched.last_heard < options_.silence) continue;
    failure_.raise("rank " + std::to_string(watched.peer.rank.value) +
                   " does not answer (no heartbeat for " + to_string(options_.silence) +
                   ": stopped, or its host is gone)");
    watched.state = PeerState::Left;
  }
}

void Monitor::check_signal() {
  if (!signals_.is_open()) return;
  signalfd_siginfo info{};
  if (read(signals_.get(), &info, sizeof(info)) == sizeof(info) &&
      terminated_at_ == Clock::time_point{}) {
    terminated_at_ = Clock::now();
  }
  // The launcher ends everybody as soon as one rank died; the news of who it was is on its way.
  if (terminated_at_ != Clock::time_point{} &&
      Clock::now() - terminated_at_ > options_.graces.sigterm_news) {
    failure_.raise("the job was ended by SIGTERM");
  }
}

void Monitor::end_process_when_overdue(Clock::time_point now) {
  const bool is_overdue =
      (failed_at_ != Clock::time_point{} && now - failed_at_ > options_.graces.end) ||
      (terminated_at_ != Clock::time_point{} && now - terminated_at_ > options_.graces.sigterm_end);
  if (!is_overdue || leaving_) return;
  const std::string words = "dovetail: " + options_.last_words() + "\n";
  static_cast<void>(!write(STDERR_FILENO, words.data(), words.size()));
  _exit(3);  // other threads are stuck: no destructor could run
}

void Monitor::tell_all(Message message, const std::string& text) {
  const NewsHeader header{
      .message = static_cast<std::uint32_t>(message),
      .length = static_cast<std::uint32_t>(std::min(text.size(), kLongestText))};
  std::string bytes(sizeof(header), '\0');
  std::memcpy(bytes.data(), &header, sizeof(header));
  bytes += text.substr(0, kLongestText);
  for (const Watched& watched : watched_) {
    if (watched.state == PeerState::Lost) continue;
    // A peer whose buffer is full after many unread heartbeats is silent itself, and found so.
    send(watched.peer.control, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

bool Monitor::somebody_listens() const {
  return std::any_of(watched_.begin(), watched_.end(),
                     [](const Watched& watched) { return watched.state != PeerState::Lost; });
}

// Closing a socket with unread heartbeats would reset the connection and could destroy our last
// message on its way; so our side is closed for writing, and the peer's end awaited.
void Monitor::say_goodbye() {
  if (failure_.raised() && !announced_) tell_all(Message::Failed, failure_.message());
  tell_all(Message::Goodbye, "");
  for (const Watched& watched : watched_) shutdown(watched.peer.control, SHUT_WR);
  for (Watched& watched : watched_) {
    if (watched.state == PeerState::Alive) watched.state = PeerState::Left;
  }
  const Clock::time_point deadline = Clock::now() + kGoodbyePatience;
  while (somebody_listens() && Clock::now() < deadline) {
    poll_peers(deadline);
    for (Watched& watched : watched_) {
      if (watched.state != PeerState::Lost) read_from(watched);
    }
  }
}

}  // namespace dovetail::exec::launch

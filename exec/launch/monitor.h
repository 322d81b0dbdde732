// The thread that watches whether the other ranks live, and tells them when one does not.
//
// A star around rank 0: rank 0's monitor watches every rank, the others watch rank 0. Whatever
// raises the Failure of a rank (a lost peer, silence, abort, SIGTERM, a message), its monitor
// passes on. The thread sleeps in poll() and wakes up once per heartbeat.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "exec/launch/failure.h"
#include "exec/launch/socket.h"

#include <poll.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace dovetail::exec::launch {

class Monitor {
 public:
  struct Peer {
    Rank rank;
    int control = -1;  // owned by the session
  };
  struct Options {
    std::vector<Peer> peers{};
    Duration heartbeat = std::chrono::milliseconds(250);
    Duration silence = std::chrono::seconds(5);  // then a peer counts as dead
    // A process also takes SIGTERM from its blocked state, and is ended some time after a failure.
    bool is_process = true;
    Graces graces{};
    std::function<Clock::time_point()> clock = Clock::now;  // by which peers fall silent
    std::function<std::string()> last_words{};  // what a process prints when it is ended
  };

  // REQUIRES: the failure outlives the monitor. For a process, blocks SIGTERM in the calling thread
  // and those it starts from now on; the destructor takes that back unless the job has failed, so
  // that the last message still gets out.
  Monitor(Options options, Failure& failure);
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;
  // Says goodbye, or passes on the failure, and waits shortly until the peers have heard it.
  ~Monitor();

  // Passes on a failure that this rank has raised.
  void wake();

 private:
  enum class Message : std::uint32_t { Heartbeat, Failed, Goodbye };
  enum class PeerState { Alive, Left, Lost };
  struct Watched {
    Peer peer;
    PeerState state = PeerState::Alive;
    Clock::time_point last_heard;
    std::string inbox;
  };

  void loop();
  void watch_once();
  void read_from(Watched& watched);
  void handle(Watched& watched, Message message, const std::string& text);
  void lose(Watched& watched, const std::string& how);
  void check_silence(Clock::time_point now);
  void check_signal();
  void end_process_when_overdue(Clock::time_point now);
  void tell_all(Message message, const std::string& text);
  void say_goodbye();
  [[nodiscard]] bool somebody_listens() const;
  int poll_peers(Clock::time_point until);

  Options options_;
  Failure& failure_;
  Descriptor wake_;
  Descriptor signals_;
  sigset_t signals_before_{};
  std::vector<Watched> watched_;
  std::vector<pollfd> polled_;  // one per watched peer, then wake_ and signals_
  Clock::time_point next_heartbeat_;
  Clock::time_point last_round_;
  Clock::time_point failed_at_{};
  Clock::time_point terminated_at_{};  // when SIGTERM came
  bool announced_ = false;
  std::atomic<bool> leaving_ = false;
  std::thread thread_;  // last: it starts when all else exists
};

}  // namespace dovetail::exec::launch

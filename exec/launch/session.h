// A Session: one rank's membership in the job, from the meeting of all ranks to the end.
//
//   auto session = launch::connect(launch::world_from(environment), {...});   processes, or
//   launch::run_local_ranks({.ranks = 2}, [](launch::Session& session) {...});   threads
//   session->barrier();
//   std::string plan_hash = session->broadcast(mine);
//
// All ranks make the same calls in the same order; rank 0 answers them (a star), and a call that
// differs between ranks is an error that names both. Calls may come from any thread, one at a time.
//
// Liveness. A monitor thread per rank sends a heartbeat every 250 ms. A rank whose connection
// closes or that is silent for 5 s (stopped, host gone; see heartbeat_timeout()) is declared dead,
// and every rank is told. From then on failure().fd() is readable, and calls and transports throw
// DeviceError
//   rank 0: rank 1 died (its connection closed) during all-reduce of bucket 3
// A process that has not ended 4 s after that is ended by its monitor: the message on stderr, exit
// code 3. SIGTERM (mpirun sends it to the survivors at once) is held back for up to half a second,
// so that the message can still name the rank that died.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "exec/launch/affinity.h"
#include "exec/launch/failure.h"
#include "exec/launch/store.h"
#include "exec/launch/world.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::exec::launch {

class Monitor;

struct SessionOptions {
  std::string store{};                           // HOST:PORT of rank 0; empty: see world.h
  std::string network_namespace{};               // prefix; rank r's data travels in PREFIXr
  Duration patience = std::chrono::seconds(60);  // for all ranks to meet
  Duration heartbeat = std::chrono::milliseconds(250);
  Duration silence = kHeartbeatTimeout;
  Duration call_deadline = std::chrono::minutes(10);  // for the other ranks to make the same call
  Graces graces{};
  std::function<Clock::time_point()> clock = Clock::now;  // by which ranks fall silent
  Cores cores = Cores::OneEach;
};

class Session {
 public:
  // Ranks are processes, or threads of one. Only a process may be ended by its monitor.
  enum class Kind { Process, Thread };

  Session(World world, Links links, Kind kind, SessionOptions options);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  // Leaves in peace; when an exception is on its way out, as abort() does.
  ~Session();

  [[nodiscard]] Rank rank() const { return world_.rank; }
  [[nodiscard]] std::int32_t size() const { return world_.size; }
  [[nodiscard]] const World& world() const { return world_; }

  // Blocks until all ranks are here. `what` stands in error messages.
  void barrier(std::string_view what = "a barrier");
  // The bytes of rank 0, on every rank.
  std::string broadcast(std::string_view bytes, std::string_view what = "a broadcast");
  // On rank 0 the bytes of every rank in rank order; elsewhere empty.
  std::vector<std::string> gather(std::string_view bytes, std::string_view what = "a gather");
  // The bytes of every rank in rank order, on every rank.
  std::vector<std::string> all_gather(std::string_view bytes,
                                      std::string_view what = "an all-gather");

  // This rank cannot go on: all ranks are told why. Later calls on any rank throw.
  void abort(const std::string& reason);

  [[nodiscard]] bool failed() const { return failure_.raised(); }
  [[nodiscard]] const Failure& failure() const { return failure_; }
  // DeviceError "rank 0: WHY during LABEL". WHY is the failure of the job if it becomes known in
  // time (Graces::news), else `suspicion`.
  [[noreturn]] void throw_failure(const std::string& suspicion, std::string_view label) const;

  // Where this rank's data sockets listen: its address inside its namespace, else the one through
  // which it reaches rank 0. REQUIRES: called from a thread inside the namespace, if there is one.
  [[nodiscard]] std::string data_address() const;
  [[nodiscard]] const std::string& network_namespace() const { return options_.network_namespace; }

 private:
  enum class CallKind : std::uint32_t { Barrier, Broadcast, Gather, AllGather };
  // One call under way; the ranks tell each other its kind.
  struct Call {
    CallKind kind = CallKind::Barrier;
    std::string_view what;
  };
  std::vector<std::string> collect(const Call& call, std::string_view bytes);
  std::string distribute(const Call& call, std::string_view bytes);
  void send(Rank to, const Call& call, std::string_view bytes);
  std::string receive(Rank from, const Call& call);
  void throw_unless_done(IoStatus status, Rank peer, const Call& call) const;
  [[nodiscard]] const Link& link_to(Rank peer) const;

  World world_;
  Links links_;
  SessionOptions options_;
  Failure failure_;
  std::mutex calls_;  // one call at a time
  mutable std::mutex words_mutex_;
  mutable std::string last_words_;  // the latest failure thrown
  int exceptions_at_start_ = 0;
  std::unique_ptr<Monitor> monitor_;  // absent in a job of one rank
};

// Runs body; when it throws, the other ranks are told why before the exception goes on.
void tell_others_of_errors(Session& session, const std::function<void()>& body);

// Meets the other ranks, pins the calling thread to its core (Cores::OneEach) and moves it into the
// namespace; both hold for the threads it starts from then on.
std::unique_ptr<Session> connect(const World& world, const SessionOptions& options = {});

}  // namespace dovetail::exec::launch

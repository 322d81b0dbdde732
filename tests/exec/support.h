// What the tests of exec share: a small training step, plans for it written by hand, and ranks as
// threads that reduce through shared memory.
//
// The step has two layers; backward runs from the last to the first:
//   l1.forward  l2.forward  l2.backward -> g2  l1.backward -> g1  l2.update <- g2  l1.update <- g1
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/cpu/backend.h"
#include "exec/exchange.h"
#include "exec/run.h"
#include "schedule/scheduled_program.h"

#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::exec::testing {

inline constexpr TensorId kW1{0}, kW2{1}, kG1{2}, kG2{3};
inline constexpr OpId kForward1{0}, kForward2{1}, kBackward2{2}, kBackward1{3}, kUpdate2{4},
    kUpdate1{5};
inline constexpr std::int64_t kNumel1 = 1000, kNumel2 = 70;

schedule::Program two_layers(std::int64_t ranks);

// Bucket 0 carries g2, bucket 1 carries g1.
struct PlanOptions {
  std::int64_t ranks = 2;
  schedule::BucketMode mode = schedule::BucketMode::View;
  schedule::StreamChoice stream = schedule::CommStream{};
  schedule::WaitPoint wait = schedule::WaitPoint::FirstUse;
  Bytes padding = Bytes(0);  // behind the members of each bucket
  schedule::Collective collective = schedule::Collective::AllReduce;  // else scatter and gather
};
schedule::ScheduledProgram two_buckets(const PlanOptions& options);

// Removes the waits of the compute stream: an illegal plan.
schedule::ScheduledProgram without_waits(schedule::ScheduledProgram plan);

// The only command of the plan that satisfies a predicate, e.g. one kind of one bucket.
CommandId find_command(const schedule::ScheduledProgram& plan,
                       const std::function<bool(const schedule::Command&)>& predicate);

// Ranks as threads: a barrier, and per stream and group one meeting point of a shared-memory
// transport that adds up in rank order and first sleeps for `delay`. One plan per object: a second
// one that opens the same groups would meet in the same places.
class ThreadRanks {
 public:
  explicit ThreadRanks(std::int64_t ranks, std::chrono::microseconds delay = {});
  ~ThreadRanks();

  [[nodiscard]] cpu::Ports ports(Rank rank);
  [[nodiscard]] Exchange exchange(Rank rank);
  // Before its collectives begin, each rank calls this on their thread. REQUIRES: no ports yet.
  void hold(std::function<void(Rank)> until) { hold_ = std::move(until); }
  // From then on, collectives of this rank throw DeviceError "LABEL: link cut".
  void cut(Rank rank);
  // Runs body(rank) on one thread per rank; rethrows the first exception by rank.
  void run(const std::function<void(Rank)>& body);

  class Meeting;

 private:
  Meeting& meeting(StreamId stream, std::span<const Rank> ranks);

  std::int64_t ranks_;
  std::chrono::microseconds delay_;
  std::function<void(Rank)> hold_;
  std::barrier<> barrier_;
  std::mutex mutex_;
  std::map<std::pair<StreamId, std::vector<Rank>>, std::unique_ptr<Meeting>> meetings_;
  std::vector<char> cut_;
  std::vector<std::string> said_;  // by rank, while ranks exchange bytes
};

// Every rank runs the plan on the cpu backend; one result per rank.
std::vector<RankResult> run_on_threads(const schedule::ScheduledProgram& plan,
                                       const RunOptions& options,
                                       std::chrono::microseconds delay = {});

// The same, but no collective begins before its rank has run all ops of the step: whoever does not wait
// for a collective is sure to come too early.
std::vector<RankResult> run_with_late_collectives(const schedule::ScheduledProgram& plan,
                                                  const RunOptions& options);

CheckResult sum_of_checks(const std::vector<RankResult>& results);

}  // namespace dovetail::exec::testing

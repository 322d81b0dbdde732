// The engine of the emulated devices: tasks that wait for other tasks, one thread per device.
//
// Streams, events and graphs all become tasks with predecessors; the engine of a device runs, one
// after the other, tasks whose predecessors are done, in an order drawn from the seed: each lane
// (stream) has a drawn weight, so that in some runs one stream races ahead and in others it lags.
// Some seeds make an engine hesitate, so that the host runs ahead of it. A task that waits for
// another rank (a collective) is asked again and again and holds up nothing but its followers.
//
// One lock guards everything that calls of the host touch; tasks run without it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/random.h"
#include "tests/emulated/races.h"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::emulated {

enum class Progress { Done, Waiting };
using Run = std::function<Progress()>;

struct Task;
using TaskRef = std::shared_ptr<Task>;
struct Task {
  std::int32_t device = 0;
  std::size_t lane = 0;
  Run run;                  // empty: nothing to do
  std::size_t missing = 0;  // predecessors that are not done
  bool is_done = false;
  std::int64_t done_ns = 0;  // of the host's clock
  std::vector<TaskRef> followers;
};

class Machine {
 public:
  // Lives to the end of the process: its threads are never stopped.
  static Machine& instance();

  std::mutex mutex;
  Races races;                         // under mutex
  std::map<std::int32_t, Clock> host;  // what the host knows to be done, by device; under mutex

  struct Submission {
    std::int32_t device = 0;
    std::size_t lane = 0;
    Run run{};
    std::vector<TaskRef> after{};  // empty references are allowed
  };
  // REQUIRES (this and the next two): the lock is held.
  TaskRef submit(Submission what);
  void await(std::unique_lock<std::mutex>& lock, const TaskRef& task);
  void await_device(std::unique_lock<std::mutex>& lock, std::int32_t device);
  // Whether it is done; tells its engine that somebody looks.
  bool is_done(const TaskRef& task);
  // The same for who asks again and again: gives the engine a moment, so that asking does not take the
  // processor that the answer needs.
  bool is_done_soon(std::unique_lock<std::mutex>& lock, const TaskRef& task);

 private:
  using Moment = std::chrono::steady_clock::time_point;
  struct Engine {
    std::vector<TaskRef> ready;
    std::vector<TaskRef> waiting;  // for other ranks
    std::size_t unfinished = 0;
    std::optional<std::uint64_t> seed;
    Random random{0};
    std::map<std::size_t, double> weights;  // of lanes
    bool hesitates = false;
    bool is_watched = false;  // somebody waits for it
    Moment last_submission{};
    std::condition_variable changed;
  };
  Engine& engine_of(std::int32_t device);
  void reseed(Engine& engine, std::int32_t device);
  void work(Engine& engine);
  void hesitate(Engine& engine, std::unique_lock<std::mutex>& lock);
  TaskRef draw(Engine& engine);
  void run(Engine& engine, const TaskRef& task, std::unique_lock<std::mutex>& lock);
  bool poll(Engine& engine, std::unique_lock<std::mutex>& lock);
  void finish(Engine& engine, const TaskRef& task);

  std::map<std::int32_t, std::unique_ptr<Engine>> engines_;
  std::condition_variable done_;
};

}  // namespace dovetail::emulated

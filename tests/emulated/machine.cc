// The engines of an emulated device: queues of work that streams fill, executed in an order that
// stream order and events allow and nothing more.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/machine.h"

#include "tests/emulated/control.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

namespace dovetail::emulated {
namespace {

constexpr auto kHesitation = std::chrono::microseconds(500);  // after the last submission
constexpr auto kQueryPause = std::chrono::microseconds(200);
constexpr auto kPollPause = std::chrono::microseconds(50);

std::int64_t clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Machine& Machine::instance() {
  static auto* const the = new Machine;
  return *the;
}

Machine::Engine& Machine::engine_of(std::int32_t device) {
  std::unique_ptr<Engine>& engine = engines_[device];
  if (engine != nullptr) return *engine;
  engine = std::make_unique<Engine>();
  std::thread([this, each = engine.get()] { work(*each); }).detach();
  return *engine;
}

// A new seed counts from when nothing is under way.
void Machine::reseed(Engine& engine, std::int32_t device) {
  const std::uint64_t wanted = seed();
  if (engine.unfinished > 0 || engine.seed == wanted) return;
  engine.seed = wanted;
  engine.random = Random(wanted * 64 + static_cast<std::uint64_t>(device));
  engine.hesitates = engine.random.between(0, 1) == 1;
  engine.weights.clear();
}

TaskRef Machine::submit(Submission what) {
  auto task = std::make_shared<Task>();
  task->device = what.device;
  task->lane = what.lane;
  task->run = std::move(what.run);
  for (const TaskRef& before : what.after) {
    if (before == nullptr || before->is_done) continue;
    ++task->missing;
    before->followers.push_back(task);
  }
  Engine& engine = engine_of(what.device);
  reseed(engine, what.device);
  ++engine.unfinished;
  engine.last_submission = std::chrono::steady_clock::now();
  if (task->missing == 0) {
    engine.ready.push_back(task);
    engine.changed.notify_one();
  }
  return task;
}

bool Machine::is_done(const TaskRef& task) {
  if (task == nullptr || task->is_done) return true;
  Engine& engine = engine_of(task->device);
  if (!std::exchange(engine.is_watched, true)) engine.changed.notify_one();
  return false;
}

bool Machine::is_done_soon(std::unique_lock<std::mutex>& lock, const TaskRef& task) {
  return done_.wait_for(lock, kQueryPause, [&] { return is_done(task); });
}

void Machine::await(std::unique_lock<std::mutex>& lock, const TaskRef& task) {
  done_.wait(lock, [&] { return is_done(task); });
}

void Machine::await_device(std::unique_lock<std::mutex>& lock, std::int32_t device) {
  Engine& engine = engine_of(device);
  engine.is_watched = true;
  engine.changed.notify_one();
  done_.wait(lock, [&] { return engine.unfinished == 0; });
}

void Machine::work(Engine& engine) {
  std::unique_lock lock(mutex);
  for (;;) {
    engine.changed.wait(lock, [&] { return !engine.ready.empty() || !engine.waiting.empty(); });
    if (engine.hesitates) hesitate(engine, lock);
    if (const TaskRef task = draw(engine)) {
      run(engine, task, lock);
    } else if (!poll(engine, lock)) {
      engine.changed.wait_for(lock, kPollPause, [&] { return !engine.ready.empty(); });
    }
  }
}

// Until the host looks, or has been still for a while: a device makes progress by itself.
void Machine::hesitate(Engine& engine, std::unique_lock<std::mutex>& lock) {
  while (!engine.is_watched) {
    const Moment end = engine.last_submission + kHesitation;
    if (std::chrono::steady_clock::now() >= end) return;
    engine.changed.wait_until(lock, end);
  }
}

TaskRef Machine::draw(Engine& engine) {
  if (engine.ready.empty()) return nullptr;
  constexpr std::array<double, 4> kWeights = {1, 1, 8, 64};
  double sum = 0;
  for (const TaskRef& task : engine.ready) {
    const auto known = engine.weights.find(task->lane);
    sum += known != engine.weights.end()
               ? known->second
               : engine.weights[task->lane] =
                     kWeights[static_cast<std::size_t>(engine.random.between(0, 3))];
  }
  double place = engine.random.uniform() * sum;
  std::size_t chosen = 0;
  while (chosen + 1 < engine.ready.size()) {
    place -= engine.weights[engine.ready[chosen]->lane];
    if (place < 0) break;
    ++chosen;
  }
  TaskRef task = std::move(engine.ready[chosen]);
  engine.ready.erase(engine.ready.begin() + static_cast<std::ptrdiff_t>(chosen));
  return task;
}

void Machine::run(Engine& engine, const TaskRef& task, std::unique_lock<std::mutex>& lock) {
  Progress progress = Progress::Done;
  if (task->run) {
    lock.unlock();
    progress = task->run();
    lock.lock();
  }
  if (progress == Progress::Waiting) {
    engine.waiting.push_back(task);
  } else {
    finish(engine, task);
  }
}

// Asks everybody who waits once; true if one was done.
bool Machine::poll(Engine& engine, std::unique_lock<std::mutex>& lock) {
  bool moved = false;
  for (const TaskRef& task : std::exchange(engine.waiting, {})) {
    const std::size_t before = engine.waiting.size();
    run(engine, task, lock);
    moved = moved || engine.waiting.size() == before;
  }
  return moved;
}

void Machine::finish(Engine& engine, const TaskRef& task) {
  task->is_done = true;
  task->done_ns = clock_ns();
  task->run = nullptr;  // what it holds may be freed now
  --engine.unfinished;
  for (const TaskRef& follower : std::exchange(task->followers, {})) {
    if (--follower->missing > 0) continue;
    Engine& its = engine_of(follower->device);
    its.ready.push_back(follower);
    its.changed.notify_one();
  }
  if (engine.unfinished == 0) engine.is_watched = false;
  done_.notify_all();
}

}  // namespace dovetail::emulated

// A backend on a virtual clock: each command takes its given time and only moves the clock, so
// that the run loop can be held against the simulator to the nanosecond.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/fake/fake_backend.h"

#include "base/error.h"

#include <algorithm>
#include <sstream>
#include <utility>
#include <variant>

namespace dovetail::exec::fake {

FakeBackend::FakeBackend(Durations durations) : durations_(std::move(durations)) {
  DOVETAIL_CHECK(static_cast<bool>(durations_.duration)) << "no durations given";
}

FakeBackend::FakeBackend(Durations durations, FakeWorld& world, Rank rank)
    : FakeBackend(std::move(durations)) {
  world_ = &world;
  rank_ = rank;
}

std::int64_t FakeBackend::latest() const {
  std::int64_t latest = 0;
  for (const auto& [stream, time] : time_ns_) latest = std::max(latest, time);
  return latest;
}

void FakeBackend::barrier() {
  if (world_ == nullptr) return;
  time_ns_[schedule::kComputeStream] = world_->meet(std::max(latest(), world_->reached(rank_)));
}

void FakeBackend::note(const schedule::Command& command, StreamId stream, std::int64_t start_ns,
                       std::int64_t end_ns) {
  timings_.push_back({.command = command.id,
                      .stream = stream,
                      .step = step_,
                      .start_ns = start_ns,
                      .end_ns = end_ns});
}

std::int64_t& FakeBackend::issued_to(const schedule::Command& command) {
  std::int64_t& compute = time_ns_[schedule::kComputeStream];
  if (command.stream == schedule::kComputeStream) return compute;
  const std::int64_t start = compute;
  if (durations_.issue) compute += durations_.issue(command).count();
  note(command, schedule::kComputeStream, start, compute);
  std::int64_t& time = time_ns_[command.stream];
  time = std::max(time, compute);
  return time;
}

void FakeBackend::execute(const schedule::Command& command) {
  std::int64_t& time = issued_to(command);
  const std::int64_t start = time;
  const Duration duration = durations_.duration(command);
  if (world_ == nullptr) {
    time += duration.count();
  } else if (schedule::bucket_collective(command) != nullptr) {
    time = world_->transferred(world_->meet(start), duration);
  } else {
    time = world_->computed(rank_, start, duration);
  }
  note(command, command.stream, start, time);
}

void FakeBackend::begin_step(std::int32_t step) {
  step_ = step;
  const std::int64_t begin = latest();
  for (auto& [stream, time] : time_ns_) time = begin;
  time_ns_[schedule::kComputeStream] = begin;
  recorded_ns_.clear();
}

void FakeBackend::run_op(const schedule::Command& command, const schedule::RunOp&) {
  execute(command);
}

void FakeBackend::communicate(const schedule::Command& command, const schedule::Communicate&) {
  execute(command);
}

void FakeBackend::copy(const schedule::Command& command, const schedule::Copy&) {
  execute(command);
}

void FakeBackend::scale(const schedule::Command& command, const schedule::Scale&) {
  execute(command);
}

void FakeBackend::release(const schedule::Command&, const schedule::Release&) {}

void FakeBackend::record(const schedule::Command& command, const schedule::RecordEvent& action) {
  const std::int64_t time = issued_to(command);
  recorded_ns_[action.event] = time;
  note(command, command.stream, time, time);
}

void FakeBackend::wait(const schedule::Command& command, const schedule::WaitEvent& action) {
  const auto event = recorded_ns_.find(action.event);
  if (event == recorded_ns_.end()) {
    std::ostringstream message;
    message << "command c" << command.id << ": waits for event e" << action.event
            << ", which no earlier command records";
    throw InputError(message.str());
  }
  std::int64_t& time = issued_to(command);
  const std::int64_t start = time;
  time = std::max(time, event->second);
  note(command, command.stream, start, time);
}

std::vector<Timing> FakeBackend::finish() {
  if (world_ != nullptr) world_->reached(rank_) = latest();
  return std::exchange(timings_, {});
}

}  // namespace dovetail::exec::fake

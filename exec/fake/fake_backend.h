// The fake backend: streams and events on a virtual clock with given durations, without threads.
//
// It exists to hold the run loop against the simulator. It plays one rank of a job whose ranks are
// all alike, so a collective's last rank arrives when this one does. Semantics, the same as the cpu
// backend's: the compute stream is the host; issuing a command to a communication stream takes
// `issue` from the compute stream, and the command starts no earlier than the end of its issue;
// each stream executes in order; a wait ends at the later of its stream's time and the event's.
//
//   FakeBackend fake({.duration = [](const Command& c) { return from_us(10); }});
//   RankResult result = run(plan, Rank{0}, fake, {.warmup = 0, .steps = 1});
//
// With a FakeWorld it plays one rank of several that differ: each on a thread of its own, they meet in
// barriers and collectives, and their cores may be away at times (fake_world.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "exec/backend.h"
#include "exec/fake/fake_world.h"
#include "schedule/scheduled_program.h"

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

namespace dovetail::exec::fake {

struct Durations {
  // Of ops, collectives and copies, on the stream that executes them. REQUIRES: not empty.
  std::function<Duration(const schedule::Command&)> duration;
  // Compute-stream time to issue a collective, record or wait to a communication stream. Empty: 0.
  std::function<Duration(const schedule::Command&)> issue;
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(Durations durations);
  // REQUIRES: every rank of the world has one, on a thread of its own; the world outlives them; every
  // collective is of all ranks.
  FakeBackend(Durations durations, FakeWorld& world, Rank rank);

  void barrier() override;
  // All streams start the step together, at the end of the step before.
  void begin_step(std::int32_t step) override;
  void run_op(const schedule::Command& command, const schedule::RunOp& action) override;
  void communicate(const schedule::Command& command, const schedule::Communicate& action) override;
  void copy(const schedule::Command& command, const schedule::Copy& action) override;
  void scale(const schedule::Command& command, const schedule::Scale& action) override;
  void release(const schedule::Command& command, const schedule::Release& action) override;
  void record(const schedule::Command& command, const schedule::RecordEvent& action) override;
  // Throws InputError for an event that nobody recorded in this step.
  void wait(const schedule::Command& command, const schedule::WaitEvent& action) override;
  std::vector<Timing> finish() override;
  // Nothing was moved, so nothing is checked.
  CheckResult check_values() override { return {}; }

 private:
  // The time of the command's stream, after the host issued the command to it.
  std::int64_t& issued_to(const schedule::Command& command);
  void execute(const schedule::Command& command);
  void note(const schedule::Command& command, StreamId stream, std::int64_t start_ns,
            std::int64_t end_ns);

  [[nodiscard]] std::int64_t latest() const;

  Durations durations_;
  FakeWorld* world_ = nullptr;  // absent: the other ranks are like this one
  Rank rank_;
  std::int32_t step_ = 0;
  std::map<StreamId, std::int64_t> time_ns_;  // each stream is busy until then
  std::map<EventId, std::int64_t> recorded_ns_;
  std::vector<Timing> timings_;
};

}  // namespace dovetail::exec::fake

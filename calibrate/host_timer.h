// A backend around another backend that notes how long each call takes the host, for calibrations of launch costs,
// which may rest before each step and do something else before an op.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/backend.h"
#include "exec/clock.h"

#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace dovetail::calibrate {

class HostTimer final : public exec::Backend {
 public:
  struct Habits {
    std::function<std::int64_t()> now = exec::now_ns;
    Duration pause = {};  // once all ranks have met
    std::function<void(OpId)> before_op = {};
  };
  // REQUIRES: the inner backend outlives this.
  explicit HostTimer(Backend& inner) : HostTimer(inner, Habits()) {}
  HostTimer(Backend& inner, Habits habits) : inner_(inner), habits_(std::move(habits)) {}

  // Durations of calls in ns, since the last clear().
  std::vector<std::int64_t> run_op_ns, collective_ns, event_ns, copy_ns;
  void clear() {
    run_op_ns.clear();
    collective_ns.clear();
    event_ns.clear();
    copy_ns.clear();
  }

  void barrier() override {
    inner_.barrier();
    if (habits_.pause > Duration{}) std::this_thread::sleep_for(habits_.pause);
  }
  void begin_step(std::int32_t step) override { inner_.begin_step(step); }
  void run_op(const schedule::Command& command, const schedule::RunOp& action) override {
    if (habits_.before_op) habits_.before_op(action.op);
    timed(run_op_ns, [&] { inner_.run_op(command, action); });
  }
  void communicate(const schedule::Command& command, const schedule::Communicate& action) override {
    timed(collective_ns, [&] { inner_.communicate(command, action); });
  }
  void copy(const schedule::Command& command, const schedule::Copy& action) override {
    timed(copy_ns, [&] { inner_.copy(command, action); });
  }
  void scale(const schedule::Command& command, const schedule::Scale& action) override {
    timed(copy_ns, [&] { inner_.scale(command, action); });
  }
  void release(const schedule::Command& command, const schedule::Release& action) override {
    inner_.release(command, action);
  }
  void record(const schedule::Command& command, const schedule::RecordEvent& action) override {
    timed(event_ns, [&] { inner_.record(command, action); });
  }
  void wait(const schedule::Command& command, const schedule::WaitEvent& action) override {
    timed(event_ns, [&] { inner_.wait(command, action); });
  }
  std::vector<exec::Timing> finish() override { return inner_.finish(); }
  std::vector<exec::DeviceWork> device_work() override { return inner_.device_work(); }
  exec::CheckResult check_values() override { return inner_.check_values(); }

 private:
  template <class Call>
  void timed(std::vector<std::int64_t>& samples, const Call& call) {
    const std::int64_t start = habits_.now();
    call();
    samples.push_back(habits_.now() - start);
  }

  Backend& inner_;
  Habits habits_;
};

}  // namespace dovetail::calibrate

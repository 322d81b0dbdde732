// A backend whose clock is ahead of another one's, as on a host that booted earlier.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/backend.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace dovetail::exec::testing {

class Ahead final : public Backend {
 public:
  Ahead(std::unique_ptr<Backend> inner, std::int64_t ns) : inner_(std::move(inner)), ns_(ns) {}
  void barrier() override { inner_->barrier(); }
  void begin_step(std::int32_t step) override { inner_->begin_step(step); }
  void run_op(const schedule::Command& command, const schedule::RunOp& action) override {
    inner_->run_op(command, action);
  }
  void communicate(const schedule::Command& command, const schedule::Communicate& action) override {
    inner_->communicate(command, action);
  }
  void copy(const schedule::Command& command, const schedule::Copy& action) override {
    inner_->copy(command, action);
  }
  void scale(const schedule::Command& command, const schedule::Scale& action) override {
    inner_->scale(command, action);
  }
  void record(const schedule::Command& command, const schedule::RecordEvent& action) override {
    inner_->record(command, action);
  }
  void wait(const schedule::Command& command, const schedule::WaitEvent& action) override {
    inner_->wait(command, action);
  }
  void release(const schedule::Command& command, const schedule::Release& action) override {
    inner_->release(command, action);
  }
  std::vector<Timing> finish() override {
    std::vector<Timing> timings = inner_->finish();
    for (Timing& timing : timings) {
      timing.start_ns += ns_;
      timing.end_ns += ns_;
    }
    return timings;
  }
  std::vector<DeviceWork> device_work() override { return inner_->device_work(); }
  CheckResult check_values() override { return inner_->check_values(); }

 private:
  std::unique_ptr<Backend> inner_;
  std::int64_t ns_;
};

}  // namespace dovetail::exec::testing

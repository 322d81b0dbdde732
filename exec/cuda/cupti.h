// Kernels and copies of the device, as CUPTI records them (`--trace-detail full`).
//
//   ActivityRecorder recorder;                    from here on CUPTI records, at some cost per call
//   { const CommandMark mark(&recorder, id); ... enqueue ... }
//   recorder.take();                              the work of everything marked since the last take
//
// The library is opened when the first recorder is made. It has one set of callbacks and of records
// per process, without a place for a pointer of ours; so recorders share them, and only one may be
// between mark and take at a time. Times are mapped by CUPTI to the clock of our timings.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/cuda/activity.h"

#include <cstddef>
#include <memory>

namespace dovetail::exec::cuda {

class Cupti;

class ActivityRecorder {
 public:
  // Throws DeviceError: built without CUPTI's headers, no library, refused by the driver.
  ActivityRecorder();
  ActivityRecorder(const ActivityRecorder&) = delete;
  ActivityRecorder& operator=(const ActivityRecorder&) = delete;
  ~ActivityRecorder();

  void push(CommandId command);
  void pop();
  // REQUIRES: every stream is idle.
  AttributedWork take();

 private:
  std::shared_ptr<Cupti> cupti_;
};

// What is enqueued in its lifetime belongs to the command. Without a recorder it does nothing.
class CommandMark {
 public:
  CommandMark(ActivityRecorder* recorder, CommandId command) : recorder_(recorder) {
    if (recorder_ != nullptr) recorder_->push(command);
  }
  CommandMark(const CommandMark&) = delete;
  CommandMark& operator=(const CommandMark&) = delete;
  ~CommandMark() {
    if (recorder_ != nullptr) recorder_->pop();
  }

 private:
  ActivityRecorder* recorder_;
};

}  // namespace dovetail::exec::cuda

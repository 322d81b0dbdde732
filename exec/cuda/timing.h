// When the commands of a step began and ended, by pairs of CUDA events around them.
//
//   timer.anchor(stream, watch);                 the step's zero on the host's clock
//   const std::size_t span = timer.begin(command, id, stream);
//   ... enqueue ...
//   timer.end(span, stream);
//   timer.read(step);                            once everything is idle
//
// Under capture the same calls put event-record nodes into the graph, and every replay refreshes
// the events, so read() works without recording anew. What an empty pair costs is measured once and
// taken off every span (clock_map.h).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/backend.h"
#include "exec/cuda/clock_map.h"
#include "exec/cuda/handles.h"
#include "exec/cuda/watch.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace dovetail::exec::cuda {

// True when the work before the event is done.
bool is_done(cudaEvent_t event);

enum class Recording { Eager, Captured };

class StepTimer {
 public:
  // Measures the empty pair on this stream, with work queued ahead of it as in a step.
  StepTimer(cudaStream_t stream, Watch& watch);

  // REQUIRES: the device is idle but for what stands on `stream`, which is waited for.
  void anchor(cudaStream_t stream, Watch& watch);

  // Forgets the spans of the step before.
  void restart(Recording recording);
  std::size_t begin(CommandId command, StreamId id, cudaStream_t stream);
  void end(std::size_t span, cudaStream_t stream);

  // REQUIRES: all spans have ended.
  [[nodiscard]] std::vector<Timing> read(std::int32_t step) const;
  // The first command, in issue order, that began and has not ended.
  [[nodiscard]] std::optional<CommandId> unfinished() const;

  [[nodiscard]] std::int64_t empty_pair_ns() const { return empty_pair_ns_; }
  [[nodiscard]] std::int64_t clock_error_ns() const { return anchor_.error_ns; }

 private:
  struct Span {
    CommandId command;
    StreamId stream;
    std::size_t start = 0;  // in events_
    std::size_t end = 0;
  };
  std::size_t record(cudaStream_t stream);

  std::vector<Event> anchors_;  // one per sample
  Anchor anchor_;
  std::vector<Event> events_;
  std::size_t used_ = 0;  // of events_
  std::vector<Span> spans_;
  Recording recording_ = Recording::Eager;
  std::int64_t empty_pair_ns_ = 0;
};

}  // namespace dovetail::exec::cuda

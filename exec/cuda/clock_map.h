// From device time to the clock that all ranks of a host share (CLOCK_MONOTONIC).
//
// At the start of a step an event is recorded on the idle device between two readings of the host's
// clock; its time lies between them. The narrowest of a few such samples is the step's anchor, and
// every other event counts from it. The error is at most half the distance of the two readings (a
// few microseconds), the same for all spans of a step.
//
// An empty pair of events is not zero: its median is taken off every span, down to nothing.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "exec/backend.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dovetail::exec::cuda {

// The host's clock before an event was recorded and after it was seen to be done.
struct AnchorSample {
  std::int64_t before_ns = 0;
  std::int64_t after_ns = 0;
};

struct Anchor {
  std::size_t sample = 0;     // which one was taken
  std::int64_t at_ns = 0;     // its event's time
  std::int64_t error_ns = 0;  // at most
};
// REQUIRES: at least one sample.
Anchor best_anchor(std::span<const AnchorSample> samples);

// A span by its distance from the anchor in milliseconds, as CUDA gives it.
struct DeviceSpan {
  float start_ms = 0;
  float end_ms = 0;
};
struct HostSpan {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;
};
HostSpan to_host(const DeviceSpan& span, const Anchor& anchor, std::int64_t empty_pair_ns);

// REQUIRES: not empty.
std::int64_t median_ns(std::vector<float> milliseconds);

}  // namespace dovetail::exec::cuda

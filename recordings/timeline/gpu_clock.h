// How far the GPU's clock in a trace is off the host's, and how sure that is.
//
//   GpuClock clock = estimate_clock(pairs, ends);
//   gpu_time + clock.at(gpu_time)        on the host's clock
//
// Profilers convert the GPU's times, and are off by up to a millisecond. What bounds the offset:
//   launch       no kernel begins before the call that launched it
//   idle GPU     a kernel that found the GPU idle began 1 to 25 us after its call began: what made it begin was
//                the launch, not work before it
//   synchronise  no call that names what it waits for returns before that has ended
// Times within these bounds are left as they are, and may be off by as much as the quickest launch took. Others are
// shifted so that the quickest launch onto an idle GPU took 6 us; where that grows or falls evenly over the trace, by a
// rate as well.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"

#include <cstddef>
#include <vector>

namespace dovetail::imports {

struct GpuClock {
  Duration offset{};              // to be added to the GPU's times, at `zero`
  double rate = 0;                // by how much that grows per time
  Instant zero;                   // of the rate
  Duration error{};               // of the offset, either way
  std::size_t idle_launches = 0;  // that it rests on

  [[nodiscard]] bool is_off() const { return offset != Duration{} || rate != 0; }
  [[nodiscard]] Duration at(Instant gpu_time) const;
};

// A piece of GPU work and its launch, times as in the file.
struct LaunchedWork {
  Instant call, work;
  bool was_idle = false;  // the GPU, before it began
};

// A call that waited for work, and the end of that.
struct AwaitedWork {
  Instant returned, end;
};

GpuClock estimate_clock(const std::vector<LaunchedWork>& launched,
                        const std::vector<AwaitedWork>& awaited);

}  // namespace dovetail::imports

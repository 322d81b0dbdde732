// What a rank holds of its device's memory over a step, as far as it comes and goes: levels at moments, with straight
// lines between them.
//
//   rank 0, rest 41 GiB    0 us: 0   200 us: 9 GiB of activations   200 us: and 0.8 GiB gathered   ...
//
// answers/memory_over_time.h makes it of a predicted step; report draws it.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"

#include <vector>

namespace dovetail::traces {

struct MemoryLevels {
  Instant at;
  Bytes activations, gradients, gathered;
  [[nodiscard]] Bytes sum() const { return activations + gradients + gathered; }
  friend bool operator==(const MemoryLevels&, const MemoryLevels&) = default;
};

struct RankMemory {
  Rank rank;
  Bytes rest;                        // what stays all the step; 0: not known
  std::vector<MemoryLevels> levels;  // by time; two of one moment are a jump
};

}  // namespace dovetail::traces

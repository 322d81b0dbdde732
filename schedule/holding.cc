// Adds kinds of memory up, and lists them.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/holding.h"

#include <algorithm>
#include <functional>

namespace dovetail::schedule {

Bytes Holding::reserved() const { return allocated() + fragmentation; }
Bytes Holding::total() const { return reserved() + outside; }

Bytes Holding::allocated() const {
  return parameters + gradients + accumulated + copies + master + optimizer + activations + logits +
         working + gathered + buffers;
}

std::string describe(const Holding& held) {
  std::array<HoldingKind, kHoldingKinds.size()> kinds = kHoldingKinds;
  std::ranges::stable_sort(kinds, std::greater(),
                           [&](const HoldingKind& kind) { return held.*kind.bytes; });
  std::string text;
  for (const auto& [word, bytes] : kinds) {
    if (held.*bytes == Bytes()) break;
    text += (text.empty() ? "" : ", ") + std::string(word) + " " + to_string(held.*bytes);
  }
  return text;
}

Fits Room::fits() const {
  if (!capacity || high <= *capacity) return Fits::Yes;
  return low > *capacity ? Fits::No : Fits::May;
}

}  // namespace dovetail::schedule

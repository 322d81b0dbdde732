// Compares the end of a sequence with itself, moved by every period there may be.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/sequence.h"

#include "base/count.h"
#include "base/units.h"

#include <algorithm>

namespace dovetail::imports {

std::size_t period_of(std::span<const SequenceEntry> entries) {
  constexpr std::size_t kLongest = 4096;
  constexpr std::size_t kMostEntries = 20'000;
  entries = entries.last(std::min(entries.size(), kMostEntries));
  std::size_t best = 0;
  std::size_t most = 0;  // entries that the best period holds for
  for (std::size_t period = 1; period <= std::min(entries.size() / 2, kLongest); ++period) {
    std::size_t holds = period;
    while (holds < entries.size() &&
           entries[entries.size() - 1 - holds + period] == entries[entries.size() - 1 - holds]) {
      ++holds;
    }
    if (holds < 2 * period || holds <= most) continue;
    best = period;
    most = holds;
    if (holds == entries.size()) break;
  }
  return best;
}

std::string in_words(std::span<const SequenceEntry> entries) {
  constexpr std::size_t kShown = 12;
  const std::size_t period = period_of(entries);
  const std::span<const SequenceEntry> step = period > 0 ? entries.last(period) : entries;
  std::string text = (period > 0 ? "repeats " : "") + counted(step.size(), "collective") + ": ";
  for (std::size_t i = 0; i < std::min(step.size(), kShown); ++i) {
    text += (i == 0 ? "" : ", ") + step[i].what + " " + to_string(Bytes(step[i].bytes));
  }
  return text + (step.size() > kShown ? ", ..." : "");
}

}  // namespace dovetail::imports

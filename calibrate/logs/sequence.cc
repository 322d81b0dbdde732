// Compares the end of a sequence with itself, moved by every period there may be.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/logs/sequence.h"

#include "base/count.h"
#include "base/units.h"

#include <algorithm>
#include <utility>

namespace dovetail::imports {
namespace {

using Entries = std::span<const SequenceEntry>;

std::int64_t bytes_of(Entries entries) {
  std::int64_t bytes = 0;
  for (const SequenceEntry& entry : entries) bytes += entry.bytes;
  return bytes;
}

bool holds_entry(Entries entries, const SequenceEntry& wanted) {
  return std::ranges::find(entries, wanted) != entries.end();
}

// Parameters that a step shards are gathered and their gradients scattered, with the same sizes: one without the other is
// half a step.
bool lacks_its_other_half(Entries step, Entries before) {
  for (const auto& [one, other] :
       {std::pair("reduce-scatter", "all-gather"), std::pair("all-gather", "reduce-scatter")}) {
    const auto is_other = [&other = other](const SequenceEntry& entry) {
      return entry.what == other;
    };
    if (std::ranges::any_of(step, is_other)) continue;
    for (const SequenceEntry& entry : step) {
      if (entry.what == one && holds_entry(before, {other, entry.bytes})) return true;
    }
  }
  return false;
}

// Whether the end of a sequence, which repeats `step` and comes behind `before`, is what a job repeats, and not the end of its only step.
bool is_a_step(Entries step, Entries repeated, Entries before) {
  const std::int64_t all = bytes_of(before) + bytes_of(repeated);
  if (all > 0 && bytes_of(repeated) < all / 5 * 2) return false;
  if (lacks_its_other_half(step, before)) return false;
  if (before.size() <= step.size()) return true;
  if (std::search(before.begin(), before.end(), step.begin(), step.end()) != before.end())
    return true;
  const auto alike = std::ranges::count_if(
      before, [&](const SequenceEntry& entry) { return holds_entry(step, entry); });
  return alike * 2 <= std::ssize(before);
}

}  // namespace

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
    if (!is_a_step(entries.last(period), entries.last(holds),
                   entries.first(entries.size() - holds))) {
      continue;
    }
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

// The collectives of one group of ranks in their order, told in words: what a step of the job repeats.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace dovetail::imports {

struct SequenceEntry {
  std::string what{};  // "all-reduce"
  std::int64_t bytes = 0;
  friend bool operator==(const SequenceEntry&, const SequenceEntry&) = default;
};

// How many entries a step has, if the end of the sequence repeats itself: of all periods the shortest one that
// holds for most of it, at least for two of its steps; 0: it does not. Of "7, 25, 25, 7, 25, 25" it is 3, though 25
// stands twice at the end.
//
// What the end of a job's only step repeats is no step: two equal all-reduces of norm and loss, gathers and scatters of layers in turn.
// So what is repeated holds two fifths of all bytes and more; it has gathers where it has scatters of sizes that were gathered before,
// and the other way round; and what comes before it is no longer than a step, or has that step in it, or is mostly something else.
std::size_t period_of(std::span<const SequenceEntry> entries);

// "4 collectives: all-reduce 28.2 MiB, all-reduce 27 MiB, ..."; "repeats 2 collectives: all-reduce 1 MiB, all-reduce 2
// MiB" where it has a period, whose last whole step is shown. At most 12 of them.
std::string in_words(std::span<const SequenceEntry> entries);

}  // namespace dovetail::imports

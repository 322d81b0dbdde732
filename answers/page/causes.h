// What a stall of the compute stream waited for.
//
// A stall on bucket b lasts until the last collective of b on that rank has ended. Each moment of it has one
// cause, the first that holds:
//
//   own transfer   a collective of b moves bytes
//   other rank     a collective of b has begun here, but its last rank has not arrived
//   behind         another collective is in flight on the stream that carries b: b stands in its queue
//   not launched   nothing of b is in flight: its last gradient or the host is late, or what follows the
//                  collective (an unpack, a wake-up) is not done
//
// Where a trace does not know when bytes began to move, all of a collective counts as its own transfer. A
// wait that names no bucket (for a pipeline's neighbour) is "other stage". The times of a stall add up to
// its length, exactly.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "base/words.h"
#include "traces/trace.h"

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::report {

using dovetail::to_string;

enum class StallCause { OwnTransfer, OtherRank, Behind, NotLaunched, OtherStage };
constexpr auto words_of(StallCause) {
  return words("own transfer", "other rank", "behind", "not launched", "other stage");
}
inline constexpr std::array kStallCauses = {StallCause::OwnTransfer, StallCause::OtherRank,
                                            StallCause::Behind, StallCause::NotLaunched,
                                            StallCause::OtherStage};

struct ByCause {
  std::array<Duration, kStallCauses.size()> time{};
  Duration& operator[](StallCause cause) { return time[static_cast<std::size_t>(cause)]; }
  Duration operator[](StallCause cause) const { return time[static_cast<std::size_t>(cause)]; }
  [[nodiscard]] Duration total() const;
  ByCause& operator+=(const ByCause& other);
  friend bool operator==(const ByCause&, const ByCause&) = default;
};

// Of the stall within [from, to). `spans` are those of the stall's rank, of any step; its collectives beside the compute
// stream are enough.
struct Stall {
  const traces::CommandInfo* wait = nullptr;  // not null
  std::int32_t step = 0;
  Instant from, to;
};
ByCause causes_of(const traces::Trace& trace, std::span<const traces::Span> spans,
                  const Stall& stall);

// "waits for bucket 4: 3.4 ms its own transfer, 1.2 ms behind other buckets".
std::string in_words(const Stall& stall, const ByCause& causes);

}  // namespace dovetail::report

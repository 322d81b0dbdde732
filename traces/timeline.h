// A Trace as text: one line per rank and stream, one character per column of time.
//
//   predicted step 0; a column is 5 us; F forward, B backward, O optimizer, 0-9 last digit of the bucket
//   s0 FFBBBBBBO.O..O
//   s1 ....000111222
//
// Here bucket 1 travels from 35 us to 50 us, while backward ends at 40 us. The legend names what is drawn:
//
//   F B O   compute of that phase          w   the compute stream stands at a wait (a stall)
//   c       copy into or out of a bucket   .   nothing, or a communication stream at a wait
//   e       host work to launch            0-9 a collective: the last digit of its bucket's number
//   #       communication that has no bucket
//
// A column shows what filled most of it; of equals, work before nothing, then what came first. Buckets
// that no column shows are named below the picture; streams on which nothing happens have no line.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "traces/metrics.h"
#include "traces/trace.h"

#include <cstdint>
#include <optional>
#include <string>

namespace dovetail::traces {

struct TimelineOptions {
  Steps steps = Steps::Median;
  // Absent: the smallest of 1, 2 and 5 x 10^k ns with which the picture fits `columns`.
  std::optional<Duration> column = std::nullopt;
  std::int64_t columns = 100;
};

// REQUIRES: every step has a span; column and columns above 0.
std::string timeline(const Trace& trace, const TimelineOptions& options = {});

}  // namespace dovetail::traces

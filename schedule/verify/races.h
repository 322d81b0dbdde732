// Two accesses to one cell, one of them a write, must be ordered.
//
// Accesses come in host issue order. Of each cell the last write and the reads since then are kept,
// the latest per stream, because what is ordered after that one is ordered after the stream's
// earlier ones: O(streams) per access.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/indexed.h"
#include "schedule/verify/happens_before.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dovetail::schedule::verification {

enum class Access { Read, Write };

// An earlier access that nothing orders before the current one.
struct Conflict {
  std::size_t earlier = 0;  // index of the command
  Access access = Access::Write;
};

class Races {
 public:
  explicit Races(std::int32_t cells) : cells_(static_cast<std::size_t>(cells)) {}

  // Notes the access of command `index` on `stream` and appends its conflicts.
  void touch(const HappensBefore& order, std::size_t index, std::size_t stream, std::int32_t cell,
             Access access, std::vector<Conflict>& conflicts);

 private:
  static constexpr std::int32_t kNone = -1;
  struct History {
    std::size_t last_write = SIZE_MAX;
    std::int32_t first_read = kNone;
  };
  struct Read {
    std::size_t command = 0;
    std::size_t stream = 0;
    std::int32_t next = kNone;
  };

  Indexed<std::int32_t, History> cells_;
  Indexed<std::int32_t, Read> reads_;  // linked lists
};

}  // namespace dovetail::schedule::verification

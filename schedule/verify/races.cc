// Finds two accesses to one cell of memory that nothing orders. Only the last write and the latest
// read per stream are kept: what is ordered behind those is ordered behind everything before them.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/verify/races.h"

namespace dovetail::schedule::verification {

void Races::touch(const HappensBefore& order, std::size_t index, std::size_t stream,
                  std::int32_t cell, Access access, std::vector<Conflict>& conflicts) {
  History& history = cells_[cell];
  const auto check = [&](std::size_t earlier, Access what) {
    if (earlier != index && !order.before(earlier, index)) conflicts.push_back({earlier, what});
  };
  if (history.last_write != SIZE_MAX) check(history.last_write, Access::Write);
  if (access == Access::Write) {
    for (std::int32_t i = history.first_read; i != kNone;) {
      const Read& read = reads_[i];
      check(read.command, Access::Read);
      i = read.next;
    }
    history = {index, kNone};
    return;
  }
  for (std::int32_t i = history.first_read; i != kNone;) {
    Read& read = reads_[i];
    if (read.stream == stream) {
      read.command = index;
      return;
    }
    i = read.next;
  }
  history.first_read = reads_.push_back({index, stream, history.first_read});
}

}  // namespace dovetail::schedule::verification

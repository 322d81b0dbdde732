// Finds accesses to device memory that no stream order or event orders, with a vector clock per
// stream and the last accesses of each cell of memory.
//
// SPDX-License-Identifier: Apache-2.0
#include "tests/emulated/races.h"

#include <algorithm>
#include <sstream>

namespace dovetail::emulated {
namespace {

const char* words_of(AccessKind kind) { return kind == AccessKind::Write ? "writes" : "reads"; }

}  // namespace

void merge(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (std::size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

std::size_t Races::new_lane() {
  if (!free_.empty()) {
    const std::size_t lane = free_.back();
    free_.pop_back();
    return lane;
  }
  counts_.push_back(0);
  return counts_.size() - 1;
}

void Races::end_lane(std::size_t lane) { free_.push_back(lane); }

void Races::tick(std::size_t lane, Clock& clock) {
  if (clock.size() <= lane) clock.resize(lane + 1, 0);
  clock[lane] = ++counts_[lane];
}

// After this no cell contains `at` but as its first byte.
void Races::split(std::uintptr_t at) {
  auto next = cells_.upper_bound(at);
  if (next == cells_.begin()) return;
  auto& [begin, cell] = *std::prev(next);
  if (begin == at || cell.end <= at) return;
  Cell rest = cell;
  cell.end = at;
  cells_.emplace(at, std::move(rest));
}

void Races::check(Cell& cell, const Access& access, const Seen& now, const Clock& clock,
                  std::vector<std::string>& found) const {
  const auto is_ordered = [&](const Seen& before) {
    return before.count == 0 || (before.lane < clock.size() && clock[before.lane] >= before.count);
  };
  const auto report = [&](const Seen& before, AccessKind kind) {
    std::ostringstream words;
    words << "race: " << now.name << ' ' << words_of(access.kind) << " what " << before.name << ' '
          << words_of(kind) << ", and nothing orders them (" << access.bytes << " bytes at "
          << access.data << ')';
    found.push_back(words.str());
  };
  if (!is_ordered(cell.write)) report(cell.write, AccessKind::Write);
  if (access.kind == AccessKind::Read) {
    std::erase_if(cell.reads, [&](const Seen& read) { return read.lane == now.lane; });
    cell.reads.push_back(now);
    return;
  }
  for (const Seen& read : cell.reads) {
    if (!is_ordered(read)) report(read, AccessKind::Read);
  }
  cell.reads.clear();
  cell.write = now;
}

void Races::touch_range(const Access& access, const Seen& now, const Clock& clock,
                        std::vector<std::string>& found) {
  const auto begin = reinterpret_cast<std::uintptr_t>(access.data);
  const std::uintptr_t end = begin + access.bytes;
  split(begin);
  split(end);
  std::uintptr_t at = begin;
  while (at < end) {
    auto next = cells_.lower_bound(at);
    if (next == cells_.end() || next->first != at) {  // nobody was here before
      const std::uintptr_t stop = next == cells_.end() ? end : std::min(end, next->first);
      next = cells_.emplace(at, Cell{.end = stop, .write = {}, .reads = {}}).first;
    }
    check(next->second, access, now, clock, found);
    at = next->second.end;
  }
}

std::vector<std::string> Races::touch(const std::vector<Access>& accesses, std::size_t lane,
                                      const Clock& clock, std::string_view name) {
  std::vector<std::string> found;
  const Seen now = {.lane = lane, .count = clock[lane], .name = std::string(name)};
  for (const Access& access : accesses) {
    if (access.data != nullptr && access.bytes > 0) touch_range(access, now, clock, found);
  }
  return found;
}

void Races::forget(const void* data, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(data);
  split(begin);
  split(begin + bytes);
  cells_.erase(cells_.lower_bound(begin), cells_.lower_bound(begin + bytes));
}

}  // namespace dovetail::emulated

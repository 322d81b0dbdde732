// The event queue: a 4-ary min-heap on (time, key), so that equal times come out in a fixed order.
//
// Four children per node make half as many levels as a binary heap and each level one cache line.
// `replace_top` puts a new event in place of the one just handled: most handled events cause
// exactly one new event, and this halves the work.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace dovetail::sim {

struct Event {
  std::int64_t time = 0;
  std::int32_t key = 0;

  friend bool operator<(const Event& a, const Event& b) {
    return a.time != b.time ? a.time < b.time : a.key < b.key;
  }
};

class EventQueue {
 public:
  void clear() { heap_.clear(); }
  [[nodiscard]] bool empty() const { return heap_.empty(); }
  // REQUIRES for the next three: not empty.
  [[nodiscard]] const Event& top() const { return heap_.front(); }
  void replace_top(const Event& event) { sink(event); }
  void pop() {
    const Event last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sink(last);
  }
  void push(const Event& event) {
    std::size_t hole = heap_.size();
    heap_.push_back(event);
    while (hole > 0) {
      const std::size_t parent = (hole - 1) / 4;
      if (!(event < heap_[parent])) break;
      heap_[hole] = heap_[parent];
      hole = parent;
    }
    heap_[hole] = event;
  }

 private:
  // Puts an event at the root and lets it sink to its place.
  void sink(const Event& event) {
    const std::size_t size = heap_.size();
    std::size_t hole = 0;
    for (;;) {
      const std::size_t first = 4 * hole + 1;
      if (first >= size) break;
      const std::size_t last = std::min(first + 4, size);
      std::size_t least = first;
      for (std::size_t child = first + 1; child < last; ++child) {
        if (heap_[child] < heap_[least]) least = child;
      }
      if (!(heap_[least] < event)) break;
      heap_[hole] = heap_[least];
      hole = least;
    }
    heap_[hole] = event;
  }

  std::vector<Event> heap_;
};

}  // namespace dovetail::sim

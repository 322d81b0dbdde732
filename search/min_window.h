// The least key in a window of bucket starts that only moves to the right: a monotone deque.
//
// Starts come in rising order. A start whose key is not less than that of a later one can never be
// the least again, so it is dropped at once; what remains has rising keys, and the first is the
// least. push and drop_through are O(1) amortised.
//
// The caller owns the memory, so that a window in a local variable lives in registers. An empty
// window begins again at the front of it: a short window stays in the cache whatever the number of
// gradients.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "search/ticks.h"

#include <cstddef>
#include <cstdint>

namespace dovetail::search::internal {

class MinWindow {
 public:
  struct Entry {
    Ticks key;
    std::uint32_t start;
  };

  // REQUIRES: storage has room for every start that will be pushed, and outlives this.
  explicit MinWindow(Entry* storage) : entries_(storage) {}

  [[nodiscard]] bool empty() const { return head_ == tail_; }
  // The least key, of equals the latest start. REQUIRES: !empty().
  [[nodiscard]] const Entry& front() const { return entries_[head_]; }

  // REQUIRES: start is above all before.
  void push(std::uint32_t start, Ticks key) {
    while (!empty() && entries_[tail_ - 1].key >= key) --tail_;
    entries_[tail_++] = Entry{key, start};
  }

  // Removes all starts up to this one.
  void drop_through(std::uint32_t start) {
    while (!empty() && front().start <= start) ++head_;
    if (empty()) head_ = tail_ = 0;
  }

 private:
  Entry* entries_;
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
};

}  // namespace dovetail::search::internal

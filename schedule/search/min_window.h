// The least key in a window of bucket starts that only moves to the right: a monotone deque.
//
// Starts come in rising order. A start whose key is not less than that of a later one can never be
// the least again, so it is dropped at once; what remains has rising keys, and the first is the
// least. push and drop_through are O(1) amortised. The ring grows as needed, so a short window
// stays in the cache whatever the number of gradients.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/search/ticks.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dovetail::schedule::internal {

class MinWindow {
 public:
  struct Entry {
    Ticks key;
    std::uint32_t start;
  };

  [[nodiscard]] bool empty() const { return head_ == tail_; }
  // The least key, of equals the latest start. REQUIRES: !empty().
  [[nodiscard]] const Entry& front() const { return ring_[head_ & mask_]; }

  // REQUIRES: start is above all before.
  void push(std::uint32_t start, Ticks key) {
    while (!empty() && ring_[(tail_ - 1) & mask_].key >= key) --tail_;
    if (tail_ - head_ == ring_.size()) grow();
    ring_[tail_++ & mask_] = Entry{key, start};
  }

  // Removes all starts up to this one.
  void drop_through(std::uint32_t start) {
    while (!empty() && front().start <= start) ++head_;
  }

 private:
  void grow() {
    std::vector<Entry> larger(2 * ring_.size());
    for (std::size_t i = head_; i != tail_; ++i) larger[i - head_] = ring_[i & mask_];
    tail_ -= head_;
    head_ = 0;
    ring_.swap(larger);
    mask_ = ring_.size() - 1;
  }

  static constexpr std::size_t kFirstCapacity = 64;  // a power of two, as all that follow
  std::vector<Entry> ring_ = std::vector<Entry>(kFirstCapacity);
  std::size_t mask_ = kFirstCapacity - 1;
  std::size_t head_ = 0;  // positions count up; a slot is the position modulo the capacity
  std::size_t tail_ = 0;
};

}  // namespace dovetail::schedule::internal

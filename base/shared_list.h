// A list that copies of a value share: copying one is as cheap as copying a pointer, and whoever edits one gets a list of his own first.
//
//   SharedList<int> a = {1, 2};
//   SharedList<int> b = a;
//   b.edit().push_back(3);      // a is {1, 2}
//
// Values like any other: compared by what they hold. Lists of one thread may share with those of another one.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace dovetail {

template <class T>
class SharedList {
 public:
  using value_type = T;

  SharedList() = default;
  SharedList(std::vector<T> items) {  // NOLINT(google-explicit-constructor)
    if (!items.empty()) items_ = std::make_shared<std::vector<T>>(std::move(items));
  }
  SharedList(std::initializer_list<T> items) : SharedList(std::vector<T>(items)) {}

  [[nodiscard]] const T* begin() const { return items_ ? items_->data() : nullptr; }
  [[nodiscard]] const T* end() const { return begin() + size(); }
  [[nodiscard]] std::size_t size() const { return items_ ? items_->size() : 0; }
  [[nodiscard]] bool empty() const { return size() == 0; }
  // REQUIRES: it is there.
  [[nodiscard]] const T& operator[](std::size_t at) const { return (*items_)[at]; }
  [[nodiscard]] const T& front() const { return items_->front(); }

  [[nodiscard]] std::vector<T> copy() const { return {begin(), end()}; }
  // Its own, until it is copied.
  [[nodiscard]] std::vector<T>& edit() {
    if (!items_) {
      items_ = std::make_shared<std::vector<T>>();
    } else if (items_.use_count() > 1) {
      items_ = std::make_shared<std::vector<T>>(*items_);
    }
    return *items_;
  }
  void clear() { items_.reset(); }
  void reserve(std::size_t size) { edit().reserve(size); }
  void push_back(T item) { edit().push_back(std::move(item)); }

  // Whether both are one list: quick, and enough for equality.
  [[nodiscard]] bool shares(const SharedList& other) const { return items_ == other.items_; }
  friend bool operator==(const SharedList& a, const SharedList& b) {
    return a.shares(b) || std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::shared_ptr<std::vector<T>> items_;
};

}  // namespace dovetail

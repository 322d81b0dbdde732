// A vector whose elements are found by an id and not by a bare position: a BucketId cannot index a list of ops.
//
//   Indexed<OpId, Duration> times(program.ops.size());
//   times[op.id] += us(3);
//   for (const Duration time : times) ...        // in the order of the ids, from 0 on
//
// The ids are positions here: whoever uses it numbers its things from 0 without gaps. An index may also be an
// enumeration or a plain std::int32_t with a name of its own (using NodeId = std::int32_t); all of them save the
// cast that a vector would ask for. For ids with gaps: schedule/id_table.h.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

namespace dovetail {

// The position that an id, an enumerator or a whole number stands for. REQUIRES: it is not negative.
template <class Index>
constexpr std::size_t position_of(Index index) {
  if constexpr (std::is_integral_v<Index> || std::is_enum_v<Index>) {
    return static_cast<std::size_t>(index);
  } else {
    return static_cast<std::size_t>(index.value);
  }
}

template <class Index, class T>
class Indexed {
 public:
  Indexed() = default;
  explicit Indexed(std::size_t count, const T& value = T()) : values_(count, value) {}
  Indexed(std::initializer_list<T> values) : values_(values) {}

  // REQUIRES: the index is below size().
  decltype(auto) operator[](Index index) { return values_[position_of(index)]; }
  decltype(auto) operator[](Index index) const { return values_[position_of(index)]; }

  // Appends a value; returns the index under which it is found.
  Index push_back(T value) {
    values_.push_back(std::move(value));
    return index_of(values_.size() - 1);
  }
  // Appends it so many times.
  template <class Count>
  void append(Count count, const T& value) {
    values_.insert(values_.end(), position_of(count), value);
  }
  // The index that the next push_back() will return.
  [[nodiscard]] Index end_index() const { return index_of(values_.size()); }
  [[nodiscard]] bool contains(Index index) const { return position_of(index) < values_.size(); }

  [[nodiscard]] std::size_t size() const { return values_.size(); }
  [[nodiscard]] bool empty() const { return values_.empty(); }
  void resize(std::size_t count) { values_.resize(count); }
  void assign(std::size_t count, const T& value) { values_.assign(count, value); }
  void reserve(std::size_t count) { values_.reserve(count); }
  void clear() { values_.clear(); }

  auto begin() { return values_.begin(); }
  auto end() { return values_.end(); }
  auto begin() const { return values_.begin(); }
  auto end() const { return values_.end(); }

  friend bool operator==(const Indexed&, const Indexed&) = default;

 private:
  static Index index_of(std::size_t position) {
    if constexpr (std::is_integral_v<Index> || std::is_enum_v<Index>) {
      return static_cast<Index>(position);
    } else {
      return Index{static_cast<std::int32_t>(position)};
    }
  }

  std::vector<T> values_;
};

}  // namespace dovetail
